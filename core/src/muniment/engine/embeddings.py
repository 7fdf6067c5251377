"""The embedder's side of the engine: passages and their vectors for a write, a vector for a query, and healing.

Owns when the embedder is called, how long it is waited for, and what happens when it does not answer: a write then
succeeds as pending and is healed later, a search answers from words and tags. How text is cut is ``cutting``'s, what an
embedder's space is ``spaces``', and how it is filled ``filling``'s; how vectors are kept is the storage's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from muniment.engine import spaces
from muniment.engine.completeness import Completeness
from muniment.engine.cutting import cut
from muniment.engine.filling import Filling
from muniment.engine.terms import analyse
from muniment.engine.vectors import VectorCache, VectorSource
from muniment.errors import ConfigurationError, EmbedderMismatch, EmbedderUnavailable, InvalidInput, MunimentError
from muniment.lexical import ANALYSER, Terms
from muniment.models import EmbeddingState
from muniment.ports import Embedder, Index, Passages, PassageVector, Space, Storage, Vector
from muniment.ports.refusals import NoSpace

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds that a search waits for its query's vector, and a write for a model that is still loading."""

UNAVAILABLE = "the embedder is unavailable"
"""What a search's ``degraded`` says where the embedder cannot be used, other than while it loads or is busy."""

_LATE = "the embedder did not answer in time"
ANSWERED = "answered from words and tags"

StoredPassages = Callable[[str], Awaitable[frozenset[str]]]
"""Tells which passages a memory has in a space, by hash; asked once the space is known."""


async def none_stored(space: str) -> frozenset[str]:
    """The passages of a memory that has none."""
    return frozenset()


class EmbedderState(StrEnum):
    """How an embedder is: one that is off is not configured; of one that is unavailable the latest use failed; one that
    is a mismatch is not the one that made the stored vectors, and is not used."""

    READY = "ready"
    LOADING = "loading"
    UNAVAILABLE = "unavailable"
    MISMATCH = "mismatch"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's vector and its space, and in words what is missing: the vector, or those of some memories."""

    vector: Vector | None = None
    space: str | None = None
    degraded: str | None = None


class Embeddings:
    """Everything that the engine asks of an embedder; ``embedder`` None means that none is configured.

    ``looked_after`` says that a background task calls ``heal`` until nothing is left, and finds out when an embedder
    that failed works again: until then no call waits for it. ``cache`` is what is kept of passages that were embedded.
    """

    def __init__(
        self,
        storage: Storage,
        embedder: Embedder | None,
        *,
        timeout: float,
        patience: float = PATIENCE,
        looked_after: bool = False,
        cache: VectorCache | None = None,
    ) -> None:
        self._storage = storage
        self._timeout = timeout
        self._patience = patience
        self.pending = asyncio.Event()
        """Set when a write left passages without their vectors, and when an embedder failed or works again."""
        self._looked_after = looked_after
        self._activated = False
        self._source = VectorSource(embedder, cache, recovered=self.pending.set) if embedder is not None else None
        self._embedder = self._source.embedder if self._source is not None else None
        self._completeness = Completeness(storage, looked_after=looked_after)
        self._filling: Filling | None = None
        self._healing = asyncio.Lock()
        self._entering: asyncio.Task[Filling] | None = None
        self._failure: MunimentError | None = None
        self._mismatch = asyncio.Event()

    @property
    def active_space(self) -> str | None:
        """The id of the active space, once the embedder has told it."""
        return self._filling.space.id if self._filling else None

    @property
    def state(self) -> EmbedderState:
        """How the embedder is, as far as it was used."""
        if self._embedder is None or self._source is None:
            return EmbedderState.OFF
        if isinstance(self._failure, EmbedderMismatch):
            return EmbedderState.MISMATCH
        if self._source.failing or self._failure is not None:
            return EmbedderState.UNAVAILABLE
        return EmbedderState.READY if self._filling is not None and self._embedder.ready else EmbedderState.LOADING

    async def open(self) -> None:
        """Open the embedder; loading its model is left to the first use."""
        if self._embedder is not None:
            await self._embedder.open()

    async def close(self) -> None:
        """Close the embedder."""
        if self._entering is not None and not self._entering.done():
            self._entering.cancel()
            await asyncio.wait([self._entering])
        await self._completeness.stop()
        if self._embedder is not None:
            await self._embedder.close()

    async def refused(self) -> EmbedderMismatch:
        """Wait until the embedder turns out not to be the one that made the stored vectors; for ever where it is.

        Whoever serves ends then, with the refusal's message. The background task finds it out right after the start.
        """
        await self._mismatch.wait()
        assert isinstance(self._failure, EmbedderMismatch)
        return self._failure

    async def index(self, content: str, stored: StoredPassages, terms: Terms | None) -> tuple[Index, EmbeddingState]:
        """A content's terms, unless they are at hand, and passages, of which only those not in ``stored`` are embedded.

        An embedder that is unavailable, does not take the text or is slow leaves the new passages pending; one that is
        still loading is not waited for so long, and one that failed just before not at all. Raises EmbedderMismatch.
        """
        terms = terms or await analyse(content)
        if self._embedder is None or self._source is None:
            return Index(ANALYSER, terms, None), EmbeddingState.OFF
        found: Passages | None = None
        try:
            async with asyncio.timeout(self._timeout if self._embedder.ready else self._patience):
                if self._filling is None:
                    self._check(self._failure)
                space = await self.space()
                texts = await cut(content, self._embedder, space.passage_tokens)
                found = Passages(space.id, frozenset(texts), (), complete=False)
                self._check(self._source.failure)
                found = await self._embedded(self._source, space, texts, await stored(space.id))
        except (EmbedderUnavailable, ConfigurationError, InvalidInput, TimeoutError) as error:
            if isinstance(error, TimeoutError) and self._embedder.ready:
                self._source.failure = EmbedderUnavailable(_LATE)
            log.warning("passages stay pending: %s", str(error) or _LATE)
            self._completeness.changed()
            self.pending.set()
        state = EmbeddingState.READY if found and found.complete else EmbeddingState.PENDING
        return Index(ANALYSER, terms, found), state

    async def query(self, text: str) -> QueryVector:
        """The vector of a query, or why meaning is left out of the answer. Raises EmbedderMismatch."""
        if self._embedder is None or self._source is None:
            return QueryVector()
        try:
            async with asyncio.timeout(self._patience):
                self._check(self._failure or self._source.failure)
                space = await self.space()
                vector = await self._source.of_query(space, text)
        except TimeoutError:
            return await self._without_meaning(self._why_late())
        except InvalidInput as error:
            return await self._without_meaning(f"the embedder does not take this query; {ANSWERED}: {error.message}")
        except (EmbedderUnavailable, ConfigurationError) as error:
            log.warning("search without meaning: %s", error)
            self.pending.set()
            return await self._without_meaning(_unavailable(error))
        return QueryVector(vector, space.id, await self._reembedding())

    async def space(self) -> Space:
        """The active space, its fingerprint checked. Raises EmbedderMismatch, EmbedderUnavailable, ConfigurationError.

        Loading a model goes on when a caller stops waiting for it; the next caller joins.
        """
        return (await self._entered()).space

    async def heal(self) -> int:
        """Embed what lacks vectors in the active space, as far as others do not; how many memories were completed.

        Raises EmbedderMismatch, EmbedderUnavailable, ConfigurationError.
        """
        if self._embedder is None:
            return 0
        filling = await self._entered()
        completed = 0
        async with self._healing:
            try:
                completed = await filling.fill(self._completed)
            except NoSpace:
                self.forget()
                raise
            finally:
                if completed or not self._completeness.whole:
                    self._completeness.changed()
        return completed

    def forget(self) -> None:
        """The space was dropped while it was used: the next use registers it again, and what is there gets its vectors.

        Which space is active stays as it is: whoever pruned this one swapped the embedder elsewhere.
        """
        if self._filling is not None:
            log.warning(
                "the space %s was pruned while this server makes and compares its vectors, which are made again now; "
                "restart it with the embedder of the active space",
                self._filling.space.id,
            )
        self._filling = None
        self._completeness.changed()
        self.pending.set()

    def load(self) -> None:
        """Begin to load the model and to enter its space, without waiting for it."""
        if self._embedder is not None:
            self._begun()

    def _begun(self) -> asyncio.Task[Filling]:
        if self._entering is None or self._entering.done():
            self._entering = asyncio.create_task(self._enter(), name="muniment-enter-space")
            self._entering.add_done_callback(self._note_entering)
        return self._entering

    async def _entered(self) -> Filling:
        if self._filling is not None:
            return self._filling
        if isinstance(self._failure, EmbedderMismatch):
            raise EmbedderMismatch(self._failure.message)
        return await asyncio.shield(self._begun())

    async def _enter(self) -> Filling:
        assert self._embedder is not None
        assert self._source is not None
        space = await spaces.register(self._storage, self._embedder)
        if not self._activated:
            await spaces.activate(self._storage, space, self._embedder.name)
            self._activated = True
        self._filling = Filling(self._storage, self._source, space)
        return self._filling

    def _note_entering(self, task: asyncio.Task[Filling]) -> None:
        """Keep why it failed, also where nobody waited for it: an attempt may last longer than anybody waits."""
        error = None if task.cancelled() else task.exception()
        self._failure = error if isinstance(error, MunimentError) else None
        if isinstance(error, EmbedderMismatch):
            self._mismatch.set()

    async def _embedded(
        self, source: VectorSource, space: Space, texts: Mapping[str, str], stored: frozenset[str]
    ) -> Passages:
        """All passages of a content, those that are not stored with their vectors."""
        made = await source.of_passages(space, {key: text for key, text in texts.items() if key not in stored})
        vectors = tuple(PassageVector(key, vector) for key, vector in made.items())
        return Passages(space.id, frozenset(texts), vectors, complete=True)

    def _check(self, failure: MunimentError | None) -> None:
        """Raises EmbedderUnavailable for an embedder that failed, where the background notices when it works again."""
        if self._looked_after and failure is not None and not isinstance(failure, EmbedderMismatch):
            raise EmbedderUnavailable(failure.message)

    async def _completed(self, memories: int) -> None:
        if memories and self._completeness.whole:
            self._completeness.changed()

    async def _reembedding(self) -> str | None:
        """That memories lack vectors, where they do; of a space that is not known nothing is said."""
        if self._filling is None:
            return None
        return await self._completeness.notice(self._filling.space.id, self._filling.aside)

    async def _without_meaning(self, reason: str) -> QueryVector:
        share = await self._reembedding()
        return QueryVector(degraded=f"{share}; {reason}" if share else reason)

    def _why_late(self) -> str:
        if self._failure is not None:
            return _unavailable(self._failure)
        assert self._embedder is not None
        return f"the embedder {'is busy' if self._embedder.ready else 'is still loading'}; {ANSWERED}"


def _unavailable(error: MunimentError) -> str:
    return f"{UNAVAILABLE}; {ANSWERED}: {error.message}"
