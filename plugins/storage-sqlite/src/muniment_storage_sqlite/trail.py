"""The audit trail and the idempotency receipts, which are stored with the writes that they belong to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from sqlite3 import Connection, Row
from typing import Any

from muniment import limits
from muniment.models import AuditRecord, PatchEffect
from muniment.ports import Audience, AuditDraft, Position, ReceiptClaim, ReceiptTaken, StoredReceipt
from muniment_storage_sqlite.audiences import READABLE, parameters
from muniment_storage_sqlite.times import length, moment, now, stored

_INSERT = """
    INSERT INTO audit (
        id, at, actor, agent, surface, action, memory_id, project_id, version, changed, scope_key, moved_to, patch,
        details
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""


def store_entry(connection: Connection, draft: AuditDraft, at: int) -> None:
    """Store an audit entry, unless one with its id is there."""
    entry = draft.record(moment(at))
    connection.execute(
        _INSERT,
        (
            entry.id,
            at,
            entry.actor,
            entry.agent,
            entry.surface,
            entry.action,
            entry.memory_id,
            entry.project_id,
            entry.version,
            as_json(entry.changed),
            entry.scope_key,
            entry.moved_to,
            entry.patch and entry.patch.model_dump_json(),
            entry.details and as_json(entry.details),
        ),
    )


def history(
    connection: Connection, audience: Audience, memory_id: str, *, before: int | None, limit: int
) -> Sequence[AuditRecord]:
    """The audit entries of a memory that the audience reads, newest version first."""
    rows = connection.execute(
        READABLE
        + """
        SELECT audit.* FROM memories JOIN audit ON audit.memory_id = memories.id
        WHERE memories.id = :id AND memories.scope IN (SELECT scope FROM readable)
            AND (:before IS NULL OR audit.version < :before)
        ORDER BY audit.version DESC, audit.number DESC LIMIT :limit
        """,
        {**parameters(audience), "id": memory_id, "before": before, "limit": limit},
    )
    return [_entry(row) for row in rows]


def of_scope(connection: Connection, scope_key: str, *, after: Position | None, limit: int) -> Sequence[AuditRecord]:
    """The audit entries of a scope that belong to no memory, newest first."""
    rows = connection.execute(
        """
        SELECT * FROM audit
        WHERE scope_key = :scope AND memory_id IS NULL AND (:at IS NULL OR at <= :at)
            AND (:at IS NULL OR at < :at OR id > :after)
        ORDER BY at DESC, id LIMIT :limit
        """,
        {
            "scope": scope_key,
            "at": stored(after.created_at) if after else None,
            "after": after.id if after else None,
            "limit": limit,
        },
    )
    return [_entry(row) for row in rows]


def claim_key(connection: Connection, claim: ReceiptClaim | None, at: int) -> None:
    """Take an idempotency key for the write of ``at``, and drop those that are too old. Raises ReceiptTaken."""
    if claim is None:
        return
    connection.execute("DELETE FROM receipts WHERE at < ?", (now() - length(limits.IDEMPOTENCY_KEPT),))
    taken = connection.execute(
        """
        INSERT INTO receipts (principal, key, body_hash, subject, receipt, at) VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (principal, key) DO NOTHING
        """,
        (claim.principal, claim.key, claim.body_hash, claim.subject, as_json(claim.receipt), at),
    )
    if taken.rowcount == 0:
        raise ReceiptTaken


def find_receipt(connection: Connection, principal: str, key: str) -> StoredReceipt | None:
    """The receipt of a key that is not too old."""
    row = connection.execute(
        "SELECT * FROM receipts WHERE principal = ? AND key = ? AND at >= ?",
        (principal, key, now() - length(limits.IDEMPOTENCY_KEPT)),
    ).fetchone()
    if row is None:
        return None
    return StoredReceipt(row["body_hash"], row["subject"], json.loads(row["receipt"]), moment(row["at"]))


def as_json(value: Any) -> str:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _entry(row: Row) -> AuditRecord:
    return AuditRecord(
        id=row["id"],
        at=moment(row["at"]),
        actor=row["actor"],
        agent=row["agent"],
        surface=row["surface"],
        action=row["action"],
        memory_id=row["memory_id"],
        project_id=row["project_id"],
        version=row["version"],
        changed=tuple(json.loads(row["changed"])),
        scope_key=row["scope_key"],
        moved_to=row["moved_to"],
        patch=PatchEffect.model_validate_json(row["patch"]) if row["patch"] else None,
        details=json.loads(row["details"]) if row["details"] else None,
    )
