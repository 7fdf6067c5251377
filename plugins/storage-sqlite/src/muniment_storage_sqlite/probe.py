"""What a file holds, read around the plugin, as the conformance suite compares it."""

from __future__ import annotations

import json
from sqlite3 import Connection

import numpy as np

from muniment.conformance.target import (
    Stored,
    StoredAgents,
    StoredAudit,
    StoredDedupeKey,
    StoredEntry,
    StoredEnvelope,
    StoredEvent,
    StoredPassage,
    StoredTerm,
)
from muniment.models import Agent


def stored(connection: Connection) -> Stored:
    """All of it, in one snapshot."""
    connection.execute("BEGIN")
    ((receipts,),) = connection.execute("SELECT count(*) FROM receipts")
    return Stored(
        passages=_passages(connection),
        terms=_terms(connection),
        audit=tuple(
            StoredAudit(*row) for row in connection.execute("SELECT id, action, memory_id, project_id FROM audit")
        ),
        receipts=receipts,
        rows=_rows(connection),
        agents=StoredAgents(
            envelopes=_envelopes(connection),
            exchanges=_exchanges(connection),
            events=_events(connection),
            dedupe_keys=_dedupe_keys(connection),
        ),
    )


def layout(connection: Connection) -> frozenset[str]:
    """Every table and index, each as the statement that made it."""
    return frozenset(f"{name}: {sql}" for name, sql in connection.execute("SELECT name, sql FROM sqlite_schema"))


def _rows(connection: Connection) -> dict[str, tuple[str, ...]]:
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    ).fetchall()
    return {name: tuple(sorted(map(repr, connection.execute(f"SELECT * FROM {name}")))) for (name,) in names}


def _passages(connection: Connection) -> tuple[StoredPassage, ...]:
    rows = connection.execute(
        """
        SELECT scopes.key, spaces.id, memories.id, passages.hash, passages.vector FROM passages
        JOIN scopes ON scopes.number = passages.scope JOIN spaces ON spaces.number = passages.space
        JOIN memories ON memories.number = passages.memory
        """
    )
    return tuple(
        StoredPassage(scope, space, memory, hash_, tuple(np.frombuffer(vector, dtype="<f4").tolist()))
        for scope, space, memory, hash_, vector in rows
    )


def _terms(connection: Connection) -> tuple[StoredTerm, ...]:
    rows = connection.execute(
        """
        SELECT scopes.key, memories.id, terms.term, terms.frequency FROM terms
        JOIN scopes ON scopes.number = terms.scope JOIN memories ON memories.number = terms.memory
        """
    )
    return tuple(StoredTerm(*row) for row in rows)


def _envelopes(connection: Connection) -> tuple[StoredEnvelope, ...]:
    versions: dict[tuple[str, str], dict[str, int]] = {}
    for agent, instance, name, version in connection.execute("SELECT agent, instance, name, version FROM sections"):
        versions.setdefault((agent, instance), {})[name] = version
    rows = connection.execute("SELECT agent, instance, revision, last_seen, sync_key FROM envelopes")
    return tuple(
        StoredEnvelope(
            Agent(name=agent, instance=instance), revision, last_seen, sync_key, versions.get((agent, instance), {})
        )
        for agent, instance, revision, last_seen, sync_key in rows
    )


def _exchanges(connection: Connection) -> tuple[StoredEntry, ...]:
    rows = connection.execute("SELECT agent, instance, revision, kind, peers, takeaway, size FROM exchanges")
    return tuple(
        StoredEntry(Agent(name=agent, instance=instance), revision, kind, tuple(json.loads(peers)), takeaway, size)
        for agent, instance, revision, kind, peers, takeaway, size in rows
    )


def _events(connection: Connection) -> tuple[StoredEvent, ...]:
    rows = connection.execute("SELECT id, agent, instance, acked, attempts, token, delivered FROM events")
    return tuple(
        StoredEvent(id_, Agent(name=agent, instance=instance), bool(acked), attempts, token, delivered)
        for id_, agent, instance, acked, attempts, token, delivered in rows
    )


def _dedupe_keys(connection: Connection) -> tuple[StoredDedupeKey, ...]:
    rows = connection.execute("SELECT agent, instance, key, revision FROM dedupe_keys")
    return tuple(
        StoredDedupeKey(Agent(name=agent, instance=instance), key, revision) for agent, instance, key, revision in rows
    )
