"""The reference storage: the contract in memory, each rule of it a method that a mutant can break.

Who reads what is in ``readers``, what a mutation does in ``changes``, the scoring of a search in ``search``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from muniment.lexical import Terms
from muniment.models import Agent, AuditRecord, MemoryRecord
from muniment.ports import (
    Applied,
    Audience,
    AuditDraft,
    Backlog,
    Claim,
    Found,
    MemoryFacts,
    NewProject,
    Outdated,
    PluginContext,
    Position,
    ProjectFacts,
    SearchQuery,
    Selector,
    ShareChange,
    StoredReceipt,
)
from muniment.ports.refusals import no_project
from muniment.reference.agent_rows import EventRow
from muniment.reference.agents import ReferenceAgents
from muniment.reference.readers import Readers
from muniment.reference.rows import MemoryRow, ProjectRow, ReferenceData
from muniment.reference.search import ExactSearch
from muniment.reference.spaces import ReferenceSpaces
from muniment.reference.tokens import ReferenceTokens


def _now() -> datetime:
    return datetime.now(UTC)


class ReferenceStorage(Readers, ReferenceSpaces, ReferenceAgents, ReferenceTokens, ExactSearch):
    """``muniment.ports.Storage`` over a ``ReferenceData``, which several instances may share."""

    WRITE_POINTS: ClassVar[tuple[str, ...]] = ("memory", "terms", "passages", "project", "audit", "receipt")
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
        row, entry = self.made(new, self.clock())
        self.data.projects[row.id] = row
        self.data.audit[entry.id] = entry
        return self.project_facts(row, audience), True

    async def record(self, audit: AuditDraft) -> None:
        """Store an audit entry once."""
        await self.pause()
        self.data.audit.setdefault(audit.id, audit.record(self.clock()))

    async def change_share(self, change: ShareChange) -> Applied:
        """Compare-and-set on the project's version."""
        await self.pause()
        row = self.data.projects.get(change.project_id)
        if row is None:
            raise no_project(change.project_id)
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

    async def trail(self, scope_key: str, *, after: Position | None, limit: int) -> Sequence[AuditRecord]:
        """A scope's audit entries that belong to no memory, newest first."""
        await self.pause()
        entries = [one for one in self.data.audit.values() if one.scope_key == scope_key and one.memory_id is None]
        entries.sort(key=lambda one: one.id)
        entries.sort(key=lambda one: one.at, reverse=True)
        return [one for one in entries if after is None or self.is_older(one, after)][:limit]

    def is_older(self, entry: AuditRecord, after: Position) -> bool:
        """Whether an audit entry comes after a page's last."""
        return entry.at < after.created_at or (entry.at == after.created_at and entry.id > after.id)

    # ------------------------------------------------------------ receipts

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        """The receipt kept for this key."""
        await self.pause()
        row = self.kept_receipt(principal, key)
        if row is None:
            return None
        return StoredReceipt(row.claim.body_hash, row.claim.subject, row.claim.receipt, row.at)

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

    # ------------------------------------------------------------ what waits

    async def backlog(self, space: str | None, *, attempts_max: int) -> Backlog:
        """Counted row by row."""
        await self.pause()
        now = self.clock()
        events = [row for agent in self.agents.events for row in self.events_of(agent)]
        memories = self.data.memories.values() if space is not None else ()
        return Backlog(
            events_waiting=sum(self.waits(row, attempts_max, now) for row in events),
            embeddings_pending=sum(self.lacks_vectors(row, space or "") for row in memories),
        )

    async def agents_waiting(self, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
        """Those of the agents with an event that a claim would get."""
        await self.pause()
        now = self.clock()
        return frozenset(
            agent for agent in agents if any(self.waits(row, attempts_max, now) for row in self.events_of(agent))
        )

    def waits(self, row: EventRow, attempts_max: int, now: datetime) -> bool:
        """Whether a claim would get an event."""
        return self.is_claimable(row, Claim(row.agent, (), timedelta(0), attempts_max), now)

    def lacks_vectors(self, row: MemoryRow, space: str) -> bool:
        """Whether a live memory's passages in a space are not complete."""
        return not row.deleted and space not in row.embedded


def create(context: PluginContext) -> ReferenceStorage:
    """The storage of ``memory:``."""
    return ReferenceStorage()
