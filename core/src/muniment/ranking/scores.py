"""The scores of every readable memory as arrays, for a storage that keeps postings: candidates, and their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muniment.ranking.fusion import POOL, WEIGHT, Columns, Fusion, Ranked, in_order
from muniment.ranking.words import Postings, Statistics, bm25_ceiling, bm25_of_all


@dataclass(frozen=True, slots=True)
class Scores:
    """Each ranker's score of every readable memory by its place, shape `(memories,)`, and the words' `ceiling`.

    What a ranker has no score for is -inf by meaning and 0 by words and by tags.
    """

    meaning: NDArray[np.float64]
    words: NDArray[np.float64]
    tags: NDArray[np.float64]
    ceiling: float

    def candidates(self, *, blur: float = 0.0, wanted: int = POOL) -> list[int]:
        """The places of each ranker's pool and of all that tie with its last, ascending.

        `blur` is how far a score by meaning may be from the exact one; whatever could belong to the pool is in it.
        Where nothing matches by words or by tags, the order by meaning is the fused one, so that its first `wanted`
        will do for as many hits.
        """
        others = _first(self.words) | _first(self.tags)
        size = POOL if others.any() else min(wanted, POOL)
        return np.flatnonzero(_first(self.meaning, above=-np.inf, blur=blur, size=size) | others).tolist()

    def fuse(
        self, places: Mapping[str, int], *, fusion: Fusion, min_score: float | None, offset: int, limit: int
    ) -> list[Ranked]:
        """`fuse` of the candidates whose `places` are given by id; their scores are exact."""
        identities = sorted(places)
        at = np.fromiter(map(places.__getitem__, identities), dtype=np.int64, count=len(identities))
        return in_order(
            Columns(identities, self.meaning[at], self.words[at], self.tags[at]),
            pooled=True,
            ceiling=self.ceiling,
            fusion=fusion,
            weight=WEIGHT,
            min_score=min_score,
            offset=offset,
            limit=limit,
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


def _first(
    scores: NDArray[np.float64], *, above: float = 0.0, blur: float = 0.0, size: int = POOL
) -> NDArray[np.bool_]:
    """Which are the `size` highest scores, and all that tie with the last of them."""
    matches = scores > above
    if np.count_nonzero(matches) <= size:
        return matches
    least = np.partition(scores[matches], -size)[-size]
    return matches & (scores >= least - 2 * blur)
