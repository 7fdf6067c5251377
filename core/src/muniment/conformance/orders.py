"""A seeded estate of memories and queries that two storages must answer alike, and what alike means.

Owns the comparison of two fused orders: every score within ``TOLERANCE``, and places that differ only between
neighbours whose scores do not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from muniment import access, lexical, ranking
from muniment.conformance.loading import Row, apply_all, created, new_id, project, removed, shared
from muniment.conformance.texts import word
from muniment.conformance.world import holds, same
from muniment.engine import spaces
from muniment.models import RankerHit, Scope, Share
from muniment.ports import (
    Audience,
    Create,
    NewProject,
    Placement,
    Remove,
    SearchQuery,
    Selector,
    ShareChange,
    Space,
    Storage,
)
from muniment.ranking import POOL, RRF_K, Fusion, Ranked
from muniment.reference import HashEmbedder, ReferenceStorage

TOLERANCE = 1e-5
ALL = 100_000
"""A limit above any result here."""
TAGS = ("red", "green", "blue", "v1.2", "harbour", "Red")
RANKERS = ("meaning", "words", "tags")


@dataclass(frozen=True, slots=True)
class Asked:
    """One search: the query's text, what it is narrowed to, and the rest of it."""

    text: str
    selector: Selector
    fusion: Fusion
    min_score: float | None

    def query(self, embedder: HashEmbedder, space: Space) -> SearchQuery:
        """As the engine hands it to a storage."""
        return SearchQuery(
            terms=lexical.query_terms(self.text),
            tags=ranking.query_tags(self.text),
            vector=embedder.vector(self.text),
            space=space.id,
            fusion=self.fusion,
            min_score=self.min_score,
            offset=0,
            limit=ALL,
        )


@dataclass(frozen=True)
class Case:
    """What is stored, in this order, and what is asked by ``audience``."""

    projects: Sequence[NewProject]
    shares: Sequence[ShareChange]
    creates: Sequence[Create]
    removes: Sequence[Remove]
    asked: Sequence[Asked]
    audience: Audience


def case(random: Random, space: Space, *, memories: int, queries: int) -> Case:
    """alice's own scope, her project, two of bob's (one of them shared with her) and his own scope."""
    owned, granted, closed = (
        project(owner, f"orders/{name}", random)
        for owner, name in (("alice", "owned"), ("bob", "granted"), ("bob", "closed"))
    )
    places = [
        access.own_placement("alice"),
        access.project_placement(owned.id),
        access.project_placement(granted.id),
        access.project_placement(closed.id),
        access.own_placement("bob"),
    ]
    vocabulary = [*sorted({f"{word(random)}{number % 7 or ''}" for number in range(80)}), "harbour", "the", "to"]
    rows = [_row(random, places, vocabulary) for _ in range(memories)]
    twins = [replace(row, id=new_id(random)) for row in rows[: memories // 10]]
    everything = [*rows[: memories - len(twins)], *twins]
    return Case(
        projects=(owned, granted, closed),
        shares=(shared(granted, "team", Share.RO, random),),
        creates=[created(row, space.id, random) for row in everything],
        removes=[removed(row, random) for row in everything if random.random() < 0.05],
        asked=[_asked(random, places[:3], vocabulary) for _ in range(queries)],
        audience=Audience("alice", frozenset({"team"})),
    )


def _row(random: Random, places: Sequence[Placement], vocabulary: Sequence[str]) -> Row:
    """One to three passages of words, the first of the vocabulary much oftener than the last."""
    embedder = HashEmbedder()
    parts = [
        " ".join(vocabulary[int(len(vocabulary) * random.random() ** 2)] for _ in range(random.randint(1, 12)))
        for _ in range(random.choice((1, 1, 1, 2, 3)))
    ]
    place = random.choices(places, weights=(4, 3, 2, 1, 1))[0]
    tags = tuple(random.sample(TAGS, random.choice((0, 0, 1, 2, 3))))
    return Row(new_id(random), place, ". ".join(parts), tags, {part: embedder.vector(part) for part in parts})


def _asked(random: Random, places: Sequence[Placement], vocabulary: Sequence[str]) -> Asked:
    words = [vocabulary[int(len(vocabulary) * random.random() ** 2)] for _ in range(random.randint(1, 5))]
    words += [random.choice(TAGS) for _ in range(random.choice((0, 0, 1, 2)))]
    words += ["unheard-of"] * random.choice((0, 0, 0, 1))
    narrowed = random.choice((None, None, None, random.choice(places)))
    return Asked(
        text=" ".join(words),
        selector=Selector(
            scope_key=narrowed.scope_key if narrowed else None,
            scope=random.choice((None, None, None, Scope.USER, Scope.PROJECT)) if narrowed is None else None,
            tags=tuple(random.sample(TAGS, 1)) if random.random() < 0.15 else (),
        ),
        fusion=random.choice(tuple(Fusion)),
        min_score=random.choice((None, None, None, 0.02, 0.3)),
    )


async def load(storage: Storage, made: Case) -> None:
    """Store a case, its space registered."""
    await spaces.register(storage, HashEmbedder())
    for new in made.projects:
        await storage.register_project(new)
    for change in made.shares:
        await storage.change_share(change)
    await apply_all(storage, made.creates)
    await apply_all(storage, made.removes)


async def answer(storage: Storage, made: Case, asked: Asked, space: Space) -> list[Ranked]:
    """The whole fused order of a search."""
    query = asked.query(HashEmbedder(), space)
    return [one.ranked for one in await storage.search(made.audience, asked.selector, query)]


async def expected(random: Random, space: Space, *, memories: int, queries: int) -> tuple[Case, Sequence[list[Ranked]]]:
    """A case, and the order that each search of it has on the reference storage, without its ``min_score``."""
    made = case(random, space, memories=memories, queries=queries)
    reference = ReferenceStorage()
    await load(reference, made)
    return made, [await answer(reference, made, replace(asked, min_score=None), space) for asked in made.asked]


def alike(what: str, seen: Sequence[Ranked], whole: Sequence[Ranked], asked: Asked) -> None:
    """Broken unless ``seen`` is the order ``whole``, which is the expected one without a ``min_score``."""
    bound = asked.min_score if asked.min_score is not None else float("-inf")
    expected = {one.id: one for one in whole}
    seen_ids = {one.id for one in seen}
    same(f"how often each memory is in {what}", len(seen), len(seen_ids))
    surely = {one.id for one in whole if one.score >= bound + TOLERANCE}
    maybe = {one.id for one in whole if one.score >= bound - TOLERANCE}
    same(f"memories that are missing in {what}", sorted(surely - seen_ids), [])
    same(f"memories that do not belong in {what}", sorted(seen_ids - maybe), [])
    places = {ranker: _ordered(whole, ranker) for ranker in RANKERS}
    for one in seen:
        for ranker in RANKERS:
            _same_part(f"{ranker} in {what}", getattr(one, ranker), getattr(expected[one.id], ranker), places[ranker])
        wanted = reciprocal(one) if asked.fusion is Fusion.rrf else expected[one.id].score
        holds(abs(one.score - wanted) <= TOLERANCE, f"a fused score in {what}", expected=wanted, seen=one.score)
    keys = [(-one.score, one.id) for one in seen]
    same(f"whether {what} is in the order of score, then id", keys == sorted(keys), True)


def reciprocal(one: Ranked) -> float:
    """Reciprocal rank fusion with k = 60 over the rankers that have the memory among their first."""
    parts: list[RankerHit | None] = [one.meaning, one.words, one.tags]
    return sum(1.0 / (RRF_K + part.rank) for part in parts if part and part.rank <= POOL)


def _ordered(whole: Sequence[Ranked], ranker: str) -> list[float]:
    """A ranker's scores, lowest first."""
    parts: list[RankerHit | None] = [getattr(one, ranker) for one in whole]
    return sorted(part.score for part in parts if part)


def _same_part(what: str, seen: RankerHit | None, expected: RankerHit | None, scores: Sequence[float]) -> None:
    near_nothing = max(part.score if part else 0.0 for part in (seen, expected)) <= TOLERANCE
    if near_nothing:
        return
    same(f"whether there is a part by {what}", seen is not None, expected is not None)
    if seen is None or expected is None:
        return
    holds(abs(seen.score - expected.score) <= TOLERANCE, f"a score by {what}", expected=expected.score, seen=seen.score)
    first = 1 + len(scores) - bisect_right(scores, expected.score + TOLERANCE)
    last = len(scores) - bisect_left(scores, expected.score - TOLERANCE)
    fits = min(first, POOL + 1) <= seen.rank <= min(last, POOL + 1)
    holds(fits, f"a rank by {what}", expected=f"{expected.rank}, or its neighbour's of the same score", seen=seen.rank)
