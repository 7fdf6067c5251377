"""Filling spaces, and looking at what is filled: through the probe, against what the embedder itself gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

import numpy as np

from muniment.conformance.seams import CountingEmbedder
from muniment.conformance.target import StoredPassage
from muniment.conformance.texts import document
from muniment.conformance.world import Caller, World, holds, same
from muniment.engine import spaces
from muniment.engine.cutting import cut
from muniment.engine.filling import Filling
from muniment.engine.vectors import VectorCache, VectorSource
from muniment.ports import Embedder, Storage

TOLERANCE = 1e-4
"""Between a stored vector and the embedder's; float32, and batches of other sizes, differ by less."""

Contents = Mapping[str, str]
"""The contents of memories by id."""


async def filling_of(world: World, embedder: Embedder, storage: Storage | None = None, *, batch: int = 2) -> Filling:
    """What fills an embedder's space, registered, over the subject's storage unless it is over another."""
    over = storage or world.storage
    space = await spaces.register(over, embedder)
    lease = timedelta(seconds=world.short_lease)
    return Filling(over, VectorSource(embedder, VectorCache(0)), space, batch=batch, lease=lease)


async def filled(world: World, embedder: Embedder) -> int:
    """Fill an embedder's space; how many memories were completed."""
    return await (await filling_of(world, embedder)).fill()


async def written(world: World, caller: Caller, lengths: Iterable[int]) -> dict[str, str]:
    """New memories of about these lengths, whose words are in no other."""
    contents = [document(world.random, length).strip() for length in lengths]
    return {(await caller("memory.write", content=content))["id"]: content for content in contents}


async def passages_in(world: World, space: str) -> list[StoredPassage]:
    """What is stored in a space."""
    return [one for one in (await world.probe()).passages if one.space == space]


async def are_embedded(world: World, embedder: CountingEmbedder, contents: Contents) -> None:
    """Broken unless the space holds exactly the passages of these contents, with the vectors that they have."""
    space = await embedder.space()
    stored: dict[str, dict[str, StoredPassage]] = {memory: {} for memory in contents}
    for one in await passages_in(world, space.id):
        holds(one.memory_id in stored, "a stored passage", expected=f"one of {list(contents)}", seen=one.memory_id)
        same("passages that are stored twice", one.hash in stored[one.memory_id], False)
        stored[one.memory_id][one.hash] = one
    for memory, content in contents.items():
        texts = await cut(content, embedder.inner, space.passage_tokens)
        same(f"the passages of a memory in {space.id}", sorted(stored[memory]), sorted(texts))
        await _vectors_are_right(embedder, texts, stored[memory])


async def _vectors_are_right(
    embedder: CountingEmbedder, texts: Mapping[str, str], stored: Mapping[str, StoredPassage]
) -> None:
    if not texts:
        return
    made = await type(embedder).embed_passages(embedder, list(texts.values()))
    seen = np.array([stored[key].vector for key in texts], dtype=np.float32)
    same("the shape of the stored vectors", seen.shape, made.shape)
    off = float(np.abs(seen - made).max())
    holds(off <= TOLERANCE, "the stored vectors against the embedder's", expected=f"within {TOLERANCE}", seen=off)
    shortest = float(np.linalg.norm(seen, axis=1).min())
    holds(shortest > 0, "the length of the shortest stored vector", expected="more than 0", seen=shortest)
