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
from typing import Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from muniment.errors import MunimentError
from muniment.ports import ReceiptTaken

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

TOGETHER_MAX = 64
"""Calls that are served together at most."""

Refusal: TypeAlias = MunimentError | ReceiptTaken
"""What one call of a group is answered with where the others are served."""
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


class Together(Generic[I, R]):
    """Calls for the same agents that come while one is served; ``serve`` answers each of them, or refuses it."""

    def __init__(self, turns: Turns, serve: Callable[[Sequence[I]], Awaitable[Sequence[R | Exception]]]) -> None:
        self._turns = turns
        self._serve = serve
        self._waiting: dict[Keys, list[tuple[I, asyncio.Future[R]]]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def call(self, keys: Keys, item: I) -> R:
        """The answer to one call. It is served to its end, also when the caller is cancelled meanwhile."""
        answer = asyncio.get_running_loop().create_future()
        if keys in self._waiting:
            self._waiting[keys].append((item, answer))
        else:
            self._waiting[keys] = [(item, answer)]
            task = asyncio.create_task(self._run(keys))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        return await answer

    async def _run(self, keys: Keys) -> None:
        try:
            while self._waiting[keys]:
                async with AsyncExitStack() as stack:
                    await self._turns.take(stack, keys)
                    waiting = self._waiting[keys]
                    group, self._waiting[keys] = waiting[:TOGETHER_MAX], waiting[TOGETHER_MAX:]
                    await self._answer(group)
                # Those who were answered come again, if they do, before the next group is closed.
                await asyncio.sleep(0)
        finally:
            for _, answer in self._waiting.pop(keys):
                answer.cancel()

    async def _answer(self, group: Sequence[tuple[I, asyncio.Future[R]]]) -> None:
        try:
            results = await self._serve([item for item, _ in group])
        except Exception as error:
            results = [error] * len(group)
        except BaseException:
            for _, answer in group:
                answer.cancel()
            raise
        for (_, answer), result in zip(group, results, strict=True):
            if answer.done():
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)
