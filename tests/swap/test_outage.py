"""A provider that goes down in the middle of a burst of writes: every write is acknowledged, and all are made good.

MUNIMENT_OUTAGE_SECONDS says for how long it is down (4 unless it does).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from random import Random

import numpy as np
import pytest

from muniment.engine import Engine
from muniment.engine.cutting import cut
from muniment.reference import HashEmbedder
from muniment_embed_openai.conformance import Provider
from muniment_embed_openai.loopback import Loopback
from muniment_embed_openai.loopback_api import KEY, MODEL, refuses
from muniment_embed_openai.options import KEY_VARIABLE
from tests.swap.clients import OWNER, text
from tests.swap.grounds import Ground

DOWN = float(os.environ.get("MUNIMENT_OUTAGE_SECONDS", "4"))
WRITES, WRITERS = 500, 8
HEALED_WITHIN = 120.0
TOLERANCE = 1e-5


@pytest.fixture
def provider() -> Generator[Loopback]:
    """The API on loopback."""
    server = Loopback()
    server.start()
    yield server
    server.stop()


@pytest.mark.timeout(600)
async def test_a_burst_while_the_provider_is_down(ground: Ground, provider: Loopback) -> None:
    """It is down for the middle three fifths of 500 writes, a third of which are edited at once. None fails, none waits
    for it, and in the end each memory has the vectors of its present text and no others."""
    embedder = Provider(MODEL, {KEY_VARIABLE: KEY}, provider.base_url).embedder(max_retries=0, timeout=2.0)
    storage = ground.storage()
    contents: dict[str, str] = {}
    states: list[str] = []
    turns, random, now = iter(range(WRITES)), Random(5), asyncio.get_running_loop().time
    pause = DOWN / (WRITES * 3 // 5) * WRITERS / 2
    up: list[float] = []

    async def call(operation: str, **sent: object) -> dict[str, object]:
        return (await engine.call(operation, sent, OWNER)).model_dump(mode="json")

    async def writer() -> None:
        for turn in turns:
            if turn == WRITES // 5:
                provider.api.always(refuses(503))
                up.append(now() + DOWN)
            if turn == WRITES * 4 // 5:
                await asyncio.sleep(max(0.0, up[0] - now()))
                provider.api.always(None)
            content = text(f"burst{turn}", random)
            receipt = await call("memory.write", content=content)
            if turn % 3 == 0:
                receipt = await call("memory.patch", id=receipt["id"], old_string="is about", new_string="told of")
                content = content.replace("is about", "told of")
            contents[str(receipt["id"])] = content
            states.append(str(receipt["embedding"]))
            await asyncio.sleep(pause)

    async def healed() -> None:
        while True:
            progress = await storage.space_progress(space.id)
            if progress.complete == progress.memories:
                return
            await asyncio.sleep(0.1)

    async with Engine(storage, embedder) as engine:
        await engine.embeddings.space()
        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        assert len(contents) == WRITES
        assert states.count("pending") >= WRITES // 2
        space = await engine.embeddings.space()
        async with asyncio.timeout(HEALED_WITHIN):
            await healed()
        progress = await storage.space_progress(space.id)
        page = await call("memory.search", query="burst250", limit=1)
        assert page["degraded"] is None
        stored = [one for one in (await ground.stored()).passages if one.space == space.id]

    assert (progress.complete, progress.memories) == (WRITES, WRITES)
    right = HashEmbedder(space.dimensions)
    for memory, content in contents.items():
        texts = await cut(content, embedder, space.passage_tokens)
        mine = {one.hash: one.vector for one in stored if one.memory_id == memory}
        assert mine.keys() == texts.keys()
        for key, vector in mine.items():
            assert np.abs(np.asarray(vector) - right.vector(texts[key])).max() < TOLERANCE
