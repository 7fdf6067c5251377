"""The vectors of passages and queries: an embedder's, checked, and from memory what it embedded lately.

Owns why the latest use of the embedder failed, if it did. What is done then is its caller's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from muniment.engine.plugged import PluggedEmbedder
from muniment.engine.spaces import PROBES, check_vectors
from muniment.errors import ConfigurationError, EmbedderUnavailable, MunimentError
from muniment.ports import Embedder, Space, Vector, Vectors

Answer = TypeVar("Answer")

CACHE_BYTES = 32_000_000
"""What is kept in memory of vectors: about 18,000 of 384 dimensions."""
_OVERHEAD = 250
"""Bytes of one kept vector beside its numbers."""


class VectorCache:
    """The vectors that were used last, by space and passage hash, of at most ``bytes_max`` bytes."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, space: str, key: str) -> Vector | None:
        """The vector of a passage, if it is kept."""
        vector = self._kept.get((space, key))
        if vector is not None:
            self._kept.move_to_end((space, key))
        return vector

    def put(self, space: str, key: str, vector: Vector) -> None:
        """Keep a vector, and let go of those that were not used for longest."""
        if (space, key) in self._kept:
            return
        self._kept[space, key] = vector
        self._bytes += vector.nbytes + _OVERHEAD
        while self._bytes > self._bytes_max:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= gone.nbytes + _OVERHEAD


class VectorSource:
    """What an embedder makes of texts. ``recovered`` is called when it works again after a use that failed."""

    def __init__(
        self, embedder: Embedder, cache: VectorCache | None = None, *, recovered: Callable[[], None] = lambda: None
    ) -> None:
        self.embedder = PluggedEmbedder(embedder)
        self._cache = VectorCache() if cache is None else cache
        self._recovered = recovered
        self.failure: MunimentError | None = None

    @property
    def failing(self) -> bool:
        """Whether its latest use failed."""
        return self.failure is not None

    async def of_passages(self, space: Space, texts: Mapping[str, str]) -> dict[str, Vector]:
        """The vectors of ``texts``, both by passage hash; one call of the embedder for all that are not in memory.

        Raises EmbedderUnavailable, ConfigurationError, and InvalidInput for a text that the embedder does not take.
        """
        found = {key: vector for key in texts if (vector := self._cache.get(space.id, key)) is not None}
        missing = [key for key in texts if key not in found]
        if missing:
            made = await self._used(self._embedded(space, [texts[key] for key in missing]))
            for key, row in zip(missing, made, strict=True):
                # A row of its own: one that is kept would keep the whole batch.
                found[key] = row.copy()
                self._cache.put(space.id, key, found[key])
        return found

    async def of_query(self, space: Space, text: str) -> Vector:
        """The vector of a query. Raises EmbedderUnavailable, ConfigurationError, InvalidInput."""

        async def made() -> Vector:
            return check_vectors([await self.embedder.embed_query(text)], 1, space)[0]

        return await self._used(made())

    async def check(self, space: Space) -> None:
        """Raises EmbedderUnavailable, ConfigurationError where the embedder cannot embed even a plain sentence now."""
        await self._used(self._embedded(space, PROBES[:1]))

    async def _embedded(self, space: Space, texts: Sequence[str]) -> Vectors:
        return check_vectors(await self.embedder.embed_passages(texts), len(texts), space)

    async def _used(self, use: Awaitable[Answer]) -> Answer:
        """What a use of the embedder gives; whether it failed is kept. One that was not waited for says nothing, and
        neither does one whose text was refused."""
        try:
            answer = await use
        except (EmbedderUnavailable, ConfigurationError) as error:
            self.failure = error
            raise
        if self.failing:
            self.failure = None
            self._recovered()
        return answer
