"""Mutants made for VEC-01 to VEC-04: the stored vectors and terms are those of the present text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from muniment.conformance.mutants.mutant import Mutants
from muniment.lexical import Terms
from muniment.ports import Audience, Index, MemoryFacts, Passages, Placement, Revise, Vector
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow, PassageKey

MUTANTS = Mutants()


@MUTANTS("vectors of removed passages kept", made_for="VEC-01", fails="MUT-05 VEC-01 VEC-03 VEC-07")
class KeepsOldPassages(ReferenceStorage):
    """New passages are inserted, and old ones never deleted."""

    def kept_passages(self, row: MemoryRow, passages: Passages) -> dict[PassageKey, Vector]:
        """All."""
        return dict(row.passages)


@MUTANTS("unchanged passages dropped by an edit", made_for="VEC-01", fails="VEC-01 VEC-02 VEC-04")
class KeepsNewPassagesOnly(ReferenceStorage):
    """An edit replaces all vectors by those that were sent with it."""

    def kept_passages(self, row: MemoryRow, passages: Passages) -> dict[PassageKey, Vector]:
        """None."""
        return {}


@MUTANTS("vectors off by one against their passages", made_for="VEC-01", fails="VEC-01 VEC-03")
class MixesVectors(ReferenceStorage):
    """Passages and vectors are two batches, of which one is off by one."""

    def with_passages(self, row: MemoryRow, passages: Passages | None) -> MemoryRow:
        """Give each passage the vector of the next."""
        if passages is not None:
            found = passages.vectors
            mixed = zip(found, (*found[1:], *found[:1]), strict=True)
            passages = replace(passages, vectors=tuple(replace(one, vector=other.vector) for one, other in mixed))
        return super().with_passages(row, passages)


@MUTANTS("vectors quantised", made_for="VEC-01", fails="VEC-01 VEC-03 VEC-05 VEC-06 VEC-07 VEC-08 RANK-01")
class QuantisesVectors(ReferenceStorage):
    """Vectors are stored with eight bits a number."""

    def with_passages(self, row: MemoryRow, passages: Passages | None) -> MemoryRow:
        """Round."""
        row = super().with_passages(row, passages)
        rounded = {key: (np.round(vector * 127) / 127).astype(np.float32) for key, vector in row.passages.items()}
        return replace(row, passages=rounded)


@MUTANTS("vectors of the old text kept by an update", made_for="VEC-01", fails="MUT-05 VEC-01 VEC-03 VEC-04 VEC-07")
class EmbedsOnce(ReferenceStorage):
    """Text is embedded when it is written, and an edit leaves the vectors as they were."""

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """With the old vectors."""
        return replace(super().revised(row, mutation), passages=row.passages, embedded=row.embedded)


@MUTANTS("vectors dropped by an edit of the tags", made_for="VEC-02", fails="MUT-05 VEC-01 VEC-02 VEC-03")
class TagsDropVectors(ReferenceStorage):
    """An edit of anything marks the memory for being embedded anew."""

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """Drop the vectors where the text stays."""
        row = super().revised(row, mutation)
        return row if mutation.index else replace(row, passages={}, embedded=frozenset[str]())


@MUTANTS("vectors dropped by a move", made_for="VEC-02", fails="VEC-01 VEC-02 VEC-03")
class MoveDropsVectors(ReferenceStorage):
    """Vectors are partitioned by scope, and a move leaves them in the old partition."""

    def moved(self, row: MemoryRow, placement: Placement) -> MemoryRow:
        """Without the vectors."""
        return replace(super().moved(row, placement), passages={}, embedded=frozenset[str]())


@MUTANTS("terms added and never taken away", made_for="VEC-03", fails="MUT-05 VEC-03 LEX-02")
class KeepsOldTerms(ReferenceStorage):
    """An edit inserts the new terms beside the old ones."""

    def with_terms(self, row: MemoryRow, index: Index) -> MemoryRow:
        """The old ones too."""
        old = row.terms or index.terms
        row = super().with_terms(row, index)
        return replace(row, terms=Terms({**old.frequencies, **index.terms.frequencies}, index.terms.length))


@MUTANTS("tags left in the index", made_for="VEC-03", fails="MUT-05 MUT-10 ACC-05 VEC-03")
class KeepsOldTags(ReferenceStorage):
    """An update adds tags and takes none away."""

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """The old ones too."""
        if mutation.tags is not None:
            mutation = replace(mutation, tags=tuple(dict.fromkeys((*row.tags, *mutation.tags))))
        return super().revised(row, mutation)


@MUTANTS("score of the worst passage", made_for="VEC-03", fails="VEC-03 RANK-01 RANK-02")
class WorstPassage(ReferenceStorage):
    """A memory is as near as the farthest of its passages."""

    def of_passages(self, cosines: Sequence[float]) -> float:
        """The least."""
        return min(cosines)


@MUTANTS("every passage embedded anew", made_for="VEC-04", fails="VEC-02 VEC-04")
class ForgetsStoredPassages(ReferenceStorage):
    """A memory is loaded without the hashes of its stored passages, so that each edit embeds all of them."""

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """Without them."""
        facts = await super().load(audience, memory_id, space=space)
        return None if facts is None else replace(facts, passages=frozenset[str]())
