"""Where the suite stands between the engine and the plugins: a storage that can be held up, an embedder that
counts or is still loading, and an engine that can be made to fail.

They pass everything else through unchanged. What a storage or an embedder wraps is open before the engine gets it and
is closed by its target, so their ``open`` and ``close`` do nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import lru_cache
from typing import Any, cast

from pydantic import BaseModel

from muniment.conformance.invariant import NotExercised
from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.ports import Embedder, Space, Storage, Vector, Vectors

RACE_PATIENCE = 10.0
"""Seconds that a racer waits for the others before the race counts as not exercised."""


class Barrier:
    """Holds callers of some methods until ``parties`` of them have come; those that come later pass.

    The last one goes on after the others, which take a moment to wake, so that all are under way at once. ``begun`` is
    set once the first one is there.
    """

    def __init__(self, methods: Sequence[str], parties: int) -> None:
        self.methods = methods
        self._parties = parties
        self._arrived = 0
        self._gone_on = 0
        self._all_here = asyncio.Event()
        self.begun = asyncio.Event()
        self.missed = False

    @property
    def happened(self) -> bool:
        """Whether all parties stood at the barrier together."""
        return self._all_here.is_set() and not self.missed

    async def arrive(self) -> None:
        """Wait for the other parties, but not for ever."""
        self._arrived += 1
        self.begun.set()
        if self._arrived >= self._parties:
            self._all_here.set()
            while self._gone_on < self._parties - 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
            return
        try:
            await asyncio.wait_for(self._all_here.wait(), RACE_PATIENCE)
        except TimeoutError:
            self.missed = True
        finally:
            self._gone_on += 1

    def check(self) -> None:
        """Raises NotExercised where the race did not happen."""
        if not self.happened:
            raise NotExercised(
                f"only {self._arrived} of {self._parties} racers stood before Storage.{'/'.join(self.methods)} at once "
                f"(each waits {RACE_PATIENCE:g} s for the others), so the race did not happen"
            )


class Latch:
    """Lets the first caller of one method, once it has its answer, wait until it is released."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.reached = asyncio.Event()
        self.released = asyncio.Event()
        self._taken = False

    async def hold(self) -> None:
        """Wait for the release, the first time only."""
        if self._taken:
            return
        self._taken = True
        self.reached.set()
        await asyncio.wait_for(self.released.wait(), RACE_PATIENCE)


class Gate:
    """A storage whose calls can be held up before (a barrier) or after (a latch) they reach the plugin."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.barrier: Barrier | None = None
        self.latch: Latch | None = None
        # They are attributes of its own, so that a protocol that is asked for at run time finds them.
        for name in _coroutines(type(storage)):
            setattr(self, name, self._passing(name))

    async def open(self) -> None:
        """Nothing: the target opened it."""

    async def close(self) -> None:
        """Nothing: the target closes it."""

    def __getattr__(self, name: str) -> Any:
        return self._way(name)

    def _passing(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def passed(*positional: Any, **named: Any) -> Any:
            return await self._way(name)(*positional, **named)

        return passed

    def _way(self, name: str) -> Any:
        """The storage's attribute, held up where it is to be."""
        method = getattr(self._storage, name)
        barrier, latch = self.barrier, self.latch
        if barrier is not None and name in barrier.methods:
            return _held_before(barrier, method)
        if latch is not None and latch.method == name:
            return _held_after(latch, method)
        return method

    def as_storage(self) -> Storage:
        """Itself, as the engine takes it."""
        return cast(Storage, self)


@lru_cache(maxsize=64)
def _coroutines(kind: type[Any]) -> tuple[str, ...]:
    """The names of a storage's coroutine methods that a gate has none of itself."""
    names = set(dir(kind)) - set(dir(Gate))
    return tuple(sorted(one for one in names if inspect.iscoroutinefunction(inspect.getattr_static(kind, one))))


def _held_before(barrier: Barrier, method: Any) -> Any:
    async def held(*positional: Any, **named: Any) -> Any:
        await barrier.arrive()
        return await method(*positional, **named)

    return held


def _held_after(latch: Latch, method: Any) -> Any:
    async def held(*positional: Any, **named: Any) -> Any:
        answer = await method(*positional, **named)
        await latch.hold()
        return answer

    return held


@asynccontextmanager
async def barrier(gates: Sequence[Gate], methods: Sequence[str], parties: int) -> AsyncGenerator[Barrier]:
    """While entered, the first ``parties`` calls of ``methods`` through any of ``gates`` go on together.

    Raises NotExercised on leaving where they did not meet.
    """
    shared = Barrier(methods, parties)
    for gate in gates:
        gate.barrier = shared
    try:
        yield shared
    finally:
        for gate in gates:
            gate.barrier = None
    shared.check()


@asynccontextmanager
async def passing_on(context: AbstractAsyncContextManager[None]) -> AsyncGenerator[None]:
    """``context``; what is raised while it is entered is raised outside too, even if ``context`` swallows it."""
    raised: BaseException | None = None
    async with context:
        try:
            yield
        except BaseException as error:
            raised = error
            raise
    if raised is not None:
        raise raised


class CountingEmbedder:
    """An embedder that remembers the passages that it was asked for."""

    def __init__(self, embedder: Embedder) -> None:
        self.inner = embedder
        self.calls = 0
        self.passages: list[str] = []

    @property
    def name(self) -> str:
        """The inner embedder's."""
        return self.inner.name

    @property
    def ready(self) -> bool:
        """The inner embedder's."""
        return self.inner.ready

    async def open(self) -> None:
        """Nothing: the inner embedder is open."""

    async def close(self) -> None:
        """Nothing: whoever opened the inner embedder closes it."""

    async def space(self) -> Space:
        """The inner embedder's."""
        return await self.inner.space()

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The inner embedder's; not counted as a call, since it makes no vector."""
        return await self.inner.count_tokens(texts)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The inner embedder's, counted."""
        self.calls += 1
        self.passages.extend(texts)
        return await self.inner.embed_passages(texts)

    async def embed_query(self, text: str) -> Vector:
        """The inner embedder's, counted."""
        self.calls += 1
        return await self.inner.embed_query(text)


class LoadingEmbedder(CountingEmbedder):
    """An embedder whose model is loading until ``loaded`` is set."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder)
        self.loaded = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether it was let go."""
        return self.loaded.is_set() and self.inner.ready

    async def space(self) -> Space:
        """The inner embedder's, once it was let go."""
        await self.loaded.wait()
        return await super().space()

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The inner embedder's, once it was let go."""
        await self.loaded.wait()
        return await super().count_tokens(texts)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The inner embedder's, once it was let go."""
        await self.loaded.wait()
        return await super().embed_passages(texts)

    async def embed_query(self, text: str) -> Vector:
        """The inner embedder's, once it was let go."""
        await self.loaded.wait()
        return await super().embed_query(text)


class StagedEngine(Engine):
    """The engine behind a transport. It can be made to fail, and keeps what its latest call was and came to.

    ``asked`` is that call's operation and principal, ``answered`` the record where there was one.
    """

    asked: tuple[str, Principal] | None = None
    answered: BaseModel | None = None
    _failure: Exception | None = None

    @contextmanager
    def failing(self, error: Exception) -> Generator[None]:
        """While entered, every call raises ``error``, and nothing is logged: what fails on purpose alarms nobody."""
        self._failure = error
        try:
            with self.quiet():
                yield
        finally:
            self._failure = None

    @staticmethod
    @contextmanager
    def quiet() -> Generator[None]:
        """While entered, nothing is logged."""
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)

    async def call(self, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        """Run an operation, or fail as it was made to."""
        self.asked, self.answered = (name, context.principal), None
        if self._failure is not None:
            raise self._failure
        self.answered = await super().call(name, payload, context)
        return self.answered
