"""RANK-01: the same data, ids and query give the order that the reference storage gives."""

from __future__ import annotations

from muniment.conformance import orders
from muniment.conformance.answers import found
from muniment.conformance.orders import alike, answer, load
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.world import Caller, World, holds, same
from muniment.ranking import Fusion

RULES = Rules(STORAGE)
MEMORIES = 300
QUERIES = 24


@RULES(
    "RANK-01",
    "The same data, ids and query give the same order, scores and ranks as the reference storage (neighbours whose "
    "scores differ by less than 1e-5 may swap), and pages give each hit once.",
)
async def same_orders(world: World) -> None:
    alice = world.caller("alice", "team")
    await alice("memory.search", query="the first search makes the space known")
    space = await world.embedder.space()
    made, expected = await orders.expected(world.random, space, memories=MEMORIES, queries=QUERIES)
    await load(world.storage, made)
    world.trail.add(f"{MEMORIES} memories in five scopes were stored here and in the reference storage")
    sizes: list[int] = []
    for number, (asked, whole) in enumerate(zip(made.asked, expected, strict=True)):
        world.trail.add(f"search {number}: {asked}")
        seen = await answer(world.storage, made, asked, space)
        alike(f"the result of search {number}", seen, whole, asked)
        sizes.append(len(seen))
    holds(max(sizes) > 100, "the largest result", expected="more than 100 hits", seen=max(sizes))
    for fusion in Fusion:
        await _pages(alice, made.asked[0].text, fusion)


async def _pages(alice: Caller, query: str, fusion: str) -> None:
    """Small pages, one after the other, are the large ones, whatever their size."""
    by_size = [await _all(alice, query, fusion, limit) for limit in (50, 41)]
    same(f"how often each hit of {query!r} is on the pages", len(by_size[0]), len(set(by_size[0])))
    same(f"the hits of {query!r} on pages of 41", by_size[1], by_size[0])


async def _all(alice: Caller, query: str, fusion: str, limit: int) -> list[str]:
    hits: list[str] = []
    cursor: str | None = None
    while len(hits) <= MEMORIES:
        page = await alice("memory.search", query=query, fusion=fusion, limit=limit, cursor=cursor)
        hits += found(page)
        cursor = page["cursor"]
        if cursor is None:
            return hits
        same(f"the size of a page before the last of {query!r}", len(page["items"]), limit)
    same(f"whether the pages of {query!r} end", len(hits) <= MEMORIES, True)
    return hits
