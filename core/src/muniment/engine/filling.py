"""How a space gets the vectors that it lacks: a swap ahead of time or in the background, and healing, are the same.

Memories are leased, cut, embedded and stored, a portion at a time: while one is embedded, the one before it is stored
and the next one is cut. Only what is stored counts, so a process that is killed leaves nothing but leases, which run
out. Who works on what is ``leasing``'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from muniment.engine.cutting import cut_all
from muniment.engine.leasing import Lessor, Walk, lessor_of
from muniment.engine.vectors import VectorSource
from muniment.errors import EmbedderUnavailable, InvalidInput, MunimentError
from muniment.ports import Passages, PassageVector, Space, Storage, Unembedded, Vector

log = logging.getLogger(__name__)

BATCH = 64
"""Memories that are leased at once."""
PORTION_CHARACTERS = 128_000
"""Characters of the memories that are embedded at once; one memory always fits."""
LEASE = timedelta(seconds=30)
"""How long nobody else works on a memory; what a killed process was at waits so long."""
LEASE_USED = 0.8
"""The part of a lease after which a memory that is not embedded yet is left to whoever leases it next."""
STORED_AT_ONCE = 4
ASIDE_SECONDS = 3_600.0
"""How long a memory that cannot be embedded is left alone, unless it changes."""
UNSEEN_LEASES = 4
"""After so many leases without having been met such a memory is taken to be gone, or mended by another process."""


async def _nobody(completed: int) -> None:
    """Nobody is told."""


Told = Callable[[int], Awaitable[None]]
"""Is told, portion by portion, how many memories were completed."""


class Filling:
    """Fills one space, which is registered, from any number of processes at once.

    ``batch`` is how many memories are leased at once, and ``lease`` for how long.
    """

    def __init__(
        self, storage: Storage, source: VectorSource, space: Space, *, batch: int = BATCH, lease: timedelta = LEASE
    ) -> None:
        self.space = space
        self.batch = batch
        self.lease = lease
        self.lessor: Lessor = lessor_of(storage)
        self.source = source
        self._aside: dict[str, _Aside] = {}

    @property
    def aside(self) -> int:
        """How many memories cannot be embedded whole, as far as was tried lately."""
        return len(self._aside)

    async def fill(self, told: Told = _nobody) -> int:
        """Embed what lacks vectors until a whole round found nothing; how many memories were completed.

        What others have leased is left to them. Raises EmbedderUnavailable, ConfigurationError, StorageUnavailable;
        what was leased is given back then.
        """
        if self.source.failing:
            # What were leased now would be given back at once.
            await self.source.check(self.space)
        completed = await _Run(self).to_the_end(told)
        unseen = asyncio.get_running_loop().time() - UNSEEN_LEASES * self.lease.total_seconds()
        self._aside = {key: one for key, one in self._aside.items() if one.seen > unseen}
        return completed

    def set_aside(self, memory: Unembedded) -> None:
        """Leave a memory alone for a while, in its present version."""
        now = asyncio.get_running_loop().time()
        self._aside[memory.memory_id] = _Aside(memory.version, until=now + ASIDE_SECONDS, seen=now)
        log.warning(
            "memory %s has a passage that the embedder does not take; it is found by its words, and by the meaning of "
            "its other passages",
            memory.memory_id,
        )

    def is_aside(self, memory: Unembedded) -> bool:
        """Whether a memory is left alone."""
        known, now = self._aside.get(memory.memory_id), asyncio.get_running_loop().time()
        if known is not None and known.version == memory.version and now < known.until:
            known.seen = now
            return True
        self._aside.pop(memory.memory_id, None)
        return False


@dataclass(slots=True)
class _Aside:
    """A memory that is left alone in this ``version``; when it was ``seen`` last among those that lack vectors."""

    version: int
    until: float
    seen: float


@dataclass(frozen=True, slots=True)
class _Portion:
    """Memories that are embedded at once, each with its passages by hash; ``until`` their leases are good."""

    memories: Sequence[tuple[Unembedded, Mapping[str, str]]]
    until: float

    @property
    def missing(self) -> dict[str, str]:
        """The passages without vectors; one that several memories have is there once."""
        return {
            key: text for memory, texts in self.memories for key, text in texts.items() if key not in memory.passages
        }


class _Run:
    """One call of ``Filling.fill``: the walk, and what is leased and not stored yet."""

    def __init__(self, filling: Filling) -> None:
        self._filling = filling
        self._space = filling.space
        self._walk = Walk(filling.lessor, filling.space.id, lease=filling.lease, done_with=filling.is_aside)
        self._batch = filling.batch
        self._leased: dict[str, tuple[Unembedded, float]] = {}
        """By id; until when, by the event loop's clock, nobody else has completed it."""
        self._waiting: deque[Unembedded] = deque()
        self._until = 0.0

    async def to_the_end(self, told: Told) -> int:
        """All portions; how many memories were completed."""
        completed = 0
        preparing = asyncio.ensure_future(self._prepared())
        storing: asyncio.Future[int] | None = None
        try:
            while (portion := await preparing) is not None:
                preparing = asyncio.ensure_future(self._prepared())
                vectors = await self._vectors(portion.missing) if self._in_time(portion) else None
                if storing is not None:
                    completed += await _telling(storing, told)
                storing = None if vectors is None else asyncio.ensure_future(self._store(portion, vectors))
            if storing is not None:
                completed += await _telling(storing, told)
        except Exception:
            if storing is not None:
                await asyncio.wait([storing])
            await _end(preparing, storing)
            await self._give_back()
            raise
        finally:
            await _end(preparing, storing)
        return completed

    async def _prepared(self) -> _Portion | None:
        """The next portion, cut; None at the end."""
        if not self._waiting:
            asked = asyncio.get_running_loop().time()
            self._waiting.extend(await self._walk.next(self._batch))
            self._until = asked + LEASE_USED * self._filling.lease.total_seconds()
            self._leased |= {one.memory_id: (one, self._until) for one in self._waiting}
        chosen: list[Unembedded] = []
        while self._waiting and (not chosen or _characters([*chosen, self._waiting[0]]) <= PORTION_CHARACTERS):
            chosen.append(self._waiting.popleft())
        if not chosen:
            return None
        embedder = self._filling.source.embedder
        texts = await cut_all([one.content for one in chosen], embedder, self._space.passage_tokens)
        return _Portion(list(zip(chosen, texts, strict=True)), self._until)

    def _in_time(self, portion: _Portion) -> bool:
        """Whether the portion's leases are good; if not, it is left alone, and less is leased from now on."""
        if asyncio.get_running_loop().time() < portion.until:
            return True
        self._batch = max(1, self._batch // 2)
        for memory, _ in portion.memories:
            self._leased.pop(memory.memory_id, None)
        return False

    async def _vectors(self, texts: Mapping[str, str]) -> Mapping[str, Vector]:
        """The vectors of the texts, without those that the embedder does not take.

        Raises EmbedderUnavailable where it takes no other text either.
        """
        try:
            return await self._filling.source.of_passages(self._space, texts)
        except InvalidInput:
            pass
        except EmbedderUnavailable:
            await self._filling.source.check(self._space)
        if len(texts) == 1:
            return {}
        keys = list(texts)
        first, second = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        halves = [await self._vectors({key: texts[key] for key in half}) for half in (first, second)]
        return {**halves[0], **halves[1]}

    async def _store(self, portion: _Portion, vectors: Mapping[str, Vector]) -> int:
        """Store the memories' vectors, some at a time; how many are complete."""
        waiting = iter(portion.memories)

        async def work() -> int:
            return sum([await self._store_one(memory, texts, vectors) for memory, texts in waiting])

        ended = await asyncio.gather(*(work() for _ in range(STORED_AT_ONCE)), return_exceptions=True)
        for one in ended:
            if isinstance(one, BaseException):
                raise one
        return sum(one for one in ended if isinstance(one, int))

    async def _store_one(self, memory: Unembedded, texts: Mapping[str, str], vectors: Mapping[str, Vector]) -> bool:
        new = tuple(PassageVector(key, vectors[key]) for key in texts if key in vectors and key not in memory.passages)
        complete = len(texts.keys() - memory.passages - vectors.keys()) == 0
        if not complete and not self._is_leased(memory):
            return False
        found = Passages(self._space.id, frozenset(texts), new, complete=complete)
        stored = await self._filling.lessor.store_passages(memory.memory_id, memory.version, found)
        self._leased.pop(memory.memory_id, None)
        if stored and not complete:
            self._filling.set_aside(memory)
        return stored and complete

    def _is_leased(self, memory: Unembedded) -> bool:
        """Whether nobody else can have completed a memory, so that what is stored takes nothing from it."""
        _, until = self._leased.get(memory.memory_id, (None, 0.0))
        return asyncio.get_running_loop().time() < until

    async def _give_back(self) -> None:
        """End the leases of what was not stored: a memory keeps the passages that it has, and others may take it."""
        for memory in [one for one, _ in self._leased.values() if self._is_leased(one)]:
            kept = Passages(self._space.id, memory.passages, (), complete=False)
            with suppress(MunimentError):
                await self._filling.lessor.store_passages(memory.memory_id, memory.version, kept)


def _characters(memories: Sequence[Unembedded]) -> int:
    return sum(len(one.content) for one in memories)


async def _telling(storing: Awaitable[int], told: Told) -> int:
    completed = await storing
    await told(completed)
    return completed


async def _end(*begun: asyncio.Future[Any] | None) -> None:
    """Cancel what is under way, and wait for its end, whatever it is."""
    for one in begun:
        if one is not None:
            one.cancel()
    await asyncio.gather(*(one for one in begun if one is not None), return_exceptions=True)
