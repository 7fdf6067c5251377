"""Runs one check on an event loop in a thread of its own, and waits for it no longer than its time allows.

A check that waits for ever is cancelled; one that ignores that, or blocks its event loop, is left behind in its thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from random import Random
from typing import Generic, TypeVar

from muniment.conformance.bench import world_of
from muniment.conformance.ending import Ended, Escaped, in_words
from muniment.conformance.invariant import Invariant, Outcome
from muniment.conformance.target import Target
from muniment.conformance.world import World

GRACE = 10.0
"""Seconds that a check which was cut off has for closing its subject, though no more than it had at all."""

T = TypeVar("T")


async def isolated(target: Target, invariant: Invariant, seed: int, seconds: float) -> Ended:
    """How the check of an invariant ends on a fresh subject, or that it did not. Raises NotRun."""
    worlds: list[World] = []
    check = InThread(lambda: _timed(target, invariant, seed, seconds, worlds), hangs=lambda ended: ended.cut_off)
    check.start()
    ended = asyncio.wrap_future(check.ended)
    try:
        patience = seconds + 2 * min(GRACE, seconds)
        return await asyncio.wait_for(asyncio.shield(ended), patience)
    except TimeoutError:
        check.cancel()
        return _cut_off(f"after {seconds:g} s: it blocks the event loop, or cannot be cancelled", worlds)
    except Escaped as error:
        return in_words(error, _steps(worlds))
    except asyncio.CancelledError:
        check.cancel()
        await asyncio.wait([ended], timeout=GRACE)
        raise


async def trusted(target: Target, invariant: Invariant, seed: int, seconds: float) -> Ended:
    """The same on the running event loop, for a plugin that neither blocks it nor outlives being cancelled."""
    return await _timed(target, invariant, seed, seconds, [])


class InThread(Generic[T]):
    """A coroutine on an event loop of its own in a daemon thread, which can be left behind.

    After a result that ``hangs`` says so of, the loop's end is not waited for: it may have workers that do not end.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], *, hangs: Callable[[T], bool] = lambda result: False) -> None:
        self.ended: Future[T] = Future()
        self._make = make
        self._hangs = hangs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="muniment-conformance", daemon=True).start()

    def cancel(self) -> None:
        """Ask the coroutine to end."""
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _run(self) -> None:
        try:
            ended = asyncio.run(self._main())
        except BaseException as error:
            if not self.ended.done() and self.ended.set_running_or_notify_cancel():
                self.ended.set_exception(error if isinstance(error, Exception) else Escaped(error))
        else:
            self._tell(ended)

    async def _main(self) -> T:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        result = await self._make()
        if self._hangs(result):
            self._tell(result)
        return result

    def _tell(self, result: T) -> None:
        if not self.ended.done() and self.ended.set_running_or_notify_cancel():
            self.ended.set_result(result)


async def _timed(target: Target, invariant: Invariant, seed: int, seconds: float, worlds: list[World]) -> Ended:
    """The check with a fresh subject, cancelled at its time limit; left running if it ignores that."""
    running = asyncio.ensure_future(_checked(target, invariant, seed, worlds))
    try:
        done, _ = await asyncio.wait({running}, timeout=seconds)
        if not done:
            running.cancel()
            await asyncio.wait({running}, timeout=min(GRACE, seconds))
            return _cut_off(f"after {seconds:g} s: what was begun last did not end", worlds)
        return running.result()
    finally:
        running.cancel()


async def _checked(target: Target, invariant: Invariant, seed: int, worlds: list[World]) -> Ended:
    """Open a subject, run the check, close it, and put what it raised into words.

    What the check raised counts, whatever the target makes of it: one that swallows exceptions hides nothing.
    """
    random = Random(f"{seed}:{invariant.id}")
    failed: Exception | None = None
    try:
        async with world_of(target, random) as world:
            worlds.append(world)
            try:
                await invariant.check(world)
            except Exception as error:
                failed = error
                raise
    except Exception as error:
        return in_words(failed or error, _steps(worlds))
    if failed is not None:
        return in_words(failed, _steps(worlds))
    return Ended(Outcome.PASS, "; ".join(worlds[0].notes))


def _cut_off(detail: str, worlds: list[World]) -> Ended:
    return Ended(Outcome.ERROR, f"cut off {detail}", steps=_steps(worlds), cut_off=True)


def _steps(worlds: list[World]) -> tuple[str, ...]:
    return worlds[0].trail.steps() if worlds else ()
