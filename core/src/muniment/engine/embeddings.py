"""The embedder's side of the engine: passages and their vectors for a write, a vector for a query, and healing.

Owns when the embedder is called, how long it is waited for, and what happens when it does not answer: a write then
succeeds as pending and is healed later, a search answers from words and tags. How text is cut is
``passages``; how vectors are kept is the storage's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

from muniment import lexical, passages
from muniment.engine.terms import analyse
from muniment.errors import ConfigurationError, EmbedderMismatch, EmbedderUnavailable, MunimentError
from muniment.models import EmbeddingState
from muniment.ports import (
    Embedder,
    Index,
    Passages,
    PassageVector,
    Space,
    Storage,
    Unembedded,
    Vector,
    Vectors,
)

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "Nightly backups are kept for thirty days in another region.",
    "def parse(line: str) -> dict[str, int]: ...",
    "我们选择了数据库。",
)
"""Sentences whose vectors are a space's fingerprint."""
PROBE_COSINE_MIN = 0.999
"""Below this cosine between a stored probe vector and a new one, the model is another one."""
HEAL_BATCH = 16
PATIENCE = 3.0
"""Seconds that a search waits for its query's vector, and a write for a model that is still loading."""

UNAVAILABLE = "the embedder is unavailable"
"""How a search's ``degraded`` begins where the embedder cannot be used, other than while it loads or is busy."""

StoredPassages = Callable[[str], Awaitable[frozenset[str]]]
"""Tells which passages a memory has in a space, by hash; asked once the space is known."""


async def none_stored(space: str) -> frozenset[str]:
    """The passages of a memory that has none."""
    return frozenset()


class EmbedderState(StrEnum):
    """How an embedder is: one that is off is not configured; of one that is unavailable the latest use failed."""

    READY = "ready"
    LOADING = "loading"
    UNAVAILABLE = "unavailable"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's vector and its space, or the reason in words why there is none."""

    vector: Vector | None = None
    space: str | None = None
    degraded: str | None = None


async def cut(content: str, embedder: Embedder, limit: int) -> dict[str, str]:
    """A content's passages by hash, each at most ``limit`` of the embedder's own tokens; blank ones are left out."""
    units, counts = await _halved(passages.split(content), embedder, limit)
    grouped = passages.group(units, [min(count, limit) for count in counts], limit)
    fitting, _ = await _halved([text for text in grouped if text.strip()], embedder, limit)
    return {passages.digest(text): text for text in fitting if text.strip()}


async def _halved(texts: list[str], embedder: Embedder, limit: int) -> tuple[list[str], list[int]]:
    """The texts, those of more than ``limit`` tokens halved until they fit, and their sizes.

    A single character of more than ``limit`` tokens stays as it is.
    """
    counts = await embedder.count_tokens(texts)
    while any(count > limit and len(text) > 1 for text, count in zip(texts, counts, strict=True)):
        texts = [
            part
            for text, count in zip(texts, counts, strict=True)
            for part in (passages.halves(text) if count > limit and len(text) > 1 else (text,))
        ]
        counts = await embedder.count_tokens(texts)
    return texts, counts


class Embeddings:
    """Everything that the engine asks of an embedder; ``embedder`` None means that none is configured."""

    def __init__(
        self, storage: Storage, embedder: Embedder | None, *, timeout: float, patience: float = PATIENCE
    ) -> None:
        self._storage = storage
        self._embedder = embedder
        self._timeout = timeout
        self._patience = patience
        self._space: Space | None = None
        self._entering: asyncio.Task[Space] | None = None
        self._failure: MunimentError | None = None
        self._failing = False
        self.pending = asyncio.Event()
        """Set when a write left passages without their vectors."""

    @property
    def active_space(self) -> str | None:
        """The id of the active space, once the embedder has told it."""
        return self._space.id if self._space else None

    @property
    def state(self) -> EmbedderState:
        """How the embedder is, as far as it was used."""
        if self._embedder is None:
            return EmbedderState.OFF
        if self._failing or self._failure is not None:
            return EmbedderState.UNAVAILABLE
        return EmbedderState.READY if self._space is not None and self._embedder.ready else EmbedderState.LOADING

    async def open(self) -> None:
        """Open the embedder; loading its model is left to the first use."""
        if self._embedder is not None:
            await self._embedder.open()

    async def close(self) -> None:
        """Close the embedder."""
        if self._entering is not None and not self._entering.done():
            self._entering.cancel()
            await asyncio.wait([self._entering])
        if self._embedder is not None:
            await self._embedder.close()

    async def index(self, content: str, stored: StoredPassages) -> tuple[Index, EmbeddingState]:
        """A content's terms and passages, of which only those not in ``stored`` are embedded.

        An embedder that is unavailable or slower than the time-out leaves the new passages pending; one whose model is
        still loading is not waited for so long.
        """
        terms = await analyse(content)
        if self._embedder is None:
            return Index(lexical.ANALYSER, terms, None), EmbeddingState.OFF
        found: Passages | None = None
        try:
            async with asyncio.timeout(self._timeout if self._embedder.ready else self._patience):
                space = await self.space()
                texts = await cut(content, self._embedder, space.passage_tokens)
                found = Passages(space.id, frozenset(texts), (), complete=False)
                found = await self._embed(self._embedder, space, texts, await stored(space.id))
        except (EmbedderUnavailable, ConfigurationError, TimeoutError) as error:
            log.warning("passages stay pending: %s", str(error) or "the embedder did not answer in time")
            self.pending.set()
        state = EmbeddingState.READY if found and found.complete else EmbeddingState.PENDING
        return Index(lexical.ANALYSER, terms, found), state

    async def query(self, text: str) -> QueryVector:
        """The vector of a query, or why meaning is left out of the answer."""
        if self._embedder is None:
            return QueryVector()
        try:
            async with asyncio.timeout(self._patience):
                space = await self.space()
                vector = await self._used(self._embedder.embed_query(text))
        except TimeoutError:
            if self._failure is not None:
                return _unavailable(self._failure)
            state = "is busy" if self._embedder.ready else "is still loading"
            return QueryVector(degraded=f"the embedder {state}; answered from words and tags")
        except (EmbedderUnavailable, ConfigurationError) as error:
            log.warning("search without meaning: %s", error)
            return _unavailable(error)
        return QueryVector(vector, space.id)

    async def space(self) -> Space:
        """The active space, its fingerprint checked. Raises EmbedderMismatch, EmbedderUnavailable.

        Loading a model goes on when a caller stops waiting for it; the next caller joins.
        """
        space = self._space
        if space is None:
            if self._entering is None or self._entering.done():
                self._entering = asyncio.create_task(self._enter(), name="muniment-enter-space")
                self._entering.add_done_callback(self._entered)
            self._space = space = await asyncio.shield(self._entering)
        return space

    async def heal(self) -> int:
        """Embed one batch of memories whose passages are not complete; how many were healed."""
        if self._embedder is None:
            return 0
        space = await self.space()
        batch = await self._storage.unembedded(space.id, limit=HEAL_BATCH)
        return sum([await self._heal_one(self._embedder, space, memory) for memory in batch])

    async def _heal_one(self, embedder: Embedder, space: Space, memory: Unembedded) -> bool:
        texts = await cut(memory.content, embedder, space.passage_tokens)
        found = await self._embed(embedder, space, texts, memory.passages)
        return await self._storage.store_passages(memory.memory_id, memory.version, found)

    async def _enter(self) -> Space:
        """Register the embedder's space, or compare it with what is registered."""
        assert self._embedder is not None
        space = await self._embedder.space()
        probes = _checked(await self._embedder.embed_passages(PROBES), len(PROBES), space)
        _compare(space, await self._storage.register_space(space, probes), probes)
        return space

    def _entered(self, task: asyncio.Task[Space]) -> None:
        """Keep why it failed, also where nobody waited for it: an attempt may last longer than anybody waits."""
        error = None if task.cancelled() else task.exception()
        self._failure = error if isinstance(error, MunimentError) else None

    async def _embed(self, embedder: Embedder, space: Space, texts: dict[str, str], stored: frozenset[str]) -> Passages:
        missing = [key for key in texts if key not in stored]
        vectors: tuple[PassageVector, ...] = ()
        if missing:
            given = await self._used(embedder.embed_passages([texts[key] for key in missing]))
            made = _checked(given, len(missing), space)
            vectors = tuple(PassageVector(key, made[row]) for row, key in enumerate(missing))
        return Passages(space.id, frozenset(texts), vectors, complete=True)

    async def _used(self, use: Awaitable[Answer]) -> Answer:
        """What a use of the embedder gives; whether it failed is kept. One that was not waited for says nothing."""
        try:
            answer = await use
        except MunimentError:
            self._failing = True
            raise
        self._failing = False
        return answer


def _unavailable(error: MunimentError) -> QueryVector:
    return QueryVector(degraded=f"{UNAVAILABLE}; answered from words and tags: {error.message}")


def _checked(vectors: Vectors, count: int, space: Space) -> Vectors:
    """Vectors fit to be stored. Raises EmbedderUnavailable where the embedder broke its word."""
    if vectors.shape != (count, space.dimensions) or not np.isfinite(vectors).all():
        raise EmbedderUnavailable(
            f"The embedder {space.id} gave {vectors.shape} numbers, not all usable, for {count} texts of "
            f"{space.dimensions} dimensions; update or replace it."
        )
    return vectors


def _compare(space: Space, stored: Vectors, fresh: Vectors) -> None:
    """Refuse another model under a name that is taken. Raises EmbedderMismatch."""
    if stored.shape == fresh.shape:
        with np.errstate(divide="ignore", invalid="ignore"):
            lengths = np.linalg.norm(stored, axis=1) * np.linalg.norm(fresh, axis=1)
            cosines = (stored * fresh).sum(axis=1) / lengths
        if bool((cosines >= PROBE_COSINE_MIN).all()):
            return
    raise EmbedderMismatch(
        f"The model behind {space.id} is not the one that made its stored vectors; restore that model, or "
        "configure the new one under a name of its own."
    )
