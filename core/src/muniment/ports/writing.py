"""What is written: mutations with everything that is stored with them, and changes of projects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muniment.lexical import Terms
from muniment.models import AuditRecord, PatchEffect, Scope, Share
from muniment.ports.vectors import Passages


class ReceiptTaken(Exception):
    """Raised by ``apply``, ``append_exchange`` and ``enqueue``: the idempotency key is taken; nothing was applied.

    The engine looks it up. A key older than ``limits.IDEMPOTENCY_KEPT`` is free: ``find_receipt`` and this agree.
    """


class ProjectTaken(Exception):
    """Raised by ``apply``: the owner has a project with the key of the one to register; nothing was applied.

    The engine finds that one, and makes the change anew.
    """


@dataclass(frozen=True, slots=True)
class AuditDraft:
    """The audit entry that a mutation stores with itself; the storage adds ``at``, the mutation's time."""

    id: str
    actor: str
    agent: str | None
    surface: str
    action: str
    memory_id: str | None
    project_id: str | None
    version: int
    changed: tuple[str, ...]
    scope_key: str
    moved_to: str | None = None
    patch: PatchEffect | None = None
    details: Mapping[str, Any] | None = None

    def record(self, at: datetime) -> AuditRecord:
        """The entry as it is stored at ``at``, and as an observer sees it."""
        return AuditRecord(
            id=self.id,
            at=at,
            actor=self.actor,
            agent=self.agent,
            surface=self.surface,
            action=self.action,
            memory_id=self.memory_id,
            project_id=self.project_id,
            version=self.version,
            changed=self.changed,
            scope_key=self.scope_key,
            moved_to=self.moved_to,
            patch=self.patch,
            details=dict(self.details) if self.details else None,
        )


@dataclass(frozen=True, slots=True)
class ReceiptClaim:
    """An idempotency key, stored with the write that it protects and kept for ``limits.IDEMPOTENCY_KEPT``.

    ``principal`` and ``key`` together are unique among those kept; ``subject`` is the id of what was written,
    ``receipt`` the answer without its time.
    """

    principal: str
    key: str
    body_hash: str
    subject: str
    receipt: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A claim as it was stored, with the time of its mutation."""

    body_hash: str
    subject: str
    receipt: Mapping[str, Any]
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Index:
    """A memory's search entries for its new content; they replace the old ones whole.

    Afterwards the memory has these terms and, of passages, only those of ``passages``: whatever else it had, in
    any space, is gone. ``passages`` None leaves it none.
    """

    analyser: str
    terms: Terms
    passages: Passages | None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a memory lives."""

    scope_key: str
    scope: Scope
    user: str | None
    project_id: str | None


@dataclass(frozen=True, slots=True)
class NewProject:
    """A project to register for ``owner`` unless the owner has one with this key."""

    id: str
    key: str
    owner: str
    audit: AuditDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change of one memory. The storage applies all of it, its audit entry, its claim and the project that it
    registers, or none of it.

    Only a mutation with a ``placement`` may have ``registers``: the project that the placement names, which is not
    there yet.
    """

    memory_id: str
    editor: str
    audit: AuditDraft
    claim: ReceiptClaim | None = None
    registers: NewProject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(Mutation):
    """A new memory, at version 1."""

    placement: Placement
    content: str
    tags: tuple[str, ...]
    index: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Revise(Mutation):
    """Change of a live memory at ``expected_version``; a field that is None stays as it is.

    ``index`` is there exactly when ``content`` is. A ``placement`` moves terms and passages along.
    """

    expected_version: int
    content: str | None = None
    tags: tuple[str, ...] | None = None
    placement: Placement | None = None
    index: Index | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(Mutation):
    """Soft deletion of a live memory at ``expected_version``: its terms and passages go, the rest stays."""

    expected_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore(Mutation):
    """A deleted memory at ``expected_version`` becomes live again, with ``index`` rebuilt."""

    expected_version: int
    index: Index


@dataclass(frozen=True, slots=True)
class Applied:
    """What the storage decided: the new version, and times by its own clock (microseconds, UTC)."""

    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ShareChange:
    """Grant ``share`` to ``group`` on a project at ``expected_version``; None takes the grant away."""

    project_id: str
    expected_version: int
    group: str
    share: Share | None
    audit: AuditDraft
