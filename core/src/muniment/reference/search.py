"""The reference's search: every readable memory scored by the formulas of ``ranking``, nothing approximated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from muniment import ranking
from muniment.ports import SearchQuery, Vector
from muniment.reference.rows import MemoryRow


def rank(live: Sequence[MemoryRow], selected: Sequence[MemoryRow], query: SearchQuery) -> list[ranking.Ranked]:
    """The fused order of ``selected``; word statistics are those of all that is ``live``."""
    statistics = _statistics(live, query.terms)
    meaning = _meaning(selected, query)
    words = _words(selected, query, statistics)
    tags = _tags(selected, query)
    candidates = {memory_id for leg in (meaning, words, tags) for memory_id in _best(leg)}
    return ranking.fuse(
        ranking.Legs(meaning=_only(meaning, candidates), words=_only(words, candidates), tags=_only(tags, candidates)),
        ceiling=ranking.bm25_ceiling(query.terms, statistics),
        fusion=query.fusion,
        min_score=query.min_score,
    )


def _statistics(live: Sequence[MemoryRow], terms: Mapping[str, float]) -> ranking.Statistics:
    analysed = [row.terms for row in live if row.terms is not None]
    return ranking.Statistics(
        documents=len(analysed),
        average_length=sum(one.length for one in analysed) / len(analysed) if analysed else 0.0,
        document_frequencies={term: sum(term in one.frequencies for one in analysed) for term in terms},
    )


def _meaning(rows: Iterable[MemoryRow], query: SearchQuery) -> dict[str, float]:
    """The cosine of each memory's best passage in the query's space."""
    if query.vector is None:
        return {}
    target = query.vector.astype(np.float64)
    scores: dict[str, float] = {}
    for row in rows:
        cosines = [_cosine(target, vector) for (space, _), vector in row.passages.items() if space == query.space]
        if cosines:
            scores[row.id] = max(cosines)
    return scores


def _cosine(left: np.typing.NDArray[np.float64], right: Vector) -> float:
    other = right.astype(np.float64)
    return float(left @ other / (np.linalg.norm(left) * np.linalg.norm(other)))


def _words(rows: Iterable[MemoryRow], query: SearchQuery, statistics: ranking.Statistics) -> dict[str, float]:
    scores = {
        row.id: ranking.bm25(row.terms.frequencies, row.terms.length, query.terms, statistics)
        for row in rows
        if row.terms is not None and not row.terms.frequencies.keys().isdisjoint(query.terms)
    }
    return {memory_id: score for memory_id, score in scores.items() if score > 0}


def _tags(rows: Iterable[MemoryRow], query: SearchQuery) -> dict[str, float]:
    scores = {row.id: ranking.tag_overlap(row.tags, query.tags) for row in rows}
    return {memory_id: score for memory_id, score in scores.items() if score > 0}


def _best(leg: Mapping[str, float]) -> list[str]:
    """The leg's best, at most ``POOL``."""
    return sorted(leg, key=lambda memory_id: (-leg[memory_id], memory_id))[: ranking.POOL]


def _only(leg: Mapping[str, float], candidates: set[str]) -> dict[str, float]:
    return {memory_id: score for memory_id, score in leg.items() if memory_id in candidates}
