"""What the reference storage keeps, as frozen rows, and a change that is staged until it is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime

from muniment.lexical import Terms
from muniment.models import AuditRecord, MemoryRecord, Share
from muniment.ports import Placement, ReceiptClaim, RegisteredSpace, StoredToken, Vector, Vectors
from muniment.reference.agent_rows import AgentData

PassageKey = tuple[str, str]
"""Space id and passage hash."""


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """A project and its grants by group."""

    id: str
    key: str
    owner: str
    version: int
    created_at: datetime
    updated_at: datetime
    shares: Mapping[str, Share]


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A memory with its search entries, filed under a scope key of their own; a deleted one has none."""

    id: str
    placement: Placement
    entries_under: str
    content: str
    tags: tuple[str, ...]
    version: int
    editor: str
    created_at: datetime
    updated_at: datetime
    deleted: bool = False
    analyser: str | None = None
    terms: Terms | None = None
    passages: Mapping[PassageKey, Vector] = field(default_factory=dict[PassageKey, Vector])
    embedded: frozenset[str] = frozenset()

    def record(self) -> MemoryRecord:
        """The nine fields."""
        return MemoryRecord(
            id=self.id,
            scope=self.placement.scope,
            project_id=self.placement.project_id,
            content=self.content,
            tags=self.tags,
            version=self.version,
            last_edited_by=self.editor,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """A claim and when it was stored."""

    claim: ReceiptClaim
    at: datetime


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token and the hash that it is found by."""

    digest: str
    token: StoredToken


@dataclass(frozen=True, slots=True)
class SpaceRow:
    """A registered space and the vectors of its probe sentences."""

    registered: RegisteredSpace
    probes: Vectors


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """Until when whoever fills a space works on a memory, and on which version of it."""

    version: int
    until: datetime


def _columns() -> set[str]:
    rows = (ProjectRow, MemoryRow, ReceiptRow, TokenRow, SpaceRow, LeaseRow)
    return {f"{row.__name__}.{one.name}: {one.type}" for row in rows for one in fields(row)}


@dataclass(slots=True)
class ReferenceData:
    """Everything that is stored. Several clients may share one; it outlives a client that is closed."""

    projects: dict[str, ProjectRow] = field(default_factory=dict[str, ProjectRow])
    memories: dict[str, MemoryRow] = field(default_factory=dict[str, MemoryRow])
    audit: dict[str, AuditRecord] = field(default_factory=dict[str, AuditRecord])
    receipts: dict[tuple[str, str], ReceiptRow] = field(default_factory=dict[tuple[str, str], ReceiptRow])
    agents: AgentData = field(default_factory=AgentData)
    spaces: dict[str, SpaceRow] = field(default_factory=dict[str, SpaceRow])
    leases: dict[tuple[str, str], LeaseRow] = field(default_factory=dict[tuple[str, str], LeaseRow])
    """By space and memory."""
    tokens: dict[str, TokenRow] = field(default_factory=dict[str, TokenRow])
    columns: set[str] = field(default_factory=_columns)
    """What a schema would say; nothing that is done changes it."""


@dataclass(slots=True)
class Staged:
    """The rows that one mutation writes, kept apart until all of them are made."""

    memory: MemoryRow | None = None
    audit: AuditRecord | None = None
    receipt: ReceiptRow | None = None
    project: ProjectRow | None = None
    project_audit: AuditRecord | None = None

    def commit(self, data: ReferenceData) -> None:
        """Store all of it. Nothing here can fail."""
        if self.memory is not None:
            data.memories[self.memory.id] = self.memory
        if self.project is not None:
            data.projects[self.project.id] = self.project
        for entry in (self.project_audit, self.audit):
            if entry is not None:
                data.audit[entry.id] = entry
        if self.receipt is not None:
            data.receipts[self.receipt.claim.principal, self.receipt.claim.key] = self.receipt
