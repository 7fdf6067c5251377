"""API tokens, found by the hash of their secret."""

from __future__ import annotations

import json
from collections.abc import Sequence
from sqlite3 import Connection, Row

from muniment.ports import NewToken, Position, StoredToken
from muniment_storage_sqlite.times import moment, now, stored
from muniment_storage_sqlite.trail import as_json


def add(connection: Connection, token: NewToken) -> StoredToken:
    """Keep a token."""
    connection.execute(
        "INSERT INTO api_tokens (id, digest, user, teams, scopes, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            token.id,
            token.digest,
            token.user,
            as_json(sorted(token.groups)),
            as_json(token.scopes),
            now(),
            stored(token.expires_at) if token.expires_at else None,
        ),
    )
    return _token(connection.execute("SELECT * FROM api_tokens WHERE id = ?", (token.id,)).fetchone())


def find(connection: Connection, digest: str) -> StoredToken | None:
    """By its hash."""
    row = connection.execute("SELECT * FROM api_tokens WHERE digest = ?", (digest,)).fetchone()
    return row and _token(row)


def list_them(connection: Connection, *, after: Position | None, limit: int) -> Sequence[StoredToken]:
    """Newest first."""
    rows = connection.execute(
        """
        SELECT * FROM api_tokens
        WHERE :at IS NULL OR created_at < :at OR (created_at = :at AND id > :after)
        ORDER BY created_at DESC, id LIMIT :limit
        """,
        {
            "at": stored(after.created_at) if after else None,
            "after": after.id if after else None,
            "limit": limit,
        },
    )
    return [_token(row) for row in rows]


def revoke(connection: Connection, token_id: str) -> StoredToken | None:
    """Once."""
    row = connection.execute(
        "UPDATE api_tokens SET revoked_at = coalesce(revoked_at, ?) WHERE id = ? RETURNING *", (now(), token_id)
    ).fetchone()
    return row and _token(row)


def touch(connection: Connection, token_id: str) -> None:
    """By max."""
    connection.execute(
        "UPDATE api_tokens SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?", (now(), token_id)
    )


def _token(row: Row) -> StoredToken:
    times = (row[name] for name in ("expires_at", "last_used_at", "revoked_at"))
    return StoredToken(
        row["id"],
        row["user"],
        frozenset(json.loads(row["teams"])),
        tuple(json.loads(row["scopes"])),
        moment(row["created_at"]),
        *(None if at is None else moment(at) for at in times),
    )
