"""Mutants made for MUT-06 to MUT-11: patches, limits, updates of one field, and deletion with its way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from muniment.conformance.mutants.mutant import Mutants
from muniment.models import Access, AuditRecord
from muniment.ports import Applied, Audience, Create, Mutation, Placement, Remove, Restore, Revise
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow

MUTANTS = Mutants()


@MUTANTS("line ends normalised", made_for="MUT-06", fails="MUT-01 MUT-06")
class NormalisesLineEnds(ReferenceStorage):
    """CRLF is stored as LF, so a fragment matches that the text never held."""

    def created(self, mutation: Create, now: datetime) -> MemoryRow:
        """Rewrite the line ends."""
        return super().created(replace(mutation, content=mutation.content.replace("\r\n", "\n")), now)


@MUTANTS(
    "text kept as distinct chunks",
    made_for="MUT-07",
    fails="MUT-01 MUT-07 MUT-12 READ-04 SCOPE-03 VEC-01 VEC-03 VEC-04 VEC-05 VEC-06 VEC-08 LEX-02",
)
class KeepsDistinctChunks(ReferenceStorage):
    """Content is put together again from chunks keyed by what they hold, so one that comes twice is there once."""

    def created(self, mutation: Create, now: datetime) -> MemoryRow:
        """Keep each word once."""
        words = dict.fromkeys(mutation.content.split(" "))
        return super().created(replace(mutation, content=" ".join(words)), now)


@MUTANTS("backslashes taken as escapes", made_for="MUT-08", fails="MUT-08")
class TakesEscapes(ReferenceStorage):
    """An edited text passes through a statement that reads backslashes as escapes."""

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """Drop them."""
        if mutation.content is not None:
            mutation = replace(mutation, content=mutation.content.replace("\\", ""))
        return super().revised(row, mutation)


@MUTANTS("trailing spaces stripped on update", made_for="MUT-08", fails="MUT-08 VEC-01")
class StripsOnUpdate(ReferenceStorage):
    """An edited text loses its trailing white space, a new one does not."""

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """Strip."""
        if mutation.content is not None:
            mutation = replace(mutation, content=mutation.content.rstrip(" "))
        return super().revised(row, mutation)


@MUTANTS("text cut at 65,535 bytes", made_for="MUT-09", fails="MUT-01 MUT-09")
class CutsBytes(ReferenceStorage):
    """A column that counts bytes cuts off what is too long for it, and says nothing."""

    def created(self, mutation: Create, now: datetime) -> MemoryRow:
        """Cut."""
        kept = mutation.content.encode()[:65_535].decode(errors="ignore")
        return super().created(replace(mutation, content=kept), now)


@MUTANTS("text of an update cut at 50,000 characters", made_for="MUT-09", fails="MUT-09")
class CutsUpdates(ReferenceStorage):
    """An update has a shorter limit than a write, and cuts."""

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """Cut."""
        if mutation.content is not None:
            mutation = replace(mutation, content=mutation.content[:50_000])
        return super().revised(row, mutation)


@MUTANTS("tags overwritten by a content edit", made_for="MUT-10", fails="MUT-05 MUT-08 MUT-10")
class ContentClearsTags(ReferenceStorage):
    """A content edit stores the whole row, in which the tags were not sent."""

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """Clear what was not sent."""
        if mutation.content is not None and mutation.tags is None:
            mutation = replace(mutation, tags=())
        return super().revised(row, mutation)


@MUTANTS("empty tags taken for none sent", made_for="MUT-10", fails="MUT-10")
class EmptyTagsKeepTags(ReferenceStorage):
    """An empty list of tags counts as no list, so the last tag cannot be taken away."""

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """Test truth instead of presence."""
        return super().revised(row, replace(mutation, tags=mutation.tags or None))


@MUTANTS("move loses the tags", made_for="MUT-10", fails="MUT-10")
class MoveLosesTags(ReferenceStorage):
    """Tags are rows under the scope key, and a move leaves them behind."""

    def moved(self, row: MemoryRow, placement: Placement) -> MemoryRow:
        """Lose the tags."""
        return replace(super().moved(row, placement), tags=())


@MUTANTS("terms left behind on delete", made_for="MUT-11", fails="MUT-11 LEX-02")
class DeleteKeepsTerms(ReferenceStorage):
    """A deleted memory keeps its terms, which still count in the statistics."""

    def removed(self, row: MemoryRow) -> MemoryRow:
        """Keep the terms."""
        return replace(super().removed(row), terms=row.terms, analyser=row.analyser)


@MUTANTS(
    "deleted memories are searched",
    made_for="MUT-11",
    fails="MUT-11 ACC-02 ACC-06 ACC-09 VEC-01 VEC-03 LEX-02 LEX-04 RANK-01",
)
class SearchesDeleted(ReferenceStorage):
    """Deletion only sets a mark, and a search does not look at it."""

    def removed(self, row: MemoryRow) -> MemoryRow:
        """Keep every search entry."""
        return replace(row, deleted=True)

    def searchable(self, audience: Audience) -> list[MemoryRow]:
        """The deleted ones too."""
        return [*super().searchable(audience), *self.readable(audience, deleted=True)]


@MUTANTS(
    "hard delete",
    made_for="MUT-11",
    fails="MUT-02 MUT-03 MUT-05 MUT-11 MUT-13 MUT-14 MUT-15 MUT-16 READ-02 READ-05 ACC-01 ACC-02 ACC-03 ACC-09 ACC-11 "
    "VEC-01 VEC-03 LEX-02",
)
class DeletesForGood(ReferenceStorage):
    """A delete removes the row, so nothing can be listed or restored."""

    async def apply(self, mutation: Mutation) -> Applied:
        """Remove the row too."""
        applied = await super().apply(mutation)
        if isinstance(mutation, Remove):
            del self.data.memories[mutation.memory_id]
        return applied


@MUTANTS("restored without search entries", made_for="MUT-11", fails="MUT-05 MUT-11 MUT-13 VEC-01 LEX-02")
class RestoresUnindexed(ReferenceStorage):
    """A restored memory is live again, and found by no ranker but the tags."""

    def restored(self, row: MemoryRow, mutation: Restore) -> MemoryRow:
        """Only clear the mark."""
        return replace(row, deleted=False)


@MUTANTS("restored without its tags", made_for="MUT-11", fails="MUT-05 MUT-11")
class RestoresUntagged(ReferenceStorage):
    """Tags are deleted with the memory and do not come back."""

    def restored(self, row: MemoryRow, mutation: Restore) -> MemoryRow:
        """Without tags."""
        return replace(super().restored(row, mutation), tags=())


@MUTANTS("deleted memories listed to readers", made_for="MUT-11", fails="MUT-11")
class ListsDeletedToReaders(ReferenceStorage):
    """The list of deleted memories asks for read access only."""

    def readable(self, audience: Audience, *, deleted: bool) -> list[MemoryRow]:
        """For readers too."""
        return super().readable(replace(audience, need=Access.READ), deleted=deleted)


@MUTANTS("trail hidden while deleted", made_for="MUT-11", fails="MUT-03 MUT-05 MUT-11 MUT-13 MUT-16")
class HidesTrailOfDeleted(ReferenceStorage):
    """The trail is joined with the live memories only."""

    async def history(
        self, audience: Audience, memory_id: str, *, before: int | None, limit: int
    ) -> Sequence[AuditRecord]:
        """None for a deleted one."""
        row = self.data.memories.get(memory_id)
        return (
            [] if row is None or row.deleted else await super().history(audience, memory_id, before=before, limit=limit)
        )
