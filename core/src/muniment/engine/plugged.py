"""An embedder of whatever author: what it raises that is no error of Muniment's is logged, and leaves as one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from muniment.errors import EmbedderUnavailable, MunimentError
from muniment.ports import Embedder, Space, Vector, Vectors

T = TypeVar("T")

log = logging.getLogger(__name__)


class PluggedEmbedder:
    """``muniment.ports.Embedder`` over another one. A plugin is to translate what it meets; where it does not, a write
    is pending all the same and a search answers by words."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def name(self) -> str:
        """Its own."""
        return self._embedder.name

    @property
    def ready(self) -> bool:
        """Whether it answers without loading anything first."""
        return self._embedder.ready

    async def open(self) -> None:
        """Open it; what it raises here ends the start, and stays as it is."""
        await self._embedder.open()

    async def close(self) -> None:
        """Close it."""
        await self._embedder.close()

    async def space(self) -> Space:
        """Its space. Raises EmbedderUnavailable, and what else the port allows, as the others do."""
        return await self._told(self._embedder.space())

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The size of each text."""
        return await self._told(self._embedder.count_tokens(texts))

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """A vector of each text."""
        return await self._told(self._embedder.embed_passages(texts))

    async def embed_query(self, text: str) -> Vector:
        """The vector of a query."""
        return await self._told(self._embedder.embed_query(text))

    async def _told(self, answer: Awaitable[T]) -> T:
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        try:
            return await answer
        except (MunimentError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # also what is no Exception, such as the panic of a library in Rust
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling() > before:
                raise
            log.exception("the embedder %s raised what no embedder may", self.name)
            raise EmbedderUnavailable(
                f"The embedder {self.name} failed with {type(error).__name__}, which the server's log shows whole; "
                "report it to the plugin's author."
            ) from error
