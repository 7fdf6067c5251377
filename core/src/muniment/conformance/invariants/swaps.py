"""VEC-05 and VEC-06: what belongs to a space stays in it, and another embedder needs no other tables."""

from __future__ import annotations

import numpy as np

from muniment.conformance.answers import found, ranker_scores
from muniment.conformance.filled import Contents, are_embedded, filled, passages_in, written
from muniment.conformance.invariant import Feature
from muniment.conformance.invariants.vectors import say_something
from muniment.conformance.other_embedders import Decoy, OtherWeights
from muniment.conformance.rules import STORAGE_AND_EMBEDDER, Rules
from muniment.conformance.seams import CountingEmbedder
from muniment.conformance.world import Caller, World, holds, same
from muniment.engine import spaces
from muniment.errors import ConfigurationError
from muniment.limits import DIMENSIONS_MAX, DIMENSIONS_MIN
from muniment.reference import HashEmbedder

RULES = Rules(STORAGE_AND_EMBEDDER, since="1.2")
QUERY = "Who keeps the keys of the north tower?"
TOLERANCE = 1e-3
"""Between two scores by meaning; that of the query's own vector is farther from any text's than that."""
SIZES = (DIMENSIONS_MIN, DIMENSIONS_MAX, 100)
"""Dimensions that a swap goes through."""


@RULES(
    "VEC-05",
    "Vectors of two spaces are never compared: a search by meaning scores a memory by its vectors in the query's space "
    "alone. An embedder that has the name of a registered space and gives other vectors is refused with "
    "embedder_mismatch, and what is stored stays as it was.",
)
async def never_compared(world: World) -> None:
    alice = world.caller("alice")
    contents = await written(world, alice, (600, 1_500))
    own = await world.embedder.space()
    say_something(await passages_in(world, own.id))
    decoy = Decoy(world.embedder.inner, QUERY)
    swapped = await world.with_embedder(decoy, alice, patient=True)
    same("how many memories a swap embeds", await filled(world, decoy), len(contents))
    for embedder in (world.embedder, decoy):
        await are_embedded(world, embedder, contents)
    only_own = await written(world, alice, (500,))
    for memory in contents:
        await _scored_by(world, alice, world.embedder, memory)
        await _scored_by(world, swapped, decoy, memory)
    (memory,) = only_own
    same("the passages of a memory that was not swapped", len(await _vectors(world, decoy, memory)), 0)
    await _scored_by(world, alice, world.embedder, memory)
    same("whether it has a score in the other space", "meaning" in await _scores(swapped, memory), False)
    await _other_weights_are_refused(world, alice)


async def _scored_by(world: World, caller: Caller, embedder: CountingEmbedder, memory: str) -> None:
    """The score by meaning is the best cosine of the memory's vectors in the embedder's space."""
    query = (await embedder.embed_query(QUERY)).astype(np.float64)
    vectors = (await _vectors(world, embedder, memory)).astype(np.float64)
    cosines = vectors @ query / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(query))
    expected = max(float(cosines.max()), 0.0)
    seen = (await _scores(caller, memory)).get("meaning", 0.0)
    holds(abs(seen - expected) <= TOLERANCE, "the score by meaning", expected=f"{expected:.5f}", seen=f"{seen:.5f}")


async def _vectors(world: World, embedder: CountingEmbedder, memory: str) -> np.ndarray[tuple[int, int]]:
    space = (await embedder.space()).id
    return np.array([one.vector for one in await passages_in(world, space) if one.memory_id == memory], np.float32)


async def _scores(caller: Caller, memory: str) -> dict[str, float]:
    page = await caller("memory.search", query=QUERY, limit=50, min_score=None)
    return ranker_scores(page, memory)


async def _other_weights_are_refused(world: World, alice: Caller) -> None:
    broken = await world.with_embedder(OtherWeights(world.embedder.inner), alice, patient=True)
    async with world.unchanged("an embedder with other weights was refused"):
        for _ in range(2):
            await broken.refused("embedder_mismatch", "memory.write", content="by other weights")
            await broken.refused("embedder_mismatch", "memory.search", query=QUERY)
    right = await world.with_embedder(world.embedder, alice, patient=True)
    receipt = await right("memory.write", content="by the right ones")
    same("the embedding state under the right embedder", receipt["embedding"], "ready")
    holds(len(await _vectors(world, world.embedder, receipt["id"])) > 0, "its passages", expected="some", seen=0)


@RULES(
    "VEC-06",
    f"Swapping the embedder changes no table, column or constraint, for any dimensions from {DIMENSIONS_MIN} to "
    f"{DIMENSIONS_MAX:,}: the vectors of each space are there, and text is found meanwhile. An embedder of other "
    "dimensions is refused, and nothing is registered.",
    features=frozenset({Feature.LAYOUT}),
)
async def same_tables(world: World) -> None:
    alice = world.caller("alice")
    contents = await written(world, alice, (300, 900))
    say_something(await passages_in(world, (await world.embedder.space()).id))
    before = await world.layout()
    holds(bool(before), "the layout", expected="tables and columns", seen="nothing")
    embedders: list[CountingEmbedder] = [world.embedder]
    for dimensions in SIZES:
        embedder = CountingEmbedder(HashEmbedder(dimensions))
        embedders.append(embedder)
        swapped = await world.with_embedder(embedder, alice, patient=True)
        await _words_find_all(swapped, contents)
        swapped_to = f"a swap to {dimensions} dimensions"
        same(f"how many memories {swapped_to} embeds", await filled(world, embedder), len(contents))
        same(f"the layout after {swapped_to}", await world.layout(), before)
        for one in embedders:
            await are_embedded(world, one, contents)
        page = await swapped("memory.search", query=next(iter(contents.values()))[:200])
        holds("meaning" in ranker_scores(page, next(iter(contents))), "a hit", expected="a score by meaning", seen=page)
    await _too_few_or_many(world, alice)


async def _words_find_all(caller: Caller, contents: Contents) -> None:
    for memory, content in contents.items():
        page = await caller("memory.search", query=" ".join(content.split()[2:6]))
        same("whether a memory is found by its words during a swap", memory in found(page), True)


async def _too_few_or_many(world: World, alice: Caller) -> None:
    registered = [one.space.id for one in await world.storage.list_spaces()]
    for dimensions in (DIMENSIONS_MIN - 1, DIMENSIONS_MAX + 1):
        embedder = CountingEmbedder(HashEmbedder(dimensions))
        async with world.unchanged(f"an embedder of {dimensions} dimensions was refused"):
            try:
                await spaces.register(world.storage, embedder)
            except ConfigurationError:
                continue
        holds(False, f"an embedder of {dimensions} dimensions", expected="a refusal", seen="a space")
    same("the registered spaces", [one.space.id for one in await world.storage.list_spaces()], registered)
