"""Projects and their grants."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection, Row

from muniment.errors import VersionConflict
from muniment.models import Share
from muniment.ports import Applied, Audience, NewProject, Position, ProjectFacts, ShareChange
from muniment.ports.refusals import no_project
from muniment_storage_sqlite.audiences import GRANTS, READABLE, parameters
from muniment_storage_sqlite.times import moment, now, stored
from muniment_storage_sqlite.trail import store_entry


def find(connection: Connection, audience: Audience, name: str) -> Sequence[ProjectFacts]:
    """The audience's projects whose key or id is ``name``."""
    rows = connection.execute(
        READABLE
        + """
        SELECT * FROM projects
        WHERE (key = :name OR id = :name) AND id IN (SELECT project FROM mine)
        """,
        {**parameters(audience), "name": name},
    ).fetchall()
    return [_facts(connection, row, audience) for row in rows]


def list_them(
    connection: Connection, audience: Audience, *, after: Position | None, limit: int
) -> Sequence[ProjectFacts]:
    """The audience's projects, newest first."""
    rows = connection.execute(
        READABLE
        + """
        SELECT * FROM projects
        WHERE id IN (SELECT project FROM mine)
            AND (:at IS NULL OR created_at < :at OR (created_at = :at AND id > :after))
        ORDER BY created_at DESC, id LIMIT :limit
        """,
        {
            **parameters(audience),
            "at": stored(after.created_at) if after else None,
            "after": after.id if after else None,
            "limit": limit,
        },
    ).fetchall()
    return [_facts(connection, row, audience) for row in rows]


def register(connection: Connection, new: NewProject) -> tuple[ProjectFacts, bool]:
    """Insert unless the owner has one with this key; the project, and whether it was inserted."""
    inserted = insert(connection, new, now())
    row = connection.execute("SELECT * FROM projects WHERE owner = ? AND key = ?", (new.owner, new.key)).fetchone()
    return _facts(connection, row, Audience(user=new.owner)), inserted


def insert(connection: Connection, new: NewProject, at: int) -> bool:
    """Insert a project and its audit entry unless the owner has one with this key; whether it was inserted."""
    inserted = connection.execute(
        """
        INSERT INTO projects (id, key, owner, version, created_at, updated_at) VALUES (?, ?, ?, 1, ?, ?)
        ON CONFLICT (owner, key) DO NOTHING
        """,
        (new.id, new.key, new.owner, at, at),
    )
    if inserted.rowcount:
        store_entry(connection, new.audit, at)
    return bool(inserted.rowcount)


def change_share(connection: Connection, change: ShareChange) -> Applied:
    """Grant, or take a grant away, and raise the project's version. Raises NotFound, VersionConflict."""
    row = connection.execute("SELECT * FROM projects WHERE id = ?", (change.project_id,)).fetchone()
    if row is None:
        raise no_project(change.project_id)
    if row["version"] != change.expected_version:
        raise VersionConflict(row["version"])
    at = max(now(), row["updated_at"])
    if change.share is None:
        connection.execute("DELETE FROM shares WHERE project = ? AND team = ?", (change.project_id, change.group))
    else:
        connection.execute(
            """
            INSERT INTO shares (project, team, share) VALUES (?, ?, ?)
            ON CONFLICT (team, project) DO UPDATE SET share = excluded.share
            """,
            (change.project_id, change.group, change.share),
        )
    version = row["version"] + 1
    connection.execute("UPDATE projects SET version = ?, updated_at = ? WHERE id = ?", (version, at, change.project_id))
    store_entry(connection, change.audit, at)
    return Applied(version, moment(row["created_at"]), moment(at))


def _facts(connection: Connection, row: Row, audience: Audience) -> ProjectFacts:
    grants = connection.execute(GRANTS, {**parameters(audience), "project": row["id"]})
    shares = connection.execute("SELECT team, share FROM shares WHERE project = ?", (row["id"],))
    owned = row["owner"] == audience.user
    return ProjectFacts(
        id=row["id"],
        key=row["key"],
        owner=row["owner"],
        version=row["version"],
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
        grants=tuple(Share(share) for (share,) in grants),
        shares={team: Share(share) for team, share in shares} if owned else None,
    )
