"""A process that fills a space and is killed at a certain step: it goes no further, and tidies nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from muniment.conformance.seams import CountingEmbedder
from muniment.conformance.world import World
from muniment.engine import spaces
from muniment.engine.filling import Filling
from muniment.engine.vectors import VectorCache, VectorSource
from muniment.ports import Storage, Vectors

BATCH = 2
"""Memories that it takes at once."""


async def fills(world: World, embedder: CountingEmbedder, *, until: int) -> bool:
    """Whether a process fills the space to the end before it comes to its ``until``-th step, at which it is killed."""
    life = _Life(until)
    space = await spaces.register(world.storage, embedder)
    filling = Filling(
        cast("Storage", _Storage(world.storage, life)),
        VectorSource(_Embedder(embedder, life), VectorCache(0)),
        space,
        batch=BATCH,
        lease=timedelta(seconds=world.short_lease),
    )
    filled = asyncio.ensure_future(filling.fill())
    killed = asyncio.ensure_future(life.ended.wait())
    await asyncio.wait({filled, killed}, return_when=asyncio.FIRST_COMPLETED)
    for one in (filled, killed):
        one.cancel()
    await asyncio.wait({filled, killed})
    if life.ended.is_set():
        world.trail.add(f"the process that fills the space is killed at its step {until}")
        return False
    await filled
    return True


class _Life:
    """Ends at a certain step: whoever takes it goes no further."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self.ended = asyncio.Event()

    async def step(self) -> None:
        """One step nearer to the end."""
        self._left -= 1
        if self._left <= 0:
            self.ended.set()
            await asyncio.Event().wait()


class _Storage:
    """A storage as that process uses it: a step before and after each call."""

    def __init__(self, storage: Storage, life: _Life) -> None:
        self._storage = storage
        self._life = life

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage, name)
        if name not in ("lease_unembedded", "store_passages"):
            return method

        async def called(*positional: Any, **named: Any) -> Any:
            await self._life.step()
            answer = await method(*positional, **named)
            await self._life.step()
            return answer

        return called


class _Embedder(CountingEmbedder):
    """An embedder as that process uses it: a step before and after each batch."""

    def __init__(self, embedder: CountingEmbedder, life: _Life) -> None:
        super().__init__(embedder)
        self._life = life

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The inner embedder's, if it comes to that."""
        await self._life.step()
        made = await super().embed_passages(texts)
        await self._life.step()
        return made
