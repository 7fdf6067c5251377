"""ACC-10: a crowd of nearer rows that a caller cannot read, or did not ask for, takes nothing from its result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from muniment import access
from muniment.conformance.answers import RANKERS, found, ranker_scores
from muniment.conformance.loading import Row, apply_all, created, new_id
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Caller, World, same
from muniment.ports import Placement, Vector

RULES = Rules(STORAGE_AND_TRANSPORT)
CROWD = 5_000
MATCHES = 50
ASKED = 20
VARIANTS = 50
QUERIES = {"meaning": "glimmering dusk", "words": "zephyr quartz", "tags": "ledger vellum"}
"""A query that only the named ranker answers."""
FUSIONS = ("weighted", "rrf")


@RULES(
    "ACC-10",
    "Thousands of nearer rows, of others or outside of a filter, never starve a search: a caller with 50 readable "
    "matches gets its 20, in every ranker and in both fusions, and the same ones as without the others.",
)
async def not_starved(world: World) -> None:
    alice, mallory = world.caller("alice"), world.caller("mallory")
    places = [await _shared_project(caller) for caller in (alice, mallory)]
    await alice("memory.search", query="the first search makes the space known")
    rows = await _rows(world)
    await apply_all(world.storage, rows.matches(places[0], world))
    before = await _answers(alice)
    for (ranker, fusion), hits in before.items():
        same(f"how many hits {ranker} alone gives before the others came, by {fusion}", len(hits), ASKED)
    await apply_all(world.storage, rows.crowd(places[1], world))
    world.trail.add(f"mallory's project got {CROWD} nearer memories")
    after = await _answers(alice)
    for way, hits in before.items():
        same(f"the hits of {' by '.join(way)} beside {CROWD} nearer rows of another", after[way], hits)
    await _all_pages(alice)
    both = world.caller("bob", "both")
    narrowed = await _answers(both, project="acme/alice")
    for ranker, fusion in before:
        same(f"how many hits of {ranker} a filter leaves, by {fusion}", len(narrowed[ranker, fusion]), ASKED)
    await _are_nearer(both, {memory for hits in before.values() for memory in hits})


async def _shared_project(owner: Caller) -> Placement:
    key = f"acme/{owner.user}"
    project = (await owner("project.identify", project=key))["project"]["id"]
    await owner("project.share", project=key, group="both", access="ro")
    return access.project_placement(project)


async def _answers(caller: Caller, **narrow: Any) -> dict[tuple[str, str], list[str]]:
    """The hits of each ranker alone, by each fusion; Broken where another ranker had a part in them."""
    hits: dict[tuple[str, str], list[str]] = {}
    for ranker, query in QUERIES.items():
        for fusion in FUSIONS:
            page = await caller("memory.search", query=query, fusion=fusion, limit=ASKED, **narrow)
            hits[ranker, fusion] = found(page)
            rankers = {name for memory in found(page) for name in ranker_scores(page, memory)}
            same(f"the rankers that answer {query!r}", rankers or {ranker}, {ranker})
    return hits


async def _all_pages(alice: Caller) -> None:
    """Beyond the first page, too."""
    for query in (*QUERIES.values(), " ".join(QUERIES.values())):
        page = await alice("memory.search", query=query, limit=ASKED)
        hits = found(page)
        while page["cursor"] and len(hits) <= MATCHES:
            page = await alice("memory.search", query=query, limit=ASKED, cursor=page["cursor"])
            hits += found(page)
        same(f"how many different hits all pages of {query!r} have", (len(hits), len(set(hits))), (MATCHES, MATCHES))


async def _are_nearer(both: Caller, alices: set[str]) -> None:
    """Who reads both finds only the crowd, so it really is nearer in every ranker."""
    for ranker, query in QUERIES.items():
        hits = found(await both("memory.search", query=query, limit=ASKED))
        same(f"how many of the first hits by {ranker} are of the crowd", len(set(hits) - alices), ASKED)


@dataclass(frozen=True)
class _Rows:
    """What the memories of both are made of. ``near`` and ``far`` are vectors of falling nearness to the query."""

    space: str
    near: list[Vector]
    far: list[Vector]

    def matches(self, place: Placement, world: World) -> list[Any]:
        return [
            self._mutation(world, place, f"zephyr quartz {'filler ' * (5 + number)}", ("ledger",), self.far[number])
            for number in range(MATCHES)
        ]

    def crowd(self, place: Placement, world: World) -> list[Any]:
        return [
            self._mutation(
                world, place, f"zephyr quartz {number % VARIANTS}", ("ledger", "vellum"), self.near[number % VARIANTS]
            )
            for number in range(CROWD)
        ]

    def _mutation(self, world: World, place: Placement, content: str, tags: tuple[str, ...], vector: Vector) -> Any:
        row = Row(new_id(world.random), place, content, tags, {content: vector})
        return created(row, self.space, world.random)


async def _rows(world: World) -> _Rows:
    """Vectors near the query for meaning, a little turned away from the other two, so that those are not answered."""
    queries = np.stack([await world.embedder.embed_query(text) for text in QUERIES.values()]).astype(np.float64)
    nearest = np.linalg.pinv(queries) @ np.array([1.0 if ranker == "meaning" else -0.1 for ranker in RANKERS])
    aside = _orthogonal(queries, world)
    space = (await world.embedder.space()).id

    def turned(angle: float) -> Vector:
        vector = math.cos(angle) * nearest / np.linalg.norm(nearest) + math.sin(angle) * aside
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)

    near = [turned(0.001 * number) for number in range(VARIANTS)]
    far = [turned(0.3 + 0.01 * number) for number in range(MATCHES)]
    return _Rows(space, near, far)


def _orthogonal(queries: np.typing.NDArray[np.float64], world: World) -> np.typing.NDArray[np.float64]:
    """A direction that no query knows of."""
    direction = np.array([world.random.gauss(0, 1) for _ in range(queries.shape[1])])
    direction -= np.linalg.pinv(queries) @ (queries @ direction)
    return direction / np.linalg.norm(direction)
