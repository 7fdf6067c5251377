"""How a mutation is applied: what it needs is looked at under the write lock, then all of it is stored."""

from __future__ import annotations

from functools import partial
from sqlite3 import Connection, Row

from muniment.errors import VersionConflict
from muniment.lexical import Terms
from muniment.ports import Applied, Create, Mutation, ProjectTaken, Remove, Restore, Revise
from muniment.ports.refusals import no_memory
from muniment_storage_sqlite import entries, projects
from muniment_storage_sqlite.memories import live
from muniment_storage_sqlite.times import moment, now
from muniment_storage_sqlite.trail import as_json, claim_key, store_entry


def apply(connection: Connection, mutation: Mutation) -> Applied:
    """Apply one mutation. Raises ReceiptTaken before anything else, then NotFound, VersionConflict, ProjectTaken.

    All that it stores has one time, which is never before the memory's last.
    """
    row = connection.execute(
        "SELECT number, scope, deleted, version, created_at, updated_at FROM memories WHERE id = ?",
        (mutation.memory_id,),
    ).fetchone()
    at = max(now(), row["updated_at"] if row else 0)
    claim_key(connection, mutation.claim, at)
    if isinstance(mutation, Create):
        store = partial(_create, connection, mutation, at)
    else:
        assert isinstance(mutation, Revise | Remove | Restore)
        store = partial(_change, connection, mutation, _expected(row, mutation), at)
    if mutation.registers is not None and not projects.insert(connection, mutation.registers, at):
        raise ProjectTaken
    applied = store()
    store_entry(connection, mutation.audit, at)
    return applied


def store_terms(connection: Connection, memory_id: str, version: int, analyser: str, terms: Terms) -> bool:
    """Replace the terms of the live memory if it is still at ``version``; whether it was."""
    row = live(connection, memory_id, version)
    if row is not None:
        connection.execute(
            "UPDATE memories SET analyser = ?, words = ? WHERE number = ?", (analyser, terms.length, row["number"])
        )
        entries.replace_terms(connection, row["scope"], row["number"], terms)
        entries.touch(connection, row["scope"])
    return row is not None


def _create(connection: Connection, mutation: Create, at: int) -> Applied:
    scope = entries.scope_number(connection, mutation.placement)
    index = mutation.index
    (number,) = connection.execute(
        """
        INSERT INTO memories (
            id, scope, deleted, version, created_at, updated_at, last_edited_by, analyser, words, tags, content
        ) VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?, ?, ?) RETURNING number
        """,
        (
            mutation.memory_id,
            scope,
            at,
            at,
            mutation.editor,
            index.analyser,
            index.terms.length,
            as_json(mutation.tags),
            mutation.content,
        ),
    ).fetchone()
    entries.replace_tags(connection, scope, number, mutation.tags)
    entries.replace_terms(connection, scope, number, index.terms)
    entries.replace_passages(connection, scope, number, index.passages)
    return Applied(1, moment(at), moment(at))


def _change(connection: Connection, mutation: Revise | Remove | Restore, row: Row, at: int) -> Applied:
    number, scope = row["number"], row["scope"]
    revision = mutation if isinstance(mutation, Revise) else None
    index = None if isinstance(mutation, Remove) else mutation.index
    tags = revision and revision.tags
    entries.touch(connection, scope)
    if revision and revision.placement:
        scope = entries.scope_number(connection, revision.placement)
        entries.move(connection, number, row["scope"], scope)
    connection.execute(
        """
        UPDATE memories SET
            version = version + 1, updated_at = :at, last_edited_by = :editor, deleted = :deleted, scope = :scope,
            tags = coalesce(:tags, tags), content = coalesce(:content, content),
            analyser = coalesce(:analyser, analyser), words = coalesce(:words, words)
        WHERE number = :number
        """,
        {
            "number": number,
            "at": at,
            "editor": mutation.editor,
            "deleted": isinstance(mutation, Remove),
            "scope": scope,
            "tags": None if tags is None else as_json(tags),
            "content": revision and revision.content,
            "analyser": index and index.analyser,
            "words": index and index.terms.length,
        },
    )
    if tags is not None:
        entries.replace_tags(connection, scope, number, tags)
    if index is not None or isinstance(mutation, Remove):
        entries.replace_terms(connection, scope, number, index and index.terms)
        entries.replace_passages(connection, scope, number, index and index.passages)
    return Applied(row["version"] + 1, moment(row["created_at"]), moment(at))


def _expected(row: Row | None, mutation: Revise | Remove | Restore) -> Row:
    """The memory's row, which is as the mutation needs it. Raises NotFound, VersionConflict."""
    if row is None or bool(row["deleted"]) is not isinstance(mutation, Restore):
        raise no_memory(mutation.memory_id, deleted=isinstance(mutation, Restore))
    if row["version"] != mutation.expected_version:
        raise VersionConflict(row["version"])
    return row
