"""The tables, and how a file gets them: each step once, in one transaction, whoever comes first.

``user_version`` counts the steps that a file has had; ``application_id`` tells a file of Muniment from other databases.
Times are microseconds, vectors little-endian float32, what has a structure of its own is JSON.

Each memory belongs to a scope. The rows that a search reads lead with it, so that a search costs what its caller can
read. A scope's ``generation`` is raised by each commit that changes anything in it: what was read of a scope at one
generation is what there is at that generation, in every process.

``embedded_in`` lists the numbers of the spaces that a memory's passages are complete in, such as ``,1,3,``. It has few
different values, so those without a space are found by a look at each. A space's number is never used again.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muniment.errors import ConfigurationError

APPLICATION: Final = 0x4D756E69
"""What the header of a file of Muniment says, "Muni" in ASCII."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the schema: its name, and statements that end in a semicolon at the end of a line."""

    name: str
    sql: str


STEPS: Final[tuple[Step, ...]] = (
    Step(
        "1: memories and agent memory",
        """
        CREATE TABLE projects (
            id TEXT PRIMARY KEY, key TEXT NOT NULL, owner TEXT NOT NULL, version INTEGER NOT NULL,
            created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, UNIQUE (owner, key)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX projects_by_key ON projects (key);
        CREATE TABLE shares (
            project TEXT NOT NULL REFERENCES projects (id), team TEXT NOT NULL, share TEXT NOT NULL,
            PRIMARY KEY (team, project)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX shares_by_project ON shares (project);
        CREATE TABLE scopes (
            number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, user TEXT UNIQUE,
            project TEXT UNIQUE REFERENCES projects (id), generation INTEGER NOT NULL
        ) STRICT;

        CREATE TABLE memories (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, scope INTEGER NOT NULL REFERENCES scopes (number),
            deleted INTEGER NOT NULL, version INTEGER NOT NULL, created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL, last_edited_by TEXT NOT NULL, analyser TEXT NOT NULL,
            words INTEGER NOT NULL, tags TEXT NOT NULL, content TEXT NOT NULL
        ) STRICT;
        CREATE INDEX memories_in_order ON memories (scope, deleted, created_at DESC, id);
        CREATE INDEX memories_by_length ON memories (scope, deleted, number, words);
        CREATE INDEX memories_by_analyser ON memories (analyser) WHERE NOT deleted;
        CREATE TABLE tags (
            scope INTEGER NOT NULL, tag TEXT NOT NULL, memory INTEGER NOT NULL REFERENCES memories (number),
            PRIMARY KEY (scope, tag, memory)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX tags_by_memory ON tags (memory);
        CREATE TABLE terms (
            scope INTEGER NOT NULL, term TEXT NOT NULL, memory INTEGER NOT NULL REFERENCES memories (number),
            frequency INTEGER NOT NULL, PRIMARY KEY (scope, term, memory)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE term_lists (
            memory INTEGER PRIMARY KEY REFERENCES memories (number), terms TEXT NOT NULL
        ) STRICT;

        CREATE TABLE spaces (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, provider TEXT NOT NULL, model TEXT NOT NULL,
            dimensions INTEGER NOT NULL, pooling TEXT NOT NULL, normalised INTEGER NOT NULL,
            passage_tokens INTEGER NOT NULL, probes BLOB NOT NULL
        ) STRICT;
        CREATE TABLE passages (
            number INTEGER PRIMARY KEY AUTOINCREMENT, scope INTEGER NOT NULL,
            space INTEGER NOT NULL REFERENCES spaces (number), memory INTEGER NOT NULL REFERENCES memories (number),
            hash TEXT NOT NULL, vector BLOB NOT NULL, UNIQUE (memory, space, hash)
        ) STRICT;
        CREATE INDEX passages_in_scope ON passages (scope, space, memory);
        CREATE TABLE embedded (
            memory INTEGER NOT NULL REFERENCES memories (number), space INTEGER NOT NULL REFERENCES spaces (number),
            PRIMARY KEY (memory, space)
        ) STRICT, WITHOUT ROWID;

        CREATE TABLE audit (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, at INTEGER NOT NULL, actor TEXT NOT NULL, agent TEXT,
            surface TEXT NOT NULL, action TEXT NOT NULL, memory_id TEXT, project_id TEXT, version INTEGER NOT NULL,
            changed TEXT NOT NULL, scope_key TEXT NOT NULL, moved_to TEXT, patch TEXT, details TEXT
        ) STRICT;
        CREATE INDEX audit_by_memory ON audit (memory_id, version);
        CREATE TABLE receipts (
            principal TEXT NOT NULL, key TEXT NOT NULL, body_hash TEXT NOT NULL, subject TEXT NOT NULL,
            receipt TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (principal, key)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX receipts_by_age ON receipts (at);

        CREATE TABLE envelopes (
            agent TEXT NOT NULL, instance TEXT NOT NULL, revision INTEGER NOT NULL, last_seen INTEGER NOT NULL,
            sync_key TEXT, pods TEXT NOT NULL, PRIMARY KEY (agent, instance)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE sections (
            agent TEXT NOT NULL, instance TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
            visibility TEXT NOT NULL, byte_size INTEGER NOT NULL, updated_at INTEGER NOT NULL, value TEXT NOT NULL,
            PRIMARY KEY (agent, instance, name)
        ) STRICT;
        CREATE TABLE exchanges (
            agent TEXT NOT NULL, instance TEXT NOT NULL, revision INTEGER NOT NULL, at INTEGER NOT NULL,
            kind TEXT NOT NULL, pod TEXT NOT NULL, label TEXT NOT NULL, peers TEXT NOT NULL, takeaway TEXT NOT NULL,
            size INTEGER NOT NULL, PRIMARY KEY (agent, instance, revision)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE dedupe_keys (
            agent TEXT NOT NULL, instance TEXT NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL,
            PRIMARY KEY (agent, instance, key)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE events (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, instance TEXT NOT NULL,
            enqueued_at INTEGER NOT NULL, acked INTEGER NOT NULL, attempts INTEGER NOT NULL, token TEXT,
            delivered INTEGER, lease_until INTEGER, payload TEXT NOT NULL
        ) STRICT;
        CREATE INDEX events_open ON events (agent, instance, number) WHERE NOT acked;
        """,
    ),
    Step(
        "2: API tokens",
        """
        CREATE TABLE api_tokens (
            id TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, user TEXT NOT NULL, teams TEXT NOT NULL,
            scopes TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER, last_used_at INTEGER,
            revoked_at INTEGER
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX api_tokens_in_order ON api_tokens (created_at DESC, id);
        """,
    ),
    Step(
        "3: spaces that are filled, activated and dropped",
        """
        ALTER TABLE spaces ADD COLUMN embedder TEXT;
        ALTER TABLE spaces ADD COLUMN registered_at INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE spaces ADD COLUMN activated_at INTEGER;
        UPDATE spaces SET registered_at = CAST(strftime('%s', 'now') AS INTEGER) * 1000000;
        CREATE TABLE space_numbers (number INTEGER PRIMARY KEY AUTOINCREMENT) STRICT;
        INSERT INTO space_numbers SELECT number FROM spaces;
        DELETE FROM space_numbers;

        ALTER TABLE memories ADD COLUMN embedded_in TEXT NOT NULL DEFAULT ',';
        UPDATE memories SET embedded_in = (
            SELECT ',' || group_concat(space, ',') || ','
            FROM (SELECT space FROM embedded WHERE memory = memories.number ORDER BY space)
        ) WHERE number IN (SELECT memory FROM embedded);
        DROP TABLE embedded;
        CREATE INDEX memories_by_embedding ON memories (embedded_in, id) WHERE NOT deleted;
        CREATE TABLE leases (
            memory INTEGER NOT NULL REFERENCES memories (number), space INTEGER NOT NULL, version INTEGER NOT NULL,
            until INTEGER NOT NULL, PRIMARY KEY (memory, space)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX leases_by_end ON leases (until);
        DROP INDEX passages_in_scope;
        CREATE INDEX passages_in_space ON passages (space, scope, memory);

        CREATE INDEX audit_of_scope ON audit (scope_key, at DESC, id) WHERE memory_id IS NULL;
        """,
    ),
)


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """How many steps the file has had. Raises ConfigurationError as ``bring_up_to_date``."""
    application, version, tables = connection.execute(
        """
        SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
        FROM pragma_application_id, pragma_user_version
        """
    ).fetchone()
    if application != APPLICATION and (application or version or tables):
        raise ConfigurationError(f"{path} is the database of another program; name another file.")
    if version > len(STEPS):
        raise ConfigurationError(
            f"{path} has schema {version}, and this muniment-storage-sqlite knows {len(STEPS)}; upgrade it."
        )
    return version


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> tuple[str, ...]:
    """Take the steps that the file has not had; their names. Waits for another process that takes them.

    Raises ConfigurationError for a file that is another program's, or a newer Muniment's.
    """
    if version_of(connection, path) == len(STEPS):
        return ()
    connection.execute("BEGIN IMMEDIATE")
    try:
        missing = STEPS[version_of(connection, path) :]
        for step in missing:
            for statement in step.sql.split(";\n"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    return tuple(step.name for step in missing)


def roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction that failed, where SQLite has not; what it failed with is what counts."""
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
