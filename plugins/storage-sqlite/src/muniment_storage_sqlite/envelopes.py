"""Agents' envelopes: their sections and what happened elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from muniment.agent_models import Exchange, ExchangeKind, SectionName, Visibility
from muniment.digests import StoredExchange
from muniment.errors import VersionConflict
from muniment.models import Agent
from muniment.ports import Appended, EnvelopeFacts, ExchangeAppend, ExchangeDraft, SectionsWrite, StoredSection
from muniment_storage_sqlite.times import moment, now
from muniment_storage_sqlite.trail import as_json, claim_key


def key(agent: Agent) -> dict[str, Any]:
    """An agent as the parameters of a statement."""
    return {"agent": agent.name, "instance": agent.instance}


def register(connection: Connection, agent: Agent, pods: frozenset[str]) -> None:
    """Replace the pods that an agent is in."""
    _make(connection, agent)
    connection.execute(
        "UPDATE envelopes SET pods = :pods WHERE agent = :agent AND instance = :instance",
        {**key(agent), "pods": as_json(sorted(pods))},
    )


def load(
    connection: Connection, agent: Agent, *, sections: Sequence[SectionName] | None, exchanges: bool
) -> EnvelopeFacts:
    """An envelope, with these sections (None: all) and, if asked for, its exchanges."""
    row = connection.execute(
        "SELECT revision, last_seen, sync_key, pods FROM envelopes WHERE agent = :agent AND instance = :instance",
        key(agent),
    ).fetchone()
    revision, last_seen, sync_key, pods = row or (0, 0, None, "[]")
    stored = _sections(connection, agent)
    return EnvelopeFacts(
        revision=revision,
        last_seen_revision=last_seen,
        sync_key=sync_key,
        pods=frozenset(json.loads(pods)),
        sections={name: one for name, one in stored.items() if sections is None or name in sections},
        exchanges=exchanges_of(connection, agent) if exchanges else (),
        now=moment(now()),
    )


def exchanges_of(connection: Connection, agent: Agent) -> tuple[StoredExchange, ...]:
    """All exchanges of an agent that are stored, newest first."""
    rows = connection.execute(
        """
        SELECT * FROM exchanges WHERE agent = :agent AND instance = :instance ORDER BY revision DESC
        """,
        key(agent),
    )
    return tuple(
        StoredExchange(
            Exchange(
                revision=row["revision"],
                ts=moment(row["at"]),
                kind=ExchangeKind(row["kind"]),
                surface_pod_id=row["pod"],
                surface_label=row["label"],
                peers=tuple(json.loads(row["peers"])),
                takeaway=row["takeaway"],
            ),
            row["size"],
        )
        for row in rows
    )


def numbers(connection: Connection, agent: Agent) -> tuple[int, int]:
    """An envelope's revision and last seen revision; zeros where there is none."""
    row = connection.execute(
        "SELECT revision, last_seen FROM envelopes WHERE agent = :agent AND instance = :instance", key(agent)
    ).fetchone()
    return tuple(row) if row else (0, 0)


def write_sections(connection: Connection, write: SectionsWrite) -> int:
    """Apply all changes, each at its expected version; when. Raises VersionConflict."""
    at = now()
    _make(connection, write.agent)
    for change in write.changes:
        row = connection.execute(
            "SELECT version FROM sections WHERE agent = :agent AND instance = :instance AND name = :name",
            {**key(write.agent), "name": change.name},
        ).fetchone()
        version = row["version"] if row else 0
        if version != change.expected_version:
            raise VersionConflict(version)
        connection.execute(
            """
            INSERT INTO sections (agent, instance, name, version, visibility, byte_size, updated_at, value)
            VALUES (:agent, :instance, :name, 1, :visibility, :byte_size, :at, :value)
            ON CONFLICT (agent, instance, name) DO UPDATE SET
                version = version + 1, visibility = excluded.visibility, byte_size = excluded.byte_size,
                updated_at = excluded.updated_at, value = excluded.value
            """,
            {
                **key(write.agent),
                "name": change.name,
                "visibility": change.visibility,
                "byte_size": change.byte_size,
                "at": at,
                "value": as_json(change.value),
            },
        )
    if not write.keeps_sync_key:
        connection.execute(
            "UPDATE envelopes SET sync_key = :sync_key WHERE agent = :agent AND instance = :instance",
            {**key(write.agent), "sync_key": write.sync_key},
        )
    return at


def append(connection: Connection, append: ExchangeAppend) -> Appended:
    """Append to every recipient's envelope, unless one has had the dedupe key. Raises ReceiptTaken."""
    at = now()
    had = [_had(connection, entry.agent, append.dedupe_key) for entry in append.entries]
    if any(revision is not None for revision in had):
        return Appended(tuple(had), deduped=True, at=moment(at))
    claim_key(connection, append.claim, at)
    revisions = tuple(_append(connection, entry, append, at) for entry in append.entries)
    return Appended(revisions, deduped=False, at=moment(at))


def raise_last_seen(connection: Connection, agent: Agent, revision: int) -> int:
    """Raise the last seen revision to at least ``revision``; what it is now."""
    if revision:
        _make(connection, agent)
    connection.execute(
        """
        UPDATE envelopes SET last_seen = :revision
        WHERE agent = :agent AND instance = :instance AND last_seen < :revision
        """,
        {**key(agent), "revision": revision},
    )
    return numbers(connection, agent)[1]


def _make(connection: Connection, agent: Agent) -> None:
    connection.execute(
        """
        INSERT INTO envelopes (agent, instance, revision, last_seen, sync_key, pods)
        VALUES (:agent, :instance, 0, 0, NULL, '[]') ON CONFLICT (agent, instance) DO NOTHING
        """,
        key(agent),
    )


def _sections(connection: Connection, agent: Agent) -> dict[SectionName, StoredSection]:
    rows = connection.execute("SELECT * FROM sections WHERE agent = :agent AND instance = :instance", key(agent))
    return {
        SectionName(row["name"]): StoredSection(
            value=json.loads(row["value"]),
            visibility=Visibility(row["visibility"]),
            version=row["version"],
            byte_size=row["byte_size"],
            updated_at=moment(row["updated_at"]),
        )
        for row in rows
    }


def _had(connection: Connection, agent: Agent, dedupe_key: str) -> int | None:
    """The revision that a dedupe key got in an agent's envelope; None where it never had it."""
    row = connection.execute(
        "SELECT revision FROM dedupe_keys WHERE agent = :agent AND instance = :instance AND key = :key",
        {**key(agent), "key": dedupe_key},
    ).fetchone()
    return row and row["revision"]


def _append(connection: Connection, entry: ExchangeDraft, append: ExchangeAppend, at: int) -> int:
    _make(connection, entry.agent)
    (revision,) = connection.execute(
        """
        UPDATE envelopes SET revision = revision + 1 WHERE agent = :agent AND instance = :instance RETURNING revision
        """,
        key(entry.agent),
    ).fetchone()
    stamped = {**key(entry.agent), "revision": revision}
    connection.execute(
        """
        INSERT INTO exchanges (agent, instance, revision, at, kind, pod, label, peers, takeaway, size)
        VALUES (:agent, :instance, :revision, :at, :kind, :pod, :label, :peers, :takeaway, :size)
        """,
        {
            **stamped,
            "at": at,
            "kind": entry.kind,
            "pod": entry.surface_pod_id,
            "label": entry.surface_label,
            "peers": as_json(entry.peers),
            "takeaway": entry.takeaway,
            "size": entry.size,
        },
    )
    connection.execute(
        "DELETE FROM exchanges WHERE agent = :agent AND instance = :instance AND revision <= :revision - :kept",
        {**stamped, "kept": append.kept},
    )
    connection.execute(
        "INSERT INTO dedupe_keys (agent, instance, key, revision) VALUES (:agent, :instance, :key, :revision)",
        {**stamped, "key": append.dedupe_key},
    )
    return revision
