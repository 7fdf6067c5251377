"""Calls that are served together: who is cancelled, and who is refused, does not take the others along."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from muniment.errors import StorageUnavailable
from muniment_storage_mongo.agent_turns import Together, Turns

KEYS = ("ann 1",)


class Server:
    """Answers each number with itself, once it may; refuses a group that a refused number is in."""

    def __init__(self, refused: dict[int, Exception] | None = None) -> None:
        self.refused = refused or {}
        self.groups: list[list[int]] = []
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.together = Together[int, int](Turns(), self.serve)

    async def serve(self, numbers: Sequence[int]) -> Sequence[int | Exception]:
        self.groups.append(list(numbers))
        self.begun.set()
        await self.may_end.wait()
        for number in numbers:
            if number in self.refused:
                raise self.refused[number]
        return numbers

    def call(self, number: int) -> asyncio.Task[int]:
        return asyncio.ensure_future(self.together.call(KEYS, number))


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_call_that_is_cancelled_while_it_is_served_ends_with_it() -> None:
    """CancelledError leaves after the end, also when the caller is cancelled again meanwhile."""
    server = Server()
    call = server.call(1)
    await server.begun.wait()
    for _ in range(2):
        call.cancel()
        await settle()
        assert not call.done()
    server.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert server.groups == [[1]]


async def test_a_call_that_is_cancelled_before_its_turn_is_never_served() -> None:
    """It leaves at once; those that wait with it are served."""
    server = Server()
    first = server.call(1)
    await server.begun.wait()
    given_up, patient = server.call(2), server.call(3)
    await settle()
    given_up.cancel()
    await settle()
    assert given_up.cancelled()
    server.may_end.set()
    assert (await first, await patient) == (1, 3)
    assert server.groups == [[1], [3]]


async def test_a_cancelled_call_that_is_refused_is_cancelled() -> None:
    """Nobody is left to be told of the refusal."""
    server = Server({1: ValueError()})
    call = server.call(1)
    await server.begun.wait()
    call.cancel()
    await settle()
    server.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_refusal_reaches_only_the_call_that_it_is_for() -> None:
    """Each of the others is answered, in the order in which they came."""
    server = Server({2: ValueError("two"), 5: KeyError("five")})
    server.may_end.set()
    answers = await asyncio.gather(*(server.call(number) for number in range(7)), return_exceptions=True)
    assert [str(one) if isinstance(one, Exception) else one for one in answers] == [0, 1, "two", 3, 4, "'five'", 6]
    alone = [number for group in server.groups[1:] for number in group if len(group) == 1]
    assert {2, 5} <= set(alone)


async def test_what_nobody_knows_is_not_done_again() -> None:
    """After StorageUnavailable a group may be stored; all of it is refused, and none of it is sent again."""
    server = Server({1: StorageUnavailable("away")})
    server.may_end.set()
    answers = await asyncio.gather(*(server.call(number) for number in range(3)), return_exceptions=True)
    assert [type(one) for one in answers] == [StorageUnavailable] * 3
    assert server.groups == [[0, 1, 2]]
