"""The embedders that a check puts in the place of the configured one: one that fails, and ones that are another model.

Each wraps the embedder that the subject is used with, so that what it gives is of the judged embedder's making.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from muniment.conformance.seams import CountingEmbedder
from muniment.errors import EmbedderUnavailable
from muniment.ports import Embedder, Space, Vector, Vectors


class MoodyEmbedder(CountingEmbedder):
    """Embeds nothing while it is ``down``."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder)
        self.down = False

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The inner embedder's, while it is up."""
        self._check()
        return await super().embed_passages(texts)

    async def embed_query(self, text: str) -> Vector:
        """The inner embedder's, while it is up."""
        self._check()
        return await super().embed_query(text)

    def _check(self) -> None:
        if self.down:
            raise EmbedderUnavailable("The suite has taken the embedder down.")


class OtherWeights(CountingEmbedder):
    """Another model under the inner embedder's name and with its dimensions."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The inner embedder's, in another basis."""
        return np.ascontiguousarray((await super().embed_passages(texts))[:, ::-1])

    async def embed_query(self, text: str) -> Vector:
        """The inner embedder's, in another basis."""
        return np.ascontiguousarray((await super().embed_query(text))[::-1])


class Decoy(CountingEmbedder):
    """A model of another space, with the inner embedder's dimensions, whose every vector is the one that ``query`` has
    in the inner embedder's space: what mixes the two finds all memories to be nearest to that query."""

    def __init__(self, embedder: Embedder, query: str) -> None:
        super().__init__(embedder)
        self._query = query

    @property
    def name(self) -> str:
        """One of its own."""
        return f"decoy:{self.inner.name}"

    async def space(self) -> Space:
        """One of its own, of the inner embedder's shape."""
        space = await self.inner.space()
        return replace(space, id=f"suite:decoy:{space.id}", provider="suite")

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The same for each."""
        self.calls += 1
        self.passages.extend(texts)
        vector = await self.inner.embed_query(self._query)
        return np.tile(vector, (len(texts), 1)).astype(np.float32)

    async def embed_query(self, text: str) -> Vector:
        """The same for each."""
        self.calls += 1
        return await self.inner.embed_query(self._query)
