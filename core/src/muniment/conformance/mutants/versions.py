"""Mutants made for MUT-01 to MUT-05: what a new memory is, versions, and edits at once."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from datetime import datetime, timedelta

from muniment.conformance.mutants.mutant import Mutants
from muniment.errors import NotFound, VersionConflict
from muniment.ports import Applied, Audience, Create, Mutation, Placement, Remove, Restore, Revise, ShareChange
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow, ProjectRow, Staged

MUTANTS = Mutants()


@MUTANTS("text normalised to NFC", made_for="MUT-01", fails="MUT-01 MUT-08")
class NormalisesText(ReferenceStorage):
    """Content is stored in Unicode's composed form instead of as it was sent."""

    def created(self, mutation: Create, now: datetime) -> MemoryRow:
        """Compose."""
        return super().created(replace(mutation, content=unicodedata.normalize("NFC", mutation.content)), now)


@MUTANTS("trailing spaces stripped", made_for="MUT-01", fails="MUT-01")
class StripsTrailingSpaces(ReferenceStorage):
    """Content loses its trailing white space, as in a column of fixed width."""

    def created(self, mutation: Create, now: datetime) -> MemoryRow:
        """Strip."""
        return super().created(replace(mutation, content=mutation.content.rstrip()), now)


@MUTANTS(
    "versions start at zero",
    made_for="MUT-01",
    fails="MUT-01 MUT-03 MUT-04 MUT-05 MUT-11 MUT-12 MUT-13 MUT-14 MUT-15 MUT-16 READ-05 ACC-07 ACC-08 LEX-02 RANK-01",
)
class StartsAtZero(ReferenceStorage):
    """A new memory has version 0, as a counter's default would have it."""

    def created(self, mutation: Create, now: datetime) -> MemoryRow:
        """Count from 0."""
        return replace(super().created(mutation, now), version=0)


@MUTANTS(
    "version raised twice",
    made_for="MUT-02",
    fails="MUT-02 MUT-03 MUT-04 MUT-05 MUT-11 MUT-12 MUT-13 MUT-15 MUT-16 ACC-07 ACC-12",
)
class RaisesVersionTwice(ReferenceStorage):
    """An edit raises the version by 2, once by the statement and once by a trigger."""

    def next_version(self, version: int) -> int:
        """Two more."""
        return version + 2


@MUTANTS("update as delete and insert", made_for="MUT-02", fails="MUT-02 MUT-10 READ-02")
class ResetsCreatedAt(ReferenceStorage):
    """An edit writes the row anew, and with it the time of its creation."""

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """Created now."""
        return replace(super().revised(row, mutation), created_at=self.clock())


@MUTANTS("updated_at from a clock that went back", made_for="MUT-02", fails="MUT-02 MUT-15")
class ClockGoesBack(ReferenceStorage):
    """The time of an edit is its server's, and another server's clock was ahead."""

    def stage_memory(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Date an edit a minute early."""
        super().stage_memory(staged, mutation, now)
        if staged.memory is not None and not isinstance(mutation, Create):
            staged.memory = replace(staged.memory, updated_at=now - timedelta(minutes=1))


@MUTANTS("move without a new version", made_for="MUT-02", fails="MUT-02 MUT-15 SCOPE-05")
class MovesWithoutVersion(ReferenceStorage):
    """Moving a memory is stored as an administrative change, which raises no version."""

    def moved(self, row: MemoryRow, placement: Placement) -> MemoryRow:
        """Take back the step to come."""
        return replace(super().moved(row, placement), version=row.version - 1)


@MUTANTS("grant without a new version", made_for="MUT-03", fails="MUT-03 MUT-05 ACC-12")
class SharesWithoutVersion(ReferenceStorage):
    """Changing a grant leaves the project's version as it was."""

    def shared(self, row: ProjectRow, change: ShareChange) -> ProjectRow:
        """Keep the version."""
        return replace(super().shared(row, change), version=row.version)


@MUTANTS(
    "reads touch the row",
    made_for="MUT-03",
    fails="MUT-03 MUT-06 MUT-07 MUT-09 MUT-11 MUT-12 MUT-13 MUT-16 ACC-02 ACC-03 ACC-05 ACC-06 ACC-09 SCOPE-02 "
    "SCOPE-05 VEC-11 LEX-02",
)
class TouchesOnRead(ReferenceStorage):
    """A memory that is loaded gets a later time of its last edit."""

    def may_load(self, row: MemoryRow, audience: Audience) -> bool:
        """Date the row anew."""
        allowed = super().may_load(row, audience)
        if allowed:
            self.data.memories[row.id] = replace(row, updated_at=row.updated_at + timedelta(microseconds=1))
        return allowed


@MUTANTS("read-modify-write without compare-and-set", made_for="MUT-04", fails="MUT-04 MUT-05 MUT-14 SCOPE-05")
class NoCompareAndSet(ReferenceStorage):
    """The version that the writer has seen is not compared with the stored one: the last write wins."""

    def match_version(self, current: int, expected: int) -> None:
        """Accept any."""


@MUTANTS("compare and set in two steps", made_for="MUT-05", fails="MUT-04 MUT-05 MUT-14 SCOPE-05")
class ComparesTooEarly(ReferenceStorage):
    """The version is compared before the transaction that stores the edit has begun."""

    async def apply(self, mutation: Mutation) -> Applied:
        """Compare, and let others run before the edit is stored."""
        if isinstance(mutation, Revise | Remove | Restore):
            super().match_version(self.data.memories[mutation.memory_id].version, mutation.expected_version)
        return await super().apply(mutation)

    def match_version(self, current: int, expected: int) -> None:
        """Compared already."""


@MUTANTS("lost update reported as not found", made_for="MUT-04", fails="MUT-04 SCOPE-05")
class ConflictIsNotFound(ReferenceStorage):
    """An update that matched no row is taken for one of a memory that is not there."""

    def match_version(self, current: int, expected: int) -> None:
        """Refuse by the wrong code."""
        if current != expected:
            raise NotFound("No row was updated.")


@MUTANTS("conflict names the loser's version", made_for="MUT-05", fails="MUT-05")
class ConflictNamesExpected(ReferenceStorage):
    """A racer that lost is told the version that it came with instead of the current one."""

    def match_version(self, current: int, expected: int) -> None:
        """Name the wrong one."""
        if current != expected:
            raise VersionConflict(expected)


@MUTANTS("grants without compare-and-set", made_for="MUT-05", fails="MUT-05")
class SharesWithoutCompare(ReferenceStorage):
    """Of two grants at once both are applied, whatever version they were made for."""

    def match_grants(self, row: ProjectRow, change: ShareChange) -> None:
        """Accept any version."""


@MUTANTS("the loser's tags are left", made_for="MUT-05", fails="MUT-05")
class WritesBeforeCompare(ReferenceStorage):
    """Tags live in rows of their own, which are written before the version is compared."""

    def stage_memory(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Store the tags at once."""
        if isinstance(mutation, Revise) and mutation.tags is not None:
            row = self.data.memories[mutation.memory_id]
            self.data.memories[row.id] = replace(row, tags=mutation.tags)
        super().stage_memory(staged, mutation, now)
