"""A cancelled call ends, and as a cancelled one."""

from __future__ import annotations

import asyncio

import pytest

from muniment.cancellation import heeded, to_its_end


async def regardless(begun: asyncio.Event) -> str:
    """Goes on when it is cancelled, as a library may whose wait was over just then."""
    begun.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "done"
    raise AssertionError


async def test_a_cancellation_that_a_library_lost_is_heeded() -> None:
    """It leaves as soon as the library returns."""
    begun = asyncio.Event()
    calling = asyncio.ensure_future(heeded(regardless(begun)))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_a_time_out_around_it_ends_in_time() -> None:
    """``asyncio.timeout`` is a cancellation too."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await heeded(regardless(asyncio.Event()))


async def test_one_that_came_before_is_not_taken_for_its_own() -> None:
    """Whoever cleans up after a cancellation still gets answers."""
    answers: list[str] = []

    async def cleaning_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            answers.append(await heeded(asyncio.sleep(0, "done")))

    calling = asyncio.ensure_future(cleaning_up())
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert answers == ["done"]


async def test_what_must_not_be_cut_short_is_waited_for() -> None:
    """However often the caller is cancelled."""
    done: list[int] = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.append(1)

    calling = asyncio.ensure_future(to_its_end(work()))
    for _ in range(3):
        await asyncio.sleep(0.01)
        calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert done == [1]
