"""Turns: who works for the same agent in one process waits here and not in the database.

Transactions that meet in one document undo each other, and with many at once hardly any gets through: of 32 at once on
one envelope fewer than 20 a second. So in one process only one works for an agent at a time, and calls that wait for
the same agents are served together, by one transaction for all of them. That is for speed alone: other processes know
nothing of it, and what is right is the database's to see to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from muniment import cancellation
from muniment.errors import StorageUnavailable

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

TOGETHER_MAX = 64
"""Calls that are served together at most."""

Keys: TypeAlias = tuple[str, ...]
"""What a call works for, in order: the keys of agents."""


class Turns:
    """A lock for each agent that somebody works for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, stack: AsyncExitStack, keys: Iterable[str]) -> None:
        """Hold the agents' locks until the stack is left; in the order of the keys, so nobody waits in a circle."""
        for key in keys:
            await stack.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))


@dataclass(eq=False)
class _Call(Generic[I, R]):
    """A call and its answer; ``begun`` once it is being served."""

    item: I
    answer: asyncio.Future[R]
    begun: bool = False


class Together(Generic[I, R]):
    """Calls for the same agents that come while one is served.

    ``serve`` answers each of them or refuses it. What it raises stands for all of them and means that nothing was done,
    or, as StorageUnavailable, that nothing is known.
    """

    def __init__(self, turns: Turns, serve: Callable[[Sequence[I]], Awaitable[Sequence[R | Exception]]]) -> None:
        self._turns = turns
        self._serve = serve
        self._waiting: dict[Keys, list[_Call[I, R]]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def call(self, keys: Keys, item: I) -> R:
        """The answer to one call. Cancelled, it either has not begun and never will, or has ended."""
        call = _Call[I, R](item, asyncio.get_running_loop().create_future())
        if keys in self._waiting:
            self._waiting[keys].append(call)
        else:
            self._waiting[keys] = [call]
            task = asyncio.create_task(self._run(keys))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        try:
            return await asyncio.shield(call.answer)
        except asyncio.CancelledError:
            if not call.begun:
                call.answer.cancel()
            await cancellation.over(call.answer)
            raise

    async def _run(self, keys: Keys) -> None:
        try:
            while self._waiting[keys]:
                async with AsyncExitStack() as stack:
                    await self._turns.take(stack, keys)
                    waiting = [call for call in self._waiting[keys] if not call.answer.done()]
                    group, self._waiting[keys] = waiting[:TOGETHER_MAX], waiting[TOGETHER_MAX:]
                    await self._answer(group)
                # Those who were answered come again, if they do, before the next group is closed.
                await asyncio.sleep(0)
        finally:
            for call in self._waiting.pop(keys):
                call.answer.cancel()

    async def _answer(self, group: Sequence[_Call[I, R]]) -> None:
        for call in group:
            call.begun = True
        try:
            results = await self._results([call.item for call in group])
        except BaseException:
            for call in group:
                call.answer.cancel()
            raise
        for call, result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                call.answer.set_exception(result)
            else:
                call.answer.set_result(result)

    async def _results(self, items: Sequence[I]) -> Sequence[R | Exception]:
        """An answer or a refusal for each. Whose refusal it is that undoes a group is found by halving it."""
        if not items:
            return ()
        try:
            return await self._serve(items)
        except StorageUnavailable as error:
            return [error] * len(items)
        except Exception as error:
            if len(items) == 1:
                return [error]
        half = len(items) // 2
        return [*await self._results(items[:half]), *await self._results(items[half:])]
