"""The reference storage: the contract in memory, each rule of it a method that a mutant can break.

A mutation is staged row by row and committed at the end without a pause in between, so other clients of the same data
see all of it or none. The scoring of a search is in ``search``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar, TypeVar

from muniment import limits
from muniment.access import project_key, user_key
from muniment.errors import NotFound, VersionConflict
from muniment.lexical import Terms
from muniment.models import Access, Agent, AuditRecord, MemoryRecord, Share
from muniment.ports import (
    Applied,
    Audience,
    AuditDraft,
    Create,
    Found,
    Index,
    MemoryFacts,
    Mutation,
    NewProject,
    Outdated,
    Passages,
    Placement,
    PluginContext,
    Position,
    ProjectFacts,
    ReceiptClaim,
    ReceiptTaken,
    Remove,
    Restore,
    Revise,
    SearchQuery,
    Selector,
    ShareChange,
    Space,
    StoredReceipt,
    Unembedded,
    Vector,
    Vectors,
)
from muniment.reference.agents import ReferenceAgents
from muniment.reference.rows import MemoryRow, PassageKey, ProjectRow, ReceiptRow, ReferenceData, Staged
from muniment.reference.search import ExactSearch


def _now() -> datetime:
    return datetime.now(UTC)


Row = TypeVar("Row", ProjectRow, MemoryRow)


class ReferenceStorage(ReferenceAgents, ExactSearch):
    """``muniment.ports.Storage`` over a ``ReferenceData``, which several instances may share."""

    WRITE_POINTS: ClassVar[tuple[str, ...]] = ("memory", "terms", "passages", "audit", "receipt")
    """The points of a write, in order, that ``on_write`` is called with."""

    def __init__(self, data: ReferenceData | None = None, *, clock: Callable[[], datetime] = _now) -> None:
        self.data = data if data is not None else ReferenceData()
        self.agents = self.data.agents
        self.clock = clock
        self.on_write: Callable[[str], None] = lambda point: None
        self.on_agent_write: Callable[[str, Agent], None] = lambda point, agent: None

    # ------------------------------------------------------------ life

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """The data stays with whoever holds it."""

    async def migrate(self) -> tuple[str, ...]:
        """There is no schema."""
        return ()

    async def describe(self) -> Mapping[str, str]:
        """What it is."""
        return {"server": "in memory"}

    # ------------------------------------------------------------ who reads what

    def readable_projects(self, audience: Audience) -> list[ProjectRow]:
        """The audience's projects."""
        return [row for row in self.data.projects.values() if self.admits(row, audience)]

    def admits(self, row: ProjectRow, audience: Audience) -> bool:
        """Whether the audience owns the project or holds a grant on it that is enough."""
        if self.owns(row, audience):
            return True
        grants = self.grants(row, audience)
        return Share.RW in grants if audience.need is Access.WRITE else bool(grants)

    def owns(self, row: ProjectRow, audience: Audience) -> bool:
        """Whether the audience's user is the project's owner."""
        return row.owner == audience.user

    def grants(self, row: ProjectRow, audience: Audience) -> tuple[Share, ...]:
        """The grants to the audience's groups."""
        return tuple([share for group, share in row.shares.items() if self.is_member(audience, group)])

    def is_member(self, audience: Audience, group: str) -> bool:
        """Whether the audience belongs to the group."""
        return group in audience.groups

    def readable_keys(self, audience: Audience) -> frozenset[str]:
        """The audience's scope keys."""
        projects = (project_key(row.id) for row in self.readable_projects(audience))
        return frozenset((user_key(audience.user), *projects))

    def readable(self, audience: Audience, *, deleted: bool) -> list[MemoryRow]:
        """The audience's memories, live or deleted."""
        keys = self.readable_keys(audience)
        return [
            row
            for row in self.data.memories.values()
            if row.deleted is deleted and self.in_scope(row.placement.scope_key, keys)
        ]

    def searchable(self, audience: Audience) -> list[MemoryRow]:
        """The live memories whose search entries the audience reads."""
        keys = self.readable_keys(audience)
        rows = self.data.memories.values()
        return [row for row in rows if not row.deleted and self.in_scope(row.entries_under, keys)]

    def in_scope(self, scope_key: str, keys: frozenset[str]) -> bool:
        """Whether a memory's scope key is one of the audience's."""
        return scope_key in keys

    def selects(self, selector: Selector, row: MemoryRow) -> bool:
        """Whether the selector's parts all hold."""
        return (
            (selector.scope_key is None or row.placement.scope_key == selector.scope_key)
            and (selector.scope is None or row.placement.scope == selector.scope)
            and self.has_tags(row, selector.tags)
        )

    def has_tags(self, row: MemoryRow, wanted: Sequence[str]) -> bool:
        """Whether the memory has all of these tags."""
        return set(wanted) <= set(row.tags)

    def selected(self, selector: Selector, rows: Iterable[MemoryRow]) -> list[MemoryRow]:
        """Those of the rows that the selector covers."""
        return [row for row in rows if self.selects(selector, row)]

    def in_order(self, rows: Iterable[Row], after: Position | None) -> list[Row]:
        """By ``created_at`` descending, then ``id``; only those that come after the position."""
        ordered = sorted(rows, key=lambda row: row.id)
        ordered.sort(key=lambda row: row.created_at, reverse=True)
        return ordered if after is None else [row for row in ordered if self.follows(row, after)]

    def follows(self, row: ProjectRow | MemoryRow, after: Position) -> bool:
        """Whether a row comes after the position."""
        return row.created_at < after.created_at or (row.created_at == after.created_at and row.id > after.id)

    # ------------------------------------------------------------ projects

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        """The audience's projects with this key or id."""
        await self.pause()
        return [
            self.project_facts(row, audience) for row in self.readable_projects(audience) if self.is_called(row, name)
        ]

    def is_called(self, row: ProjectRow, name: str) -> bool:
        """Whether the name is the project's key or id."""
        return name in (row.key, row.id)

    async def list_projects(self, audience: Audience, *, after: Position | None, limit: int) -> Sequence[ProjectFacts]:
        """The audience's projects, newest first."""
        await self.pause()
        rows = self.in_order(self.readable_projects(audience), after)
        return [self.project_facts(row, audience) for row in rows[:limit]]

    async def register_project(self, new: NewProject) -> tuple[ProjectFacts, bool]:
        """Insert unless (owner, key) is there."""
        await self.pause()
        audience = Audience(new.owner)
        if (known := self.registered(new)) is not None:
            return self.project_facts(known, audience), False
        now = self.clock()
        row = ProjectRow(new.id, new.key, new.owner, 1, now, now, {})
        self.data.projects[new.id] = row
        self.data.audit[new.audit.id] = new.audit.record(now)
        return self.project_facts(row, audience), True

    def registered(self, new: NewProject) -> ProjectRow | None:
        """The project that its owner has under this key."""
        rows = self.data.projects.values()
        return next((row for row in rows if (row.owner, row.key) == (new.owner, new.key)), None)

    async def record(self, audit: AuditDraft) -> None:
        """Store an audit entry once."""
        await self.pause()
        self.data.audit.setdefault(audit.id, audit.record(self.clock()))

    async def change_share(self, change: ShareChange) -> Applied:
        """Compare-and-set on the project's version."""
        await self.pause()
        row = self.data.projects.get(change.project_id)
        if row is None:
            raise NotFound(f"There is no project {change.project_id}.")
        self.match_grants(row, change)
        row = self.shared(row, change)
        self.data.projects[row.id] = row
        self.data.audit[change.audit.id] = change.audit.record(row.updated_at)
        return Applied(row.version, row.created_at, row.updated_at)

    def match_grants(self, row: ProjectRow, change: ShareChange) -> None:
        """Compare-and-set. Raises VersionConflict."""
        self.match_version(row.version, change.expected_version)

    def shared(self, row: ProjectRow, change: ShareChange) -> ProjectRow:
        """The project with the grant changed."""
        shares = {group: share for group, share in row.shares.items() if group != change.group}
        if change.share is not None:
            shares[change.group] = change.share
        at = max(self.clock(), row.updated_at)
        return replace(row, shares=shares, version=self.next_version(row.version), updated_at=at)

    def project_facts(self, row: ProjectRow, audience: Audience) -> ProjectFacts:
        """A project as the audience may know it."""
        return ProjectFacts(
            id=row.id,
            key=row.key,
            owner=row.owner,
            version=row.version,
            created_at=row.created_at,
            updated_at=row.updated_at,
            grants=self.grants(row, audience),
            shares=dict(row.shares) if row.owner == audience.user else None,
        )

    # ------------------------------------------------------------ reads of memories

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """The memory, live or deleted, if the audience reads its scope."""
        await self.pause()
        row = self.data.memories.get(memory_id)
        if row is None or not self.may_load(row, audience):
            return None
        project = self.data.projects.get(row.placement.project_id or "")
        return MemoryFacts(
            memory=row.record(),
            scope_key=row.placement.scope_key,
            owner=project.owner if project else row.placement.user or "",
            grants=self.grants(project, audience) if project else (),
            deleted=row.deleted,
            passages=frozenset(key for of, key in row.passages if of == space),
            embedded=space in row.embedded,
        )

    def may_load(self, row: MemoryRow, audience: Audience) -> bool:
        """Whether the audience reads the memory's scope."""
        return self.in_scope(row.placement.scope_key, self.readable_keys(audience))

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """Readable memories, newest first."""
        await self.pause()
        rows = self.selected(selector, self.readable(audience, deleted=selector.deleted))
        return [row.record() for row in self.in_order(rows, after)[:limit]]

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """The fused order over the readable live memories."""
        await self.pause()
        live = self.searchable(audience)
        ranked = self.rank(live, self.selected(selector, live), query)[query.offset : query.offset + query.limit]
        return [Found(self.data.memories[one.id].record(), one) for one in ranked]

    async def history(
        self, audience: Audience, memory_id: str, *, before: int | None, limit: int
    ) -> Sequence[AuditRecord]:
        """A readable memory's audit entries by version descending."""
        await self.pause()
        row = self.data.memories.get(memory_id)
        if row is None or not self.may_load(row, audience):
            return []
        entries = [entry for entry in self.data.audit.values() if entry.memory_id == memory_id]
        entries.sort(key=lambda entry: -entry.version)
        return [entry for entry in entries if before is None or self.precedes(entry, before)][:limit]

    def precedes(self, entry: AuditRecord, version: int) -> bool:
        """Whether an audit entry is of an earlier version."""
        return entry.version < version

    # ------------------------------------------------------------ mutations

    async def apply(self, mutation: Mutation) -> Applied:
        """Stage every row of the mutation, then commit all of them at once."""
        await self.pause()
        now = self.clock()
        staged = Staged()
        self.stage_memory(staged, mutation, now)
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
            raise NotFound(f"There is no memory {mutation.memory_id} that is {'' if deleted else 'not '}deleted.")
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
        kept = self.kept_passages(row, passages)
        fresh = {(passages.space, one.hash): one.vector for one in passages.vectors}
        embedded = frozenset((passages.space,)) if passages.complete else frozenset[str]()
        return replace(row, passages={**kept, **fresh}, embedded=embedded)

    def kept_passages(self, row: MemoryRow, passages: Passages) -> dict[PassageKey, Vector]:
        """The stored passages that are still part of the text."""
        return {
            key: vector
            for key, vector in row.passages.items()
            if key[0] == passages.space and key[1] in passages.hashes
        }

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

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        """The receipt kept for this key."""
        await self.pause()
        row = self.kept_receipt(principal, key)
        if row is None:
            return None
        return StoredReceipt(row.claim.body_hash, row.claim.subject, row.claim.receipt, row.at)

    # ------------------------------------------------------------ vectors in the background

    async def register_space(self, space: Space, probes: Vectors) -> Vectors:
        """Insert the space unless it is there."""
        await self.pause()
        return self.data.spaces.setdefault(space.id, (space, probes))[1]

    async def unembedded(self, space: str, *, limit: int) -> Sequence[Unembedded]:
        """Live memories whose passages in the space are not complete."""
        await self.pause()
        rows = [row for row in self.data.memories.values() if not row.deleted and space not in row.embedded]
        return [
            Unembedded(row.id, row.version, row.content, frozenset(key for of, key in row.passages if of == space))
            for row in rows[:limit]
        ]

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        """Store background vectors if the memory is still at this version."""
        await self.pause()
        row = self.data.memories.get(memory_id)
        if row is None or row.deleted or row.version != version:
            return False
        others = {key: vector for key, vector in row.passages.items() if key[0] != passages.space}
        filled = self.with_passages(row, passages)
        self.data.memories[memory_id] = replace(
            filled,
            passages={**others, **filled.passages},
            embedded=(row.embedded - {passages.space}) | filled.embedded,
        )
        return True

    # ------------------------------------------------------------ terms of another analyser

    async def outdated_terms(self, analyser: str, *, limit: int) -> Sequence[Outdated]:
        """Live memories whose terms are not of this analyser."""
        await self.pause()
        rows = [row for row in self.data.memories.values() if self.is_outdated(row, analyser)]
        return [Outdated(row.id, row.version, row.content) for row in rows[:limit]]

    def is_outdated(self, row: MemoryRow, analyser: str) -> bool:
        """Whether a live memory's terms are of another analyser."""
        return not row.deleted and row.analyser != analyser

    async def store_terms(self, memory_id: str, version: int, analyser: str, terms: Terms) -> bool:
        """Replace the terms if the memory is still at this version."""
        await self.pause()
        row = self.data.memories.get(memory_id)
        if row is None or not self.is_present(row, version):
            return False
        self.data.memories[memory_id] = replace(row, analyser=analyser, terms=terms)
        return True

    def is_present(self, row: MemoryRow, version: int) -> bool:
        """Whether what was made in the background for this version is still good for the memory."""
        return not row.deleted and row.version == version

    async def pause(self) -> None:
        """Let others run, as any storage that waits for a server does."""
        await asyncio.sleep(0)


def create(context: PluginContext) -> ReferenceStorage:
    """The storage of ``memory:``."""
    return ReferenceStorage()
