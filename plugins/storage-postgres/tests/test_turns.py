"""The line for connections: its order, its end, and that no turn is lost."""

from __future__ import annotations

import asyncio

import pytest

from muniment_storage_postgres.turns import Turns


class Line(Turns[str]):
    """Turns whose callers leave nothing to anybody; ``left`` is what cancelled ones had been given."""

    def __init__(self, places: int, patience: float) -> None:
        super().__init__(places, patience, self._ended)
        self.left: list[str | None] = []

    async def _ended(self, thing: str | None) -> None:
        self.left.append(thing)
        if thing is None or not self.hand_over(thing):
            self.end()


async def _settled() -> None:
    """Let every task that can go on go on."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_those_who_wait_come_in_turn_and_take_over_what_is_left() -> None:
    """First come, first served; what is handed over goes to exactly one."""
    turns = Line(1, 10.0)
    assert await turns.take() is None
    waiting = [asyncio.create_task(turns.take()) for _ in range(3)]
    await _settled()
    for number in range(3):
        assert turns.hand_over(f"connection {number}")
        await _settled()
        assert [task.done() for task in waiting] == [place <= number for place in range(3)]
    assert [task.result() for task in waiting] == ["connection 0", "connection 1", "connection 2"]
    assert not turns.hand_over("nobody waits")
    turns.end()
    assert await turns.take() is None


async def test_a_turn_that_ends_with_nothing_lets_the_next_one_begin() -> None:
    """A broken connection is not handed over, but its turn is."""
    turns = Line(1, 10.0)
    await turns.take()
    next_one = asyncio.create_task(turns.take())
    await _settled()
    turns.end()
    assert await next_one is None


async def test_patience_ends_for_each_at_its_own_time_and_costs_no_turn() -> None:
    """Who gives up leaves the line; who came later still has time."""
    turns = Line(1, 0.2)
    await turns.take()
    early = asyncio.create_task(turns.take())
    await asyncio.sleep(0.12)
    late = asyncio.create_task(turns.take())
    with pytest.raises(TimeoutError):
        await early
    assert not late.done()
    assert turns.hand_over("connection")
    assert await late == "connection"
    last = asyncio.create_task(turns.take())
    with pytest.raises(TimeoutError):
        await last
    turns.end()
    assert await turns.take() is None


async def test_a_caller_that_is_cancelled_passes_its_turn_on() -> None:
    """Before and just after it was given one."""
    turns = Line(1, 10.0)
    await turns.take()
    before, after, last = (asyncio.create_task(turns.take()) for _ in range(3))
    await _settled()
    before.cancel()
    await _settled()
    assert turns.hand_over("connection")
    after.cancel()
    assert await last == "connection"
    assert after.cancelled()
    assert turns.left == ["connection"]
    alone = asyncio.create_task(turns.take())
    await _settled()
    assert turns.hand_over("connection")
    alone.cancel()
    await _settled()
    assert turns.left == ["connection", "connection"]
    assert await asyncio.wait_for(turns.take(), 1) is None


async def test_there_are_never_more_turns_than_places() -> None:
    """With callers that come, give up, are cancelled and leave either way."""
    turns = Line(3, 0.05)
    running = most = 0

    async def caller(number: int) -> None:
        nonlocal running, most
        try:
            held = await turns.take()
        except TimeoutError:
            return
        running += 1
        most = max(most, running)
        try:
            await asyncio.sleep(0.001 * (number % 4))
        finally:
            running -= 1
            if number % 3 == 0 or not turns.hand_over(held or str(number)):
                turns.end()

    tasks = [asyncio.create_task(caller(number)) for number in range(300)]
    await asyncio.sleep(0.01)
    for task in tasks[::7]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 3
    assert [await asyncio.wait_for(turns.take(), 1) for _ in range(3)] == [None] * 3


async def test_what_is_left_goes_to_who_comes_next() -> None:
    """Only one thing is left at a time, and what is withdrawn is left no more."""
    turns = Line(2, 10.0)
    assert [await turns.take() for _ in range(2)] == [None] * 2
    assert turns.leave("the first")
    assert not turns.leave("the second")
    turns.end()
    assert await turns.take() == "the first"
    assert await turns.take() is None
    assert turns.leave("the third")
    assert turns.withdrawn() == "the third"
    assert turns.withdrawn() is None
    assert await turns.take() is None


async def test_leaving_ends_a_turn() -> None:
    """As often as it is done there are as many places as before."""
    turns = Line(1, 0.05)
    for _ in range(3):
        await turns.take()
        assert turns.leave("a connection")
    assert await turns.take() == "a connection"
    with pytest.raises(TimeoutError):
        await turns.take()
