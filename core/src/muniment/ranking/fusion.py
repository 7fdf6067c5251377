"""How the rankers' scores become one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from muniment.models import RankerHit

POOL: Final = 200
"""How many candidates each ranker hands to the fusion."""
RRF_K: Final = 60
"""The constant of reciprocal rank fusion."""
WEIGHT: Final = 0.5
"""The share of meaning in the weighted fusion; words have the rest."""
TAG_WEIGHT: Final = 0.2
"""What a perfect tag overlap adds to the weighted fusion."""


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
    return in_order(
        Columns(identities, meaning, words, tags),
        pooled=False,
        ceiling=ceiling,
        fusion=fusion,
        weight=weight,
        min_score=min_score,
        offset=offset,
        limit=limit,
    )


@dataclass(frozen=True, slots=True)
class Columns:
    """Candidates in the order of their ids, with each ranker's scores; what it has no score for is 0 or -inf."""

    identities: Sequence[str]
    meaning: NDArray[np.float64]
    words: NDArray[np.float64]
    tags: NDArray[np.float64]


def in_order(
    candidates: Columns,
    *,
    pooled: bool,
    ceiling: float,
    fusion: Fusion,
    weight: float,
    min_score: float | None,
    offset: int,
    limit: int | None,
) -> list[Ranked]:
    """A part of the fused order. All sums are added up in one order, so that equal memories tie on every machine.

    With `pooled` a memory that is in no ranker's pool is not in the result; meaning's holds scores below 0 too.
    """
    legs = (candidates.meaning, candidates.words, candidates.tags)
    ranks = [ranks_of(leg, above=above) for leg, above in zip(legs, (-np.inf, 0.0, 0.0), strict=True)]
    pools = [(of_leg > 0) & (of_leg <= POOL) for of_leg in ranks]
    matches = [leg > 0.0 for leg in legs]
    if fusion is Fusion.rrf:
        scores = np.zeros(len(candidates.identities))
        for of_leg, pool, matching in zip(ranks, pools, matches, strict=True):
            scores += np.where(pool & matching, 1.0 / (RRF_K + of_leg), 0.0)
    else:
        share = weight if ranks[0].any() else 0.0
        meaning, words, tags = (np.where(matching, leg, 0.0) for matching, leg in zip(matches, legs, strict=True))
        share_of_words = words / ceiling if ceiling > 0.0 else np.zeros(len(words))
        scores = share * meaning + (1.0 - share) * share_of_words + TAG_WEIGHT * tags
    kept = (scores > 0.0) & (scores >= (0.0 if min_score is None else min_score))
    if pooled:
        kept &= pools[0] | pools[1] | pools[2]
    found = np.flatnonzero(kept)
    order = found[np.argsort(-scores[found], kind="stable")]
    page = order[offset:] if limit is None else order[offset : offset + limit]
    identities = [candidates.identities[place] for place in map(int, page)]
    hits = (_hits(of_leg[page], leg[page]) for of_leg, leg in zip(ranks, legs, strict=True))
    return [
        Ranked(id=identity, score=score, meaning=meaning, words=words, tags=tags)
        for identity, score, meaning, words, tags in zip(identities, scores[page].tolist(), *hits, strict=True)
    ]


def _hits(ranks: NDArray[np.int64], scores: NDArray[np.float64]) -> list[RankerHit | None]:
    return [
        RankerHit(rank=rank, score=score) if score > 0.0 else None
        for rank, score in zip(ranks.tolist(), scores.tolist(), strict=True)
    ]


def ranks_of(scores: NDArray[np.float64], *, above: float = 0.0) -> NDArray[np.int64]:
    """Each score's rank from 1, the highest first, equal ones in their order; 0 where it is no match.

    Below the pool all ranks are `POOL + 1`.
    """
    ranks = np.zeros(len(scores), dtype=np.int64)
    matches = np.count_nonzero(scores > above)
    if matches:
        order = np.argsort(-scores, kind="stable")[:matches]
        ranks[order] = np.minimum(np.arange(1, matches + 1), POOL + 1)
    return ranks
