"""The formulas of search: BM25, tag overlap, and how the rankers' scores become one order.

Owns every number and every tie of a ranking, so that each storage answers in the same order. It leaves the
terms to `lexical`, the cosines, the candidates and the statistics to the storages, and what a caller may read
to `access`. A storage may push `bm25` into its engine where the conformance suite shows the same order.

Three rankers: *meaning* (cosine of the best passage), *words* (BM25), *tags* (overlap). Each hands its first
`POOL` memories to the fusion; a candidate of any of them is scored exactly by all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from muniment.models import RankerHit

K1: Final = 1.8
"""How soon a repeated term stops counting (BM25)."""
B: Final = 0.75
"""How much a long memory is held against its terms, 0 to 1 (BM25)."""
POOL: Final = 200
"""How many candidates each ranker hands to the fusion."""
RRF_K: Final = 60
"""The constant of reciprocal rank fusion."""
WEIGHT: Final = 0.5
"""The share of meaning in the weighted fusion; words have the rest."""
TAG_WEIGHT: Final = 0.2
"""What a perfect tag overlap adds to the weighted fusion."""

_TAG = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_EDGES = re.compile(r"^[\W_]+|(?<=\w)[\W_]+$")


@dataclass(frozen=True, slots=True)
class Statistics:
    """What BM25 knows of the memories that the caller can read, before any filter.

    `documents` counts them, `average_length` is the mean of their `Terms.length`, and `document_frequencies`
    says in how many of them each term of the query occurs; a term that is missing there occurs in none.
    """

    documents: int
    average_length: float
    document_frequencies: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Postings:
    """The memories that hold one term: their places in an array of `lengths`, each once, and how often it occurs."""

    places: NDArray[np.int64]
    frequencies: NDArray[np.int64]


class Fusion(StrEnum):
    """How the rankers' results become one score."""

    weighted = "weighted"
    rrf = "rrf"


class Ranked(BaseModel):
    """A memory's place in a result: the fused score, and each ranker's part where it had one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    score: float
    meaning: RankerHit | None = None
    words: RankerHit | None = None
    tags: RankerHit | None = None


@dataclass(frozen=True, slots=True)
class Legs:
    """Each ranker's exact scores by memory id, for every candidate of any ranker that it has a score for.

    An empty `meaning` says that the query was not compared by meaning at all, for instance without an embedder.
    """

    meaning: Mapping[str, float] = field(default_factory=dict[str, float])
    words: Mapping[str, float] = field(default_factory=dict[str, float])
    tags: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Scores:
    """Each ranker's score of every readable memory by its place, shape `(memories,)`, and the words' `ceiling`.

    What a ranker has no score for is -inf by meaning and 0 by words and by tags.
    """

    meaning: NDArray[np.float64]
    words: NDArray[np.float64]
    tags: NDArray[np.float64]
    ceiling: float

    def candidates(self, *, blur: float = 0.0) -> list[int]:
        """The places of each ranker's pool and of all that tie with its last, ascending.

        `blur` is how far a score by meaning may be from the exact one; whatever could belong to the pool is in it.
        """
        pools = (_first(self.meaning, above=-np.inf, blur=blur), _first(self.words), _first(self.tags))
        return sorted({*pools[0], *pools[1], *pools[2]})

    def fuse(
        self, places: Mapping[str, int], *, fusion: Fusion, min_score: float | None, offset: int, limit: int
    ) -> list[Ranked]:
        """`fuse` of the candidates whose `places` are given by id; their scores are exact."""
        identities = sorted(places)
        at = np.array([places[identity] for identity in identities], dtype=np.int64)
        candidates = _Columns(identities, self.meaning[at], self.words[at], self.tags[at])
        pools = (_ranks(candidates.meaning, above=-np.inf), _ranks(candidates.words), _ranks(candidates.tags))
        kept = candidates.only(np.logical_or.reduce([(ranks > 0) & (ranks <= POOL) for ranks in pools]))
        return _fused(
            kept,
            ceiling=self.ceiling,
            fusion=fusion,
            weight=WEIGHT,
            min_score=min_score,
            offset=offset,
            limit=limit,
        )


def idf(documents: int, frequency: int) -> float:
    """How rare a term is: `ln(1 + (N - df + 0.5) / (df + 0.5))`, never negative.

    Robertson and Spärck Jones' weight as in Robertson and Zaragoza, "The Probabilistic Relevance Framework:
    BM25 and Beyond" (2009), with Lucene's 1 inside the logarithm. A `frequency` above `documents` counts as
    `documents`.
    """
    known = min(frequency, documents)
    return math.log(1.0 + (documents - known + 0.5) / (known + 0.5))


def bm25(frequencies: Mapping[str, int], length: int, query: Mapping[str, float], statistics: Statistics) -> float:
    """The words score of one memory: 0 when it holds no term of the query, else positive.

    `sum over t of qtf · idf · tf · (K1 + 1) / (tf + K1 · (1 - B + B · length / average_length))`, with `tf`
    from `frequencies` and `qtf` from `query` (Robertson and Zaragoza 2009, equation 3.15, linear in the
    query's counts). Terms are added in their sorted order, so that a sum is the same on every machine.
    """
    relative = length / statistics.average_length if statistics.average_length > 0 else 1.0
    saturation = K1 * (1.0 - B + B * relative)
    score = 0.0
    for term in sorted(query):
        count = frequencies.get(term, 0)
        if count > 0:
            rarity = idf(statistics.documents, statistics.document_frequencies.get(term, 0))
            score += query[term] * rarity * count * (K1 + 1.0) / (count + saturation)
    return score


def bm25_of_all(
    postings: Mapping[str, Postings], lengths: NDArray[np.int64], query: Mapping[str, float], statistics: Statistics
) -> NDArray[np.float64]:
    """`bm25` of many memories at once, term by term, for a storage that keeps postings: shape `(memories,)`.

    `lengths` has the memories' `Terms.length`. Every number is computed in the order in which `bm25` does it, so
    that the scores are the same to the last bit, and memories tie here exactly when they tie there.
    """
    scores = np.zeros(len(lengths), dtype=np.float64)
    average = statistics.average_length
    relative = lengths / average if average > 0 else np.ones(len(lengths), dtype=np.float64)
    saturation = K1 * (1.0 - B + B * relative)
    for term in sorted(query.keys() & postings.keys()):
        places, counts = postings[term].places, postings[term].frequencies
        rarity = idf(statistics.documents, statistics.document_frequencies.get(term, 0))
        scores[places] += query[term] * rarity * counts * (K1 + 1.0) / (counts + saturation[places])
    return scores


def bm25_ceiling(query: Mapping[str, float], statistics: Statistics) -> float:
    """What no memory's `bm25` can exceed for this query: `sum over t of qtf · idf · (K1 + 1)`.

    Terms that occur nowhere count too, so a memory that answers half of the query stays near one half. A query
    without terms has 0.
    """
    return sum(
        query[term] * idf(statistics.documents, statistics.document_frequencies.get(term, 0)) * (K1 + 1.0)
        for term in sorted(query)
    )


def scores_of_all(
    query: Mapping[str, float],
    *,
    lengths: NDArray[np.int64],
    by_term: Mapping[str, Postings],
    matching_tags: NDArray[np.int64],
    meaning: NDArray[np.float64],
    selected: NDArray[np.bool_],
) -> Scores:
    """The scores of every memory that the caller can read, for a storage that keeps postings; shapes `(memories,)`.

    `lengths` and `by_term` count for the statistics whatever is `selected`; `matching_tags` says how many tags of the
    query each memory holds, and `meaning` is its best cosine, -inf where it has none.
    """
    statistics = Statistics(
        documents=len(lengths),
        average_length=int(lengths.sum()) / len(lengths) if len(lengths) else 0.0,
        document_frequencies={term: len(one.places) for term, one in by_term.items()},
    )
    return Scores(
        meaning=np.where(selected, meaning, -np.inf),
        words=bm25_of_all(by_term, lengths, query, statistics) * selected,
        tags=matching_tags / (matching_tags + 1) * selected,
        ceiling=bm25_ceiling(query, statistics),
    )


@lru_cache(maxsize=256)
def query_tags(query: str) -> frozenset[str]:
    """The words of a query that could be tags.

    The words between white space, as they are and without the punctuation around them (`.env` and `(urgent),`
    are both found), as far as they match `[A-Za-z0-9._-]{1,64}`; case counts.
    """
    words = query.split()
    candidates = {*words, *(_EDGES.sub("", word) for word in words)}
    return frozenset(word for word in candidates if _TAG.fullmatch(word))


def tag_overlap(tags: Collection[str], wanted: frozenset[str]) -> float:
    """How well a memory's tags answer a query: `n / (n + 1)` for n different tags among `wanted`, 0 for none.

    `wanted` is `query_tags` of the query; tags are compared whole and case-sensitively.
    """
    matching = len(wanted.intersection(tags))
    return matching / (matching + 1)


def fuse(
    legs: Legs,
    *,
    ceiling: float,
    fusion: Fusion,
    weight: float = WEIGHT,
    min_score: float | None = None,
    offset: int = 0,
    limit: int | None = None,
) -> list[Ranked]:
    """One order from the rankers' scores: highest score first, ties by id; of it, `limit` hits from `offset` on.

    `Fusion.weighted`: `weight · cosine + (1 - weight) · BM25 / ceiling + TAG_WEIGHT · overlap`, a convex
    combination of exact scores (Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid
    Retrieval", 2023) with the tags on top. A ranker without a score contributes nothing, and so does BM25
    under a ceiling of 0. When the meaning leg is empty, words count in full (as with weight 0), so that a
    score means the same without an embedder.

    `Fusion.rrf`: `sum of 1 / (RRF_K + rank)` over the rankers that have the memory among their first `POOL`
    (Cormack, Clarke and Büttcher, 2009).

    Scores of 0 and below, and NaN, are no match: a memory with only such scores is not in the result, and a
    negative cosine takes nothing away from the other rankers. `min_score` keeps the memories with at least
    that fused score.

    Raises `ValueError` for a weight outside 0 to 1.
    """
    if not 0.0 <= weight <= 1.0:
        raise ValueError(f"The weight of meaning is {weight}; it must be between 0 and 1.")
    identities = sorted({*legs.meaning, *legs.words, *legs.tags})
    meaning, words, tags = (
        np.array([leg.get(identity, -np.inf) for identity in identities], dtype=np.float64)
        for leg in (legs.meaning, legs.words, legs.tags)
    )
    return _fused(
        _Columns(identities, meaning, words, tags),
        ceiling=ceiling,
        fusion=fusion,
        weight=weight,
        min_score=min_score,
        offset=offset,
        limit=limit,
    )


def _first(scores: NDArray[np.float64], *, above: float = 0.0, blur: float = 0.0) -> list[int]:
    """The places of the pool of highest scores, and of all that tie with its last."""
    places = np.flatnonzero(scores > above)
    if len(places) > POOL:
        least = np.partition(scores[places], -POOL)[-POOL]
        places = places[scores[places] >= least - 2 * blur]
    return places.tolist()


@dataclass(frozen=True, slots=True)
class _Columns:
    """Candidates in the order of their ids, with each ranker's scores; what it has no score for is 0 or -inf."""

    identities: Sequence[str]
    meaning: NDArray[np.float64]
    words: NDArray[np.float64]
    tags: NDArray[np.float64]

    def only(self, kept: NDArray[np.bool_]) -> _Columns:
        """Some of the candidates."""
        identities = [self.identities[place] for place in np.flatnonzero(kept).tolist()]
        return _Columns(identities, self.meaning[kept], self.words[kept], self.tags[kept])


def _fused(
    candidates: _Columns,
    *,
    ceiling: float,
    fusion: Fusion,
    weight: float,
    min_score: float | None,
    offset: int,
    limit: int | None,
) -> list[Ranked]:
    """A part of the fused order. All sums are added up in one order, so that equal memories tie on every machine."""
    legs = (candidates.meaning, candidates.words, candidates.tags)
    ranks = [_ranks(leg) for leg in legs]
    scores = np.zeros(len(candidates.identities))
    if fusion is Fusion.rrf:
        for of_leg in ranks:
            scores += np.where((of_leg > 0) & (of_leg <= POOL), 1.0 / (RRF_K + of_leg), 0.0)
    else:
        share = weight if np.any(candidates.meaning > -np.inf) else 0.0
        meaning, words, tags = (np.where(of_leg > 0, leg, 0.0) for of_leg, leg in zip(ranks, legs, strict=True))
        share_of_words = words / ceiling if ceiling > 0.0 else np.zeros(len(words))
        scores = share * meaning + (1.0 - share) * share_of_words + TAG_WEIGHT * tags
    order = np.argsort(-scores, kind="stable")
    order = order[(scores[order] > 0.0) & (scores[order] >= (0.0 if min_score is None else min_score))]
    page = order[offset:] if limit is None else order[offset : offset + limit]
    return [
        Ranked(
            id=candidates.identities[place],
            score=float(scores[place]),
            meaning=_hit(ranks[0], candidates.meaning, place),
            words=_hit(ranks[1], candidates.words, place),
            tags=_hit(ranks[2], candidates.tags, place),
        )
        for place in map(int, page)
    ]


def _hit(ranks: NDArray[np.int64], leg: NDArray[np.float64], place: int) -> RankerHit | None:
    return RankerHit(rank=int(ranks[place]), score=float(leg[place])) if ranks[place] else None


def _ranks(scores: NDArray[np.float64], *, above: float = 0.0) -> NDArray[np.int64]:
    """Each score's rank from 1, the highest first, equal ones in their order; 0 where it is no match.

    Below the pool all ranks are `POOL + 1`.
    """
    ranks = np.zeros(len(scores), dtype=np.int64)
    matches = np.flatnonzero(scores > above)
    order = matches[np.argsort(-scores[matches], kind="stable")]
    ranks[order] = np.minimum(np.arange(1, len(order) + 1), POOL + 1)
    return ranks
