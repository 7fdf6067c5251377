"""Mutants made for OPS-01 and OPS-02: what is counted as waiting."""

from __future__ import annotations

from datetime import datetime

from muniment.conformance.mutants.mutant import Mutants
from muniment.reference import ReferenceStorage
from muniment.reference.agent_rows import EventRow
from muniment.reference.rows import MemoryRow

MUTANTS = Mutants()


@MUTANTS("events that are out counted", made_for="OPS-01", fails="OPS-01 OPS-03")
class CountsWhatIsOut(ReferenceStorage):
    """Whatever is not acknowledged counts as waiting, also while a worker has it."""

    def waits(self, row: EventRow, attempts_max: int, now: datetime) -> bool:
        """Unless it is acknowledged."""
        return not row.acked


@MUTANTS("dead events counted", made_for="OPS-01", fails="OPS-01 OPS-03")
class CountsTheDead(ReferenceStorage):
    """An event counts as waiting when its lease is over, however often it was delivered."""

    def waits(self, row: EventRow, attempts_max: int, now: datetime) -> bool:
        """Whatever its attempts."""
        return super().waits(row, 10 * attempts_max, now)


@MUTANTS("deleted memories pending", made_for="OPS-02", fails="OPS-02")
class CountsTheDeleted(ReferenceStorage):
    """A memory that was deleted has no vectors, and counts as pending for ever."""

    def lacks_vectors(self, row: MemoryRow, space: str) -> bool:
        """Deleted or not."""
        return space not in row.embedded


@MUTANTS("vectors of any space counted as there", made_for="OPS-02", fails="OPS-02")
class CountsAnySpace(ReferenceStorage):
    """A memory with vectors of another embedder counts as complete."""

    def lacks_vectors(self, row: MemoryRow, space: str) -> bool:
        """Whatever the space."""
        return not row.deleted and not row.embedded
