"""Mutants made for LEX, RANK and ACC-10: statistics, legs, fusion and the word index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from muniment import ranking
from muniment.conformance.mutants.mutant import Mutants
from muniment.errors import StorageUnavailable
from muniment.models import RankerHit
from muniment.ports import Applied, Audience, Found, Index, Mutation, SearchQuery, Selector
from muniment.ranking import Fusion, Legs, Ranked, Statistics
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow

MUTANTS = Mutants()


@MUTANTS("AND of words", made_for="LEX-01", fails="LEX-01 LEX-03 RANK-01 RANK-02")
class AllWords(ReferenceStorage):
    """A memory is found only if it holds every term of the query."""

    def holds_terms(self, frequencies: Mapping[str, int], terms: Mapping[str, float]) -> bool:
        """All of them."""
        return terms.keys() <= frequencies.keys()


@MUTANTS("stop words dropped", made_for="LEX-01", fails="LEX-01 RANK-01")
class NoStopWords(ReferenceStorage):
    """Terms that weigh little beside the others are not looked up."""

    def holds_terms(self, frequencies: Mapping[str, int], terms: Mapping[str, float]) -> bool:
        """Only by a telling term."""
        return any(weight >= max(terms.values()) / 10 for term, weight in terms.items() if term in frequencies)


@MUTANTS("common words dropped", made_for="LEX-01", fails="ACC-10 LEX-01 LEX-02 LEX-03 RANK-01")
class NoCommonWords(ReferenceStorage):
    """A term that is in most of the memories is worth nothing, as without the 1 in the logarithm."""

    def words(self, rows: Sequence[MemoryRow], query: SearchQuery, statistics: Statistics) -> dict[str, float]:
        """Without them."""
        rare = {
            term: weight
            for term, weight in query.terms.items()
            if 2 * statistics.document_frequencies[term] <= statistics.documents
        }
        return super().words(rows, replace(query, terms=rare), statistics)


@MUTANTS("terms stored after the commit", made_for="LEX-02", fails="MUT-13 LEX-02")
class TermsAfterCommit(ReferenceStorage):
    """The new text is committed first, its terms follow."""

    def with_terms(self, row: MemoryRow, index: Index) -> MemoryRow:
        """Keep the old ones for now."""
        return row

    async def apply(self, mutation: Mutation) -> Applied:
        """Commit, then index."""
        applied = await super().apply(mutation)
        await self.pause()
        index: Index | None = getattr(mutation, "index", None)
        if index is not None:
            row = self.data.memories[mutation.memory_id]
            self.data.memories[row.id] = super().with_terms(row, index)
        return applied


@MUTANTS("stale analyser undetected", made_for="LEX-02", fails="LEX-02")
class NeverOutdated(ReferenceStorage):
    """Terms count as up to date whoever made them."""

    def is_outdated(self, row: MemoryRow, analyser: str) -> bool:
        """Never."""
        return False


@MUTANTS("late terms stored", made_for="LEX-02", fails="VEC-07 LEX-02")
class LateTerms(ReferenceStorage):
    """Terms made for an older version replace those of the present text."""

    def is_present(self, row: MemoryRow, version: int) -> bool:
        """Whatever the version."""
        return not row.deleted


@MUTANTS("ASCII word index", made_for="LEX-03", fails="LEX-03")
class AsciiTerms(ReferenceStorage):
    """Terms with other characters than ASCII's are lost."""

    def with_terms(self, row: MemoryRow, index: Index) -> MemoryRow:
        """Drop them."""
        kept = {term: count for term, count in index.terms.frequencies.items() if term.isascii()}
        return super().with_terms(row, replace(index, terms=replace(index.terms, frequencies=kept)))


@MUTANTS("terms pasted into a query language", made_for="LEX-03", fails="LEX-03")
class PastedTerms(ReferenceStorage):
    """A term with a quote in it breaks the query."""

    def statistics(self, live: Sequence[MemoryRow], terms: Mapping[str, float]) -> Statistics:
        """Refuse quotes."""
        if any("'" in term for term in terms):
            raise StorageUnavailable("syntax error in tsquery")
        return super().statistics(live, terms)


@MUTANTS("query without terms", made_for="LEX-03", fails="LEX-03")
class NeedsTerms(ReferenceStorage):
    """A query of punctuation alone leaves no terms, which is an error."""

    def statistics(self, live: Sequence[MemoryRow], terms: Mapping[str, float]) -> Statistics:
        """Refuse none."""
        if not terms:
            raise StorageUnavailable("an empty list of terms")
        return super().statistics(live, terms)


@MUTANTS("global statistics", made_for="LEX-04", fails="LEX-04 RANK-01")
class GlobalStatistics(ReferenceStorage):
    """Words are weighed by the memories of all tenants."""

    def statistics(self, live: Sequence[MemoryRow], terms: Mapping[str, float]) -> Statistics:
        """Count everybody's."""
        return super().statistics(list(self.data.memories.values()), terms)


@MUTANTS("another tenant's document frequencies", made_for="LEX-04", fails="LEX-04 RANK-01")
class GlobalFrequencies(ReferenceStorage):
    """How rare a word is comes from the memories of all tenants, the rest from the caller's."""

    def statistics(self, live: Sequence[MemoryRow], terms: Mapping[str, float]) -> Statistics:
        """Mix both."""
        everybody = super().statistics(list(self.data.memories.values()), terms)
        return replace(super().statistics(live, terms), document_frequencies=everybody.document_frequencies)


@MUTANTS("deleted memories counted", made_for="LEX-04", fails="LEX-04 RANK-01")
class CountsDeleted(ReferenceStorage):
    """The number of documents still has the deleted ones."""

    def statistics(self, live: Sequence[MemoryRow], terms: Mapping[str, float]) -> Statistics:
        """Add them."""
        counted = super().statistics(live, terms)
        deleted = sum(row.deleted for row in self.data.memories.values())
        return replace(counted, documents=counted.documents + deleted)


@MUTANTS("statistics after the filters", made_for="LEX-04", fails="LEX-04 RANK-01")
class FilteredStatistics(ReferenceStorage):
    """Words are weighed by what the filters leave."""

    def rank(self, live: Sequence[MemoryRow], selected: Sequence[MemoryRow], query: SearchQuery) -> list[Ranked]:
        """Count the selected ones."""
        return super().rank(selected, selected, query)


@MUTANTS("approximate search filtered afterwards", made_for="ACC-10", fails="ACC-10 RANK-01")
class PostFilter(ReferenceStorage):
    """The nearest of all tenants' passages are taken first, then those that the caller reads."""

    def meaning(self, rows: Sequence[MemoryRow], query: SearchQuery) -> dict[str, float]:
        """The best of everybody's that are among the rows."""
        scores = super().meaning(list(self.data.memories.values()), query)
        wanted = {row.id for row in rows}
        return {memory: scores[memory] for memory in self.best(scores) if memory in wanted}


@MUTANTS("filters after the candidates", made_for="ACC-10", fails="ACC-10 RANK-01")
class FiltersLast(ReferenceStorage):
    """The best of all that is readable are taken first, then those that the filters leave."""

    def rank(self, live: Sequence[MemoryRow], selected: Sequence[MemoryRow], query: SearchQuery) -> list[Ranked]:
        """Rank, then filter."""
        wanted = {row.id for row in selected}
        return [one for one in super().rank(live, live, query) if one.id in wanted]


@MUTANTS("ties without ids", made_for="RANK-01", fails="RANK-01 RANK-02")
class TiesAnyhow(ReferenceStorage):
    """Hits of one score come in another order than their ids."""

    def fused(self, legs: Legs, ceiling: float, query: SearchQuery) -> list[Ranked]:
        """Descending ids."""
        return sorted(super().fused(legs, ceiling, query), key=lambda one: (one.score, one.id), reverse=True)


@MUTANTS("small pools", made_for="RANK-01", fails="ACC-10 RANK-01")
class SmallPools(ReferenceStorage):
    """Each leg hands only its first forty to the fusion."""

    def best(self, leg: Mapping[str, float]) -> list[str]:
        """Forty."""
        return super().best(leg)[:40]


@MUTANTS("candidates scored by one leg", made_for="RANK-01", fails="RANK-01")
class OneLegOnly(ReferenceStorage):
    """A candidate has no score in a leg that did not bring it."""

    def fused(self, legs: Legs, ceiling: float, query: SearchQuery) -> list[Ranked]:
        """Only the best of each leg."""
        meaning, words, tags = (
            {memory: leg[memory] for memory in self.best(leg)} for leg in (legs.meaning, legs.words, legs.tags)
        )
        return super().fused(Legs(meaning=meaning, words=words, tags=tags), ceiling, query)


@MUTANTS("overlapping pages", made_for="RANK-01", fails="READ-04 ACC-10 RANK-01")
class OverlappingPages(ReferenceStorage):
    """A page begins with the last hit of the one before."""

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """From one before the offset."""
        return await super().search(audience, selector, replace(query, offset=max(0, query.offset - 1)))


@MUTANTS("passages averaged", made_for="RANK-02", fails="VEC-03 RANK-01 RANK-02")
class AveragedPassages(ReferenceStorage):
    """A memory's meaning is the mean of its passages instead of the best."""

    def of_passages(self, cosines: Sequence[float]) -> float:
        """The mean."""
        return sum(cosines) / len(cosines)


@MUTANTS("another k", made_for="RANK-02", fails="RANK-01 RANK-02")
class AnotherK(ReferenceStorage):
    """Reciprocal rank fusion with k = 10."""

    def fused(self, legs: Legs, ceiling: float, query: SearchQuery) -> list[Ranked]:
        """Fuse anew."""
        found = super().fused(legs, ceiling, query)
        if query.fusion is not Fusion.rrf:
            return found
        scored = [one.model_copy(update={"score": sum(1 / (10 + part.rank) for part in _parts(one))}) for one in found]
        return sorted(scored, key=lambda one: (-one.score, one.id))


@MUTANTS("ranks from 0", made_for="RANK-02", fails="RANK-01 RANK-02")
class RanksFromZero(ReferenceStorage):
    """The first of a ranker has the rank 0."""

    def fused(self, legs: Legs, ceiling: float, query: SearchQuery) -> list[Ranked]:
        """One less for each."""
        return [
            one.model_copy(
                update={
                    name: RankerHit(rank=part.rank - 1, score=part.score)
                    for name in ("meaning", "words", "tags")
                    if (part := getattr(one, name)) is not None
                }
            )
            for one in super().fused(legs, ceiling, query)
        ]


@MUTANTS("min_score ignored", made_for="RANK-02", fails="RANK-01 RANK-02")
class NoMinScore(ReferenceStorage):
    """Every hit is kept, whatever was asked for."""

    def fused(self, legs: Legs, ceiling: float, query: SearchQuery) -> list[Ranked]:
        """Without the bound."""
        return super().fused(legs, ceiling, replace(query, min_score=None))


@MUTANTS("min_score excluded", made_for="RANK-02", fails="RANK-02")
class ExcludesMinScore(ReferenceStorage):
    """A hit whose score is the bound itself is left out."""

    def fused(self, legs: Legs, ceiling: float, query: SearchQuery) -> list[Ranked]:
        """Above the bound only."""
        found = super().fused(legs, ceiling, query)
        return [one for one in found if query.min_score is None or one.score > query.min_score]


@MUTANTS("words scaled by the best hit", made_for="RANK-02", fails="RANK-01 RANK-02")
class ScaledByBest(ReferenceStorage):
    """The words score is divided by the best one of the result instead of its ceiling."""

    def fused(self, legs: Legs, ceiling: float, query: SearchQuery) -> list[Ranked]:
        """Another ceiling."""
        return super().fused(legs, max(legs.words.values(), default=0.0), query)


@MUTANTS("distance as score", made_for="RANK-02", fails="ACC-10 VEC-03 VEC-05 RANK-01 RANK-02")
class ShiftedCosine(ReferenceStorage):
    """Meaning is scored from 0 to 1 by half of 1 + cosine."""

    def of_passages(self, cosines: Sequence[float]) -> float:
        """Half of it."""
        return (1 + super().of_passages(cosines)) / 2


@MUTANTS("tags counted", made_for="RANK-02", fails="RANK-01 RANK-02")
class CountedTags(ReferenceStorage):
    """Tags score by their number instead of their overlap."""

    def overlap(self, tags: Sequence[str], wanted: frozenset[str]) -> float:
        """How many."""
        return float(len(wanted.intersection(tags)))


def _parts(one: Ranked) -> list[RankerHit]:
    return [part for part in (one.meaning, one.words, one.tags) if part and part.rank <= ranking.POOL]
