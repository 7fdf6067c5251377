"""The embedder is swapped there and back while clients read and write, and what embeds anew is killed on the way.

MUNIMENT_SWAP_MEMORIES says how many memories there are (400 unless it does), which swap from 384 to 1,536 dimensions.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random

import numpy as np
import pytest

from muniment.conformance.target import Stored
from muniment.engine.cutting import cut
from muniment.ports import SpaceStorage, Storage
from muniment.reference import HashEmbedder
from tests.swap.clients import Client, Servers, text
from tests.swap.grounds import Ground
from tests.test_serve import environment

MEMORIES = int(os.environ.get("MUNIMENT_SWAP_MEMORIES", "400"))
CLIENTS, LOADERS = 8, 8
NARROW, WIDE = "hash:384", "hash:1536"
SECONDS = 1_800
TOLERANCE = 1e-4


@pytest.mark.timeout(SECONDS)
async def test_there_and_back(ground: Ground) -> None:
    """No call fails, every memory is found by its word throughout, tables and columns stay as they are; killed twice
    with -9, embedding anew ends complete, with the right vectors, and the old ones are kept until they are pruned."""
    words: dict[str, str] = {}
    servers = Servers(ground.storage)
    await servers.restart(NARROW)
    await load(servers, words)
    layout, loaded = await ground.layout(), set(words.values())
    narrow, wide = await space_of(NARROW), await space_of(WIDE)
    kept = vectors(await ground.stored(), narrow, loaded)
    assert {memory for memory, _ in kept} == loaded

    stop = asyncio.Event()
    clients = [Client(servers, number, words) for number in range(CLIENTS)]
    running = [asyncio.create_task(client.run(stop)) for client in clients]
    storage = ground.storage()
    await storage.open()
    try:
        for part in (4, 2):
            async with reembedding(ground, WIDE) as process:
                await killed_at(process, storage, wide, MEMORIES // part)
        async with reembedding(ground, WIDE) as process:
            _, said = await process.communicate()
            assert process.returncode == 0, said.decode()
        assert vectors(await ground.stored(), narrow, loaded) == kept

        await servers.restart(WIDE)
        await whole(servers, storage, wide)
        await in_its_place(clients)
        await servers.restart(NARROW)
        await whole(servers, storage, narrow)
    finally:
        stop.set()
        ends = await asyncio.gather(*running, return_exceptions=True)
    assert [end for end in ends if end is not None] == []
    await whole(servers, storage, narrow)

    changed = set[str]().union(*(client.changed for client in clients))
    assert not changed & loaded
    stored = await ground.stored()
    assert vectors(stored, narrow, loaded) == kept
    assert {memory for memory, _ in vectors(stored, wide, loaded)} == loaded
    await are_right(servers, stored, words, narrow, NARROW)
    assert await storage.drop_space(wide)
    stored = await ground.stored()
    assert {passage.space for passage in stored.passages} == {narrow}
    assert vectors(stored, narrow, loaded) == kept
    assert await ground.layout() == layout
    await storage.close()
    await servers.stop()


async def load(servers: Servers, words: dict[str, str]) -> None:
    """Write the memories, several at a time."""
    numbers, random = iter(range(MEMORIES)), Random(1)

    async def loader() -> None:
        for number in numbers:
            word = f"loaded{number}"
            words[word] = (await servers.call("memory.write", content=text(word, random)))["id"]

    await asyncio.gather(*(loader() for _ in range(LOADERS)))


@asynccontextmanager
async def reembedding(ground: Ground, embedder: str) -> AsyncGenerator[Process]:
    """``muniment reembed --to``, begun; nothing is left of it."""
    command = ("-m", "muniment", "reembed", "--to", embedder, "--batch", "16", *ground.arguments)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, env=environment(), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def killed_at(process: Process, storage: SpaceStorage, space: str, complete: int) -> None:
    """Kill the process once so many memories are complete, and before all are."""
    while (await storage.space_progress(space)).complete < complete:
        assert process.returncode is None, (await process.communicate())[1].decode()
        await asyncio.sleep(0.001)
    process.kill()
    await process.wait()
    progress = await storage.space_progress(space)
    assert progress.complete < progress.memories, "it was done before it was killed"


async def whole(servers: Servers, storage: Storage, space: str) -> None:
    """Wait until no memory lacks its vectors, and a search says nothing of it any more."""

    async def complete() -> bool:
        progress = await storage.space_progress(space)
        return progress.complete >= progress.memories

    async def undegraded() -> bool:
        return not (await servers.call("memory.search", query="nothing like it", limit=1))["degraded"]

    await until(complete)
    await until(undegraded)


async def in_its_place(clients: list[Client]) -> None:
    """Let every client go on with the server that is there now."""
    before = [client.calls for client in clients]

    async def went_on() -> bool:
        return all(client.calls >= calls + 8 for client, calls in zip(clients, before, strict=True))

    await until(went_on)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it is true."""
    async with asyncio.timeout(SECONDS / 3):
        while True:
            if await true():
                return
            await asyncio.sleep(0.02)


async def space_of(embedder: str) -> str:
    """The id of an embedder's space."""
    return (await HashEmbedder.named(embedder).space()).id


def vectors(stored: Stored, space: str, memories: set[str]) -> dict[tuple[str, str], tuple[float, ...]]:
    """The vectors of these memories in a space, by memory and passage."""
    return {
        (one.memory_id, one.hash): one.vector
        for one in stored.passages
        if one.space == space and one.memory_id in memories
    }


async def are_right(servers: Servers, stored: Stored, words: Mapping[str, str], space: str, embedder: str) -> None:
    """Each memory has exactly the passages of its text, each with the vector that the embedder gives."""
    made = HashEmbedder.named(embedder)
    limit = (await made.space()).passage_tokens
    found = vectors(stored, space, set(words.values()))
    for memory in words.values():
        content = (await servers.call("memory.get", id=memory))["content"]
        texts = await cut(content, made, limit)
        assert texts.keys() <= {key for key in texts if (memory, key) in found}
        expected = await made.embed_passages(list(texts.values()))
        seen = np.array([found.pop((memory, key)) for key in texts], dtype=np.float32)
        assert np.abs(seen - expected).max() <= TOLERANCE
    assert found == {}
