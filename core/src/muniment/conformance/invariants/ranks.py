"""RANK-02: a hit explains itself, and its score is the published formula of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from muniment import lexical, ranking
from muniment.conformance.answers import RANKERS
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.texts import document, word
from muniment.conformance.world import Caller, World, holds, same

RULES = Rules(STORAGE)
TOLERANCE = 1e-5
K = 60
MEMORIES = 30
TAGS = ("alpha", "beta", "gamma")

Hits = list[dict[str, Any]]


@RULES(
    "RANK-02",
    "Each hit names its rank, from 1, and its score in each ranker; reciprocal rank fusion with k = 60 and the "
    "weighted fusion give the published formulas; min_score keeps what reaches it.",
)
async def explained(world: World) -> None:
    alice = world.caller("alice")
    vocabulary = [word(world.random) for _ in range(12)]
    contents = await _write(world, alice, vocabulary)
    wordless = await world.without_embedder(alice)
    for number in range(6):
        words = world.random.sample(vocabulary, 1 + number % 3)
        query = " ".join([*words, *TAGS[: number % 3], *["unheardof"] * (number % 2)])
        expected = await _expected(world, query, contents)
        for fusion in ("weighted", "rrf"):
            hits = await _search(alice, query, fusion)
            _parts_are_right(hits, expected)
            _fused(hits, expected, fusion)
            await _min_score(alice, query, fusion, hits)
        hits = await _search(wordless, query, "weighted")
        _parts_are_right(hits, _Expected({}, expected.words, expected.tags, expected.ceiling))
        _fused(hits, _Expected({}, expected.words, expected.tags, expected.ceiling), "weighted")
        in_order = [hit["words"]["rank"] for hit in await _search(wordless, " ".join(words), "rrf")]
        same("the ranks by words where only words are ranked", in_order, list(range(1, len(in_order) + 1)))


async def _write(world: World, alice: Caller, vocabulary: list[str]) -> dict[str, str]:
    """Short and long memories, some of them equal, the long ones with many passages."""
    contents: dict[str, str] = {}
    for number in range(MEMORIES):
        text = " ".join(world.random.choices(vocabulary, k=1 + number % 6))
        if number % 10 == 0:
            text = f"{document(world.random, 3_000)}\n\n{text}.\n\n{document(world.random, 3_000)}"
        tags = list(TAGS[number % 3 : number % 4])
        for _ in range(1 + (number % 7 == 0)):
            contents[(await alice("memory.write", content=text, tags=tags))["id"]] = text
    return contents


async def _search(caller: Caller, query: str, fusion: str, **more: float) -> Hits:
    return (await caller("memory.search", query=query, fusion=fusion, limit=50, **more))["items"]


@dataclass(frozen=True)
class _Expected:
    """Each ranker's scores by memory, where they are above zero, and the ceiling of BM25."""

    meaning: Mapping[str, float]
    words: Mapping[str, float]
    tags: Mapping[str, float]
    ceiling: float


async def _expected(world: World, query: str, contents: Mapping[str, str]) -> _Expected:
    """The scores made anew from the stored vectors, the texts and the tags."""
    alice = world.caller("alice")
    analysed = {memory: lexical.analyse(text) for memory, text in contents.items()}
    terms = lexical.query_terms(query)
    statistics = ranking.Statistics(
        documents=len(analysed),
        average_length=sum(one.length for one in analysed.values()) / len(analysed),
        document_frequencies={term: sum(term in one.frequencies for one in analysed.values()) for term in terms},
    )
    tags = {memory["id"]: memory["tags"] for memory in (await alice("memory.list", limit=200))["items"]}
    same("the memories that are listed", sorted(tags), sorted(contents))
    wanted = ranking.query_tags(query)
    return _Expected(
        meaning=await _cosines(world, query),
        words=_positive(
            contents, lambda one: ranking.bm25(analysed[one].frequencies, analysed[one].length, terms, statistics)
        ),
        tags=_positive(contents, lambda one: ranking.tag_overlap(tags[one], wanted)),
        ceiling=ranking.bm25_ceiling(terms, statistics),
    )


async def _cosines(world: World, query: str) -> dict[str, float]:
    """Each memory's best passage against the query."""
    target = (await world.embedder.inner.embed_query(query)).astype(np.float64)
    best: dict[str, float] = {}
    for passage in (await world.probe()).passages:
        vector = np.array(passage.vector, dtype=np.float64)
        cosine = float(vector @ target / (np.linalg.norm(vector) * np.linalg.norm(target)))
        best[passage.memory_id] = max(best.get(passage.memory_id, -1.0), cosine)
    return {memory: cosine for memory, cosine in best.items() if cosine > 0}


def _positive(memories: Mapping[str, str], score: Callable[[str], float]) -> dict[str, float]:
    return {memory: made for memory in memories if (made := score(memory)) > 0}


def _parts_are_right(hits: Hits, expected: _Expected) -> None:
    """In each ranker those hits that match have their score, and ranks from 1 by score, then id."""
    for ranker in RANKERS:
        wanted: Mapping[str, float] = getattr(expected, ranker)
        parts = {hit["memory"]["id"]: hit[ranker] for hit in hits if hit[ranker]}
        same(f"the memories that match by {ranker}", sorted(parts), sorted(wanted))
        for memory, part in parts.items():
            close = abs(part["score"] - wanted[memory]) <= TOLERANCE
            holds(close, f"a score by {ranker}", expected=wanted[memory], seen=part["score"])
        in_order = sorted(parts, key=lambda memory: (-parts[memory]["score"], memory))
        ranks = [parts[memory]["rank"] for memory in in_order]
        same(f"the ranks by {ranker}, best first", ranks, list(range(1, len(ranks) + 1)))


def _fused(hits: Hits, expected: _Expected, fusion: str) -> None:
    """The score is the formula of the parts, and the order is that of the scores, then of the ids."""
    weight = ranking.WEIGHT if expected.meaning else 0.0
    for hit in hits:
        parts = {ranker: hit[ranker] for ranker in RANKERS if hit[ranker]}
        if fusion == "rrf":
            wanted = sum(1 / (K + part["rank"]) for part in parts.values())
        else:
            scores = {ranker: part["score"] for ranker, part in parts.items()}
            words = scores.get("words", 0.0) / expected.ceiling if expected.ceiling else 0.0
            wanted = weight * scores.get("meaning", 0.0) + (1 - weight) * words
            wanted += ranking.TAG_WEIGHT * scores.get("tags", 0.0)
        close = abs(hit["score"] - wanted) <= TOLERANCE
        holds(close, f"the fused score by {fusion} of the parts {parts}", expected=wanted, seen=hit["score"])
    keys = [(-hit["score"], hit["memory"]["id"]) for hit in hits]
    same(f"whether the hits by {fusion} are in the order of score, then id", keys == sorted(keys), True)


async def _min_score(alice: Caller, query: str, fusion: str, hits: Hits) -> None:
    """What reaches the bound, if only just, stays as it was; the rest is gone."""
    scores = sorted({hit["score"] for hit in hits}, reverse=True)
    holds(len(scores) > 1, f"the different scores of {query!r}", expected="at least two", seen=scores)
    between = (scores[0] + scores[1]) / 2, (scores[-1] + scores[-2]) / 2
    for bound in (*between, scores[0], scores[len(scores) // 2], scores[-1], scores[0] + 1, 0.0):
        kept = await _search(alice, query, fusion, min_score=bound)
        same(f"the hits with a score of at least {bound}", kept, [hit for hit in hits if hit["score"] >= bound])
