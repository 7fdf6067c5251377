"""The reference's search: every readable memory scored by the formulas of ``ranking``, nothing approximated.

Each step is a method that a mutant can break; what is readable and selected is the storage's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from muniment import ranking
from muniment.ports import SearchQuery, Vector
from muniment.reference.rows import MemoryRow


class ExactSearch:
    """The three legs and their fusion over rows in memory."""

    def rank(
        self, live: Sequence[MemoryRow], selected: Sequence[MemoryRow], query: SearchQuery
    ) -> list[ranking.Ranked]:
        """The fused order of ``selected``; word statistics are those of all that is ``live``."""
        statistics = self.statistics(live, query.terms)
        meaning = self.meaning(selected, query)
        words = self.words(selected, query, statistics)
        tags = self.tags(selected, query)
        candidates = {memory_id for leg in (meaning, words, tags) for memory_id in self.best(leg)}
        legs = ranking.Legs(
            meaning=_only(meaning, candidates), words=_only(words, candidates), tags=_only(tags, candidates)
        )
        return self.fused(legs, ranking.bm25_ceiling(query.terms, statistics), query)

    def statistics(self, live: Sequence[MemoryRow], terms: Mapping[str, float]) -> ranking.Statistics:
        """What BM25 knows of the caller's memories."""
        analysed = [row.terms for row in live if row.terms is not None]
        return ranking.Statistics(
            documents=len(analysed),
            average_length=sum(one.length for one in analysed) / len(analysed) if analysed else 0.0,
            document_frequencies={term: sum(term in one.frequencies for one in analysed) for term in terms},
        )

    def meaning(self, rows: Sequence[MemoryRow], query: SearchQuery) -> dict[str, float]:
        """The score of each memory that has passages in the query's space that can be compared with it."""
        if query.vector is None:
            return {}
        owners: list[str] = []
        vectors: list[Vector] = []
        for row in rows:
            for (space, _), vector in row.passages.items():
                if self.comparable(space, query):
                    owners.append(row.id)
                    vectors.append(vector)
        if not vectors:
            return {}
        scores: dict[str, list[float]] = {}
        for owner, cosine in zip(owners, ranking.cosines(np.stack(vectors), query.vector).tolist(), strict=True):
            if cosine > -np.inf:
                scores.setdefault(owner, []).append(cosine)
        return {owner: self.of_passages(found) for owner, found in scores.items()}

    def comparable(self, space: str, query: SearchQuery) -> bool:
        """Whether a passage's space is the query's."""
        return space == query.space

    def of_passages(self, cosines: Sequence[float]) -> float:
        """A memory's score from those of its passages: the best."""
        return max(cosines)

    def words(self, rows: Sequence[MemoryRow], query: SearchQuery, statistics: ranking.Statistics) -> dict[str, float]:
        """The BM25 score of each memory that holds a term of the query."""
        scores = {
            row.id: ranking.bm25(row.terms.frequencies, row.terms.length, query.terms, statistics)
            for row in rows
            if row.terms is not None and self.holds_terms(row.terms.frequencies, query.terms)
        }
        return {memory_id: score for memory_id, score in scores.items() if score > 0}

    def holds_terms(self, frequencies: Mapping[str, int], terms: Mapping[str, float]) -> bool:
        """Whether a memory's terms answer the query: one of them is enough."""
        return not frequencies.keys().isdisjoint(terms)

    def tags(self, rows: Sequence[MemoryRow], query: SearchQuery) -> dict[str, float]:
        """The overlap of each memory that has a tag of the query."""
        scores = {row.id: self.overlap(row.tags, query.tags) for row in rows}
        return {memory_id: score for memory_id, score in scores.items() if score > 0}

    def overlap(self, tags: Sequence[str], wanted: frozenset[str]) -> float:
        """How well a memory's tags answer the query's."""
        return ranking.tag_overlap(tags, wanted)

    def best(self, leg: Mapping[str, float]) -> list[str]:
        """The leg's candidates: its best, at most ``POOL``."""
        return sorted(leg, key=lambda memory_id: (-leg[memory_id], memory_id))[: ranking.POOL]

    def fused(self, legs: ranking.Legs, ceiling: float, query: SearchQuery) -> list[ranking.Ranked]:
        """One order from the legs."""
        return ranking.fuse(legs, ceiling=ceiling, fusion=query.fusion, min_score=query.min_score)


def _only(leg: Mapping[str, float], candidates: set[str]) -> dict[str, float]:
    return {memory_id: score for memory_id, score in leg.items() if memory_id in candidates}
