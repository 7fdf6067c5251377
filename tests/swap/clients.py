"""Clients that read and write while the embedder is swapped, and the server that is started again under them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.ports import Storage
from muniment.reference import HashEmbedder

Answer = dict[str, Any]
PAUSE = 0.1
"""Seconds between a client's turns: as people and agents do, it leaves the server time for others."""
OWNER = CallContext(principal=Principal(user="owner"))
TOPICS = ["harbour", "orchard", "railway", "glacier", "lantern", "compass", "meadow", "furnace", "turbine", "archive"]


def text(word: str, random: Random) -> str:
    """A memory that one word finds, and no other memory's does."""
    return f"{word} is about the {' '.join(random.choices(TOPICS, k=30))}."


class Servers:
    """The engine that serves; ``restart`` puts another one in its place while calls go on."""

    def __init__(self, storage: Callable[[], Storage]) -> None:
        self._storage = storage
        self._engine: Engine | None = None
        self._under_way: dict[Engine, int] = {}
        self._quiet = asyncio.Condition()

    @property
    def engine(self) -> Engine:
        """The one that answers now."""
        assert self._engine is not None
        return self._engine

    async def restart(self, embedder: str) -> None:
        """Serve with another embedder: new calls go to the new engine, and the old one answers what it has begun."""
        engine = Engine(self._storage(), HashEmbedder.named(embedder))
        await engine.open()
        old, self._engine = self._engine, engine
        if old is not None:
            await self._close(old)

    async def stop(self) -> None:
        """Serve no longer."""
        if self._engine is not None:
            await self._close(self._engine)

    async def call(self, operation: str, **sent: Any) -> Answer:
        """One call of one client."""
        engine = self.engine
        self._under_way[engine] = self._under_way.get(engine, 0) + 1
        try:
            return (await engine.call(operation, sent, OWNER)).model_dump(mode="json")
        finally:
            async with self._quiet:
                self._under_way[engine] -= 1
                self._quiet.notify_all()

    async def _close(self, engine: Engine) -> None:
        async with self._quiet:
            await self._quiet.wait_for(lambda: not self._under_way.get(engine))
        await engine.close()


class Client:
    """Writes, patches and searches by words until it is told to stop; a memory that its word does not find is an
    AssertionError."""

    def __init__(self, servers: Servers, number: int, words: dict[str, str]) -> None:
        self._servers = servers
        self._number = number
        self._random = Random(number)
        self._words = words
        """The memory's id by the word that finds it, of what was there when the client began and of its own."""
        self.changed = set[str]()
        """The ids of the memories that it wrote or patched."""
        self.degraded = set[str]()
        self.calls = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop``."""
        turn = 0
        while not stop.is_set():
            turn += 1
            word = f"client{self._number}turn{turn}"
            written = await self._servers.call("memory.write", content=text(word, self._random))
            self._words[word] = written["id"]
            self.changed.add(written["id"])
            if turn % 3 == 0:
                await self._servers.call(
                    "memory.patch", id=written["id"], old_string="is about", new_string=f"patched{turn} is not about"
                )
            for sought in (word, self._random.choice(list(self._words))):
                await self._find(sought)
            self.calls += 4
            await asyncio.sleep(PAUSE)

    async def _find(self, word: str) -> None:
        page = await self._servers.call("memory.search", query=word, limit=5)
        hits = {hit["memory"]["id"]: hit for hit in page["items"]}
        assert self._words[word] in hits, f"{word} did not find its memory: {page['degraded']}"
        assert hits[self._words[word]]["words"]["rank"] == 1
        if page["degraded"]:
            self.degraded.add(page["degraded"])
