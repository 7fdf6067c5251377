"""Mutations of the reference storage: staged row by row, each step a method that a mutant can break.

All of it is committed at the end without a pause in between, so other clients of the same data see all of it or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from muniment import limits
from muniment.errors import VersionConflict
from muniment.models import AuditRecord
from muniment.ports import (
    Applied,
    Create,
    Index,
    Mutation,
    NewProject,
    Passages,
    Placement,
    ProjectTaken,
    ReceiptClaim,
    ReceiptTaken,
    Remove,
    Restore,
    Revise,
    Vector,
)
from muniment.ports.refusals import no_memory, no_space
from muniment.reference.base import Base
from muniment.reference.rows import MemoryRow, PassageKey, ProjectRow, ReceiptRow, ReferenceData, Staged


class Changes(Base):
    """``apply`` and what it is made of. ``on_write`` is called with each point of a write before it is staged."""

    data: ReferenceData
    on_write: Callable[[str], None]

    async def apply(self, mutation: Mutation) -> Applied:
        """Stage every row of the mutation, then commit all of them at once."""
        await self.pause()
        now = self.clock()
        staged = Staged()
        self.stage_memory(staged, mutation, now)
        self.stage_project(staged, mutation)
        self.stage_audit(staged, mutation, now)
        self.stage_receipt(staged, mutation, now)
        staged.commit(self.data)
        assert staged.memory is not None
        return Applied(staged.memory.version, staged.memory.created_at, staged.memory.updated_at)

    def stage_memory(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """The memory's new row."""
        self.on_write("memory")
        match mutation:
            case Create():
                row = self.created(mutation, now)
            case Revise():
                row = self.revised(self.matching(mutation, deleted=False), mutation)
            case Remove():
                row = self.removed(self.matching(mutation, deleted=False))
            case Restore():
                row = self.restored(self.matching(mutation, deleted=True), mutation)
            case _:
                raise TypeError(f"unknown mutation {type(mutation).__name__}")
        if not isinstance(mutation, Create):
            at = max(now, row.updated_at)
            row = replace(row, version=self.next_version(row.version), editor=mutation.editor, updated_at=at)
        staged.memory = row

    def matching(self, mutation: Revise | Remove | Restore, *, deleted: bool) -> MemoryRow:
        """The row that the mutation was made for. Raises NotFound, VersionConflict."""
        row = self.data.memories.get(mutation.memory_id)
        if row is None or row.deleted is not deleted:
            raise no_memory(mutation.memory_id, deleted=deleted)
        self.match_version(row.version, mutation.expected_version)
        return row

    def match_version(self, current: int, expected: int) -> None:
        """Compare-and-set."""
        if current != expected:
            raise VersionConflict(current)

    def next_version(self, version: int) -> int:
        """One more."""
        return version + 1

    def created(self, mutation: Create, now: datetime) -> MemoryRow:
        """A new row at version 1."""
        row = MemoryRow(
            id=mutation.memory_id,
            placement=mutation.placement,
            entries_under=mutation.placement.scope_key,
            content=mutation.content,
            tags=mutation.tags,
            version=1,
            editor=mutation.editor,
            created_at=now,
            updated_at=now,
        )
        return self.indexed(row, mutation.index)

    def revised(self, row: MemoryRow, mutation: Revise) -> MemoryRow:
        """The fields that are not None, and with new content the search entries."""
        if mutation.content is not None:
            row = replace(row, content=mutation.content)
        if mutation.tags is not None:
            row = replace(row, tags=mutation.tags)
        if mutation.placement is not None:
            row = self.moved(row, mutation.placement)
        return row if mutation.index is None else self.indexed(row, mutation.index)

    def moved(self, row: MemoryRow, placement: Placement) -> MemoryRow:
        """The row in another scope, its search entries with it."""
        return replace(row, placement=placement, entries_under=placement.scope_key)

    def removed(self, row: MemoryRow) -> MemoryRow:
        """Deleted, and without search entries."""
        return replace(row, deleted=True, terms=None, analyser=None, passages={}, embedded=frozenset[str]())

    def restored(self, row: MemoryRow, mutation: Restore) -> MemoryRow:
        """Live again, with search entries."""
        return self.indexed(replace(row, deleted=False), mutation.index)

    def indexed(self, row: MemoryRow, index: Index) -> MemoryRow:
        """The row with its search entries replaced."""
        row = self.with_terms(row, index)
        return self.with_passages(row, index.passages)

    def with_terms(self, row: MemoryRow, index: Index) -> MemoryRow:
        """The row with these terms."""
        self.on_write("terms")
        return replace(row, terms=index.terms, analyser=index.analyser)

    def with_passages(self, row: MemoryRow, passages: Passages | None) -> MemoryRow:
        """The row with exactly the passages that are wanted, of no other space."""
        self.on_write("passages")
        if passages is None:
            return replace(row, passages={}, embedded=frozenset[str]())
        self.check_space(passages.space)
        kept = self.kept_passages(row, passages)
        fresh = {(passages.space, one.hash): one.vector for one in passages.vectors}
        embedded = frozenset((passages.space,)) if passages.complete else frozenset[str]()
        return replace(row, passages={**kept, **fresh}, embedded=embedded)

    def check_space(self, space: str) -> None:
        """Raises NoSpace for one that is not registered."""
        if space not in self.data.spaces:
            raise no_space(space)

    def kept_passages(self, row: MemoryRow, passages: Passages) -> dict[PassageKey, Vector]:
        """The stored passages that are still part of the text."""
        return {
            key: vector
            for key, vector in row.passages.items()
            if key[0] == passages.space and key[1] in passages.hashes
        }

    def stage_project(self, staged: Staged, mutation: Mutation) -> None:
        """The project that the mutation registers, and its audit entry. Raises ProjectTaken."""
        new = mutation.registers
        if new is None:
            return
        self.on_write("project")
        if self.registered(new) is not None:
            raise ProjectTaken
        assert staged.memory is not None
        staged.project, staged.project_audit = self.made(new, staged.memory.updated_at)

    def registered(self, new: NewProject) -> ProjectRow | None:
        """The project that its owner has under this key."""
        rows = self.data.projects.values()
        return next((row for row in rows if (row.owner, row.key) == (new.owner, new.key)), None)

    def made(self, new: NewProject, at: datetime) -> tuple[ProjectRow, AuditRecord]:
        """A new project and its audit entry."""
        return ProjectRow(new.id, new.key, new.owner, 1, at, at, {}), new.audit.record(at)

    def stage_audit(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """The audit entry."""
        self.on_write("audit")
        staged.audit = mutation.audit.record(staged.memory.updated_at if staged.memory else now)

    def stage_receipt(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """The claim, if there is one and its key is free. Raises ReceiptTaken."""
        if mutation.claim is None:
            return
        self.on_write("receipt")
        if self.kept_receipt(mutation.claim.principal, mutation.claim.key) is not None:
            raise ReceiptTaken
        staged.receipt = ReceiptRow(mutation.claim, staged.memory.updated_at if staged.memory else now)

    def take_receipt(self, claim: ReceiptClaim | None, now: datetime) -> None:
        """Store a claim that goes with no memory, if there is one and its key is free. Raises ReceiptTaken."""
        if claim is None:
            return
        self.on_write("receipt")
        if self.kept_receipt(claim.principal, claim.key) is not None:
            raise ReceiptTaken
        self.data.receipts[claim.principal, claim.key] = ReceiptRow(claim, now)

    def kept_receipt(self, principal: str, key: str) -> ReceiptRow | None:
        """The receipt with this key that is not too old."""
        row = self.receipt_of(principal, key)
        return row if row is not None and row.at > self.clock() - limits.IDEMPOTENCY_KEPT else None

    def receipt_of(self, principal: str, key: str) -> ReceiptRow | None:
        """The receipt with this key."""
        return self.data.receipts.get((principal, key))
