"""Reads of memories, and what is made for them in the background: vectors of a space, and terms made anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from pymongo import DESCENDING
from pymongo.errors import DuplicateKeyError

from muniment.lexical import Terms
from muniment.models import AuditRecord, MemoryRecord
from muniment.ports import (
    Audience,
    MemoryFacts,
    Outdated,
    Passages,
    Position,
    ProjectFacts,
    Selector,
    Space,
    Unembedded,
    Vectors,
)
from muniment_storage_mongo import mutations, projects, records
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.lanes import Lanes
from muniment_storage_mongo.records import literal
from muniment_storage_mongo.schema import AUDIT, MEMORIES, PASSAGES, SPACES


async def load(database: Database, audience: Audience, memory_id: str, space: str | None) -> MemoryFacts | None:
    """The memory, live or deleted, if the audience reads its scope."""

    async def work(session: Session) -> MemoryFacts | None:
        found, project = await _readable(database, session, audience, memory_id)
        if found is None:
            return None
        hashes = await _hashes(database, session, [found], space) if space else {}
        return records.memory_facts(found, project, space=space, hashes=hashes.get(memory_id, frozenset()))

    return await database.snapshot(work)


async def page(
    database: Database, audience: Audience, selector: Selector, *, position: Position | None, limit: int
) -> Sequence[MemoryRecord]:
    """Readable memories, newest first."""
    memories = database.collection(MEMORIES)

    async def work(session: Session) -> list[Document]:
        keys = await projects.selected_keys(database, session, audience, selector)
        if not keys:
            return []
        condition = {"scope_key": {"$in": keys}, "deleted": selector.deleted, **projects.after(position)}
        if selector.tags:
            condition["tags"] = {"$all": list(selector.tags)}
        found = memories.find(condition, records.MEMORY_FIELDS, session=session)
        return await found.sort(projects.NEWEST_FIRST).limit(limit).to_list()

    return [records.memory(one) for one in await database.snapshot(work)]


async def history(
    database: Database, audience: Audience, memory_id: str, *, before: int | None, limit: int
) -> Sequence[AuditRecord]:
    """A readable memory's audit entries by version descending."""

    async def work(session: Session) -> list[Document]:
        found, _ = await _readable(database, session, audience, memory_id)
        if found is None:
            return []
        condition: Document = {"memory_id": memory_id}
        if before is not None:
            condition["version"] = {"$lt": before}
        entries = database.collection(AUDIT).find(condition, session=session)
        return await entries.sort("version", DESCENDING).limit(limit).to_list()

    return [records.audit_record(one) for one in await database.snapshot(work)]


async def _readable(
    database: Database, session: Session, audience: Audience, memory_id: str
) -> tuple[Document | None, ProjectFacts | None]:
    """A memory with its project, if the audience reads its scope; else nothing."""
    found = await database.collection(MEMORIES).find_one({"_id": memory_id}, records.FACT_FIELDS, session=session)
    if found is None:
        return None, None
    if found["project_id"] is None:
        return (found, None) if found["user"] == audience.user else (None, None)
    project = await projects.of_memory(database, session, audience, found["project_id"])
    return (found, project) if project else (None, None)


async def _hashes(
    database: Database, session: Session, memories: Sequence[Document], space: str
) -> dict[str, frozenset[str]]:
    """The hashes that each of these memories has in the space, by its id."""
    condition = {
        "scope_key": {"$in": sorted({one["scope_key"] for one in memories})},
        "memory": {"$in": [one["_id"] for one in memories]},
        "space": space,
    }
    fields = {"_id": 0, "memory": 1, "hash": 1}
    found: dict[str, set[str]] = {one["_id"]: set() for one in memories}
    async for one in database.collection(PASSAGES).find(condition, fields, session=session):
        found[one["memory"]].add(one["hash"])
    return {memory_id: frozenset(hashes) for memory_id, hashes in found.items()}


# ------------------------------------------------------------ in the background


async def register_space(database: Database, space: Space, probes: Vectors) -> Vectors:
    """Insert the space unless it is there; the stored vectors of its probe sentences."""
    spaces = database.collection(SPACES)
    stored = await database.read(lambda: spaces.find_one({"_id": space.id}))
    if stored is None:
        with suppress(DuplicateKeyError):  # another process was first; its vectors count
            await database.write(lambda: spaces.insert_one(records.of_space(space, probes)))
        stored = await database.read(lambda: spaces.find_one({"_id": space.id}))
    return records.probes(stored or records.of_space(space, probes))


async def unembedded(database: Database, space: str, limit: int) -> Sequence[Unembedded]:
    """Live memories whose passages in the space are not complete.

    The latest space alone leaves out, by the index, the many that are complete.
    """

    async def work(session: Session) -> list[Unembedded]:
        fields = {"version": 1, "content": 1, "scope_key": 1}
        waiting = database.collection(MEMORIES).find(_unembedded(space), fields, session=session)
        found = await waiting.limit(limit).to_list()
        hashes = await _hashes(database, session, found, space)
        return [Unembedded(one["_id"], one["version"], one["content"], hashes[one["_id"]]) for one in found]

    return await database.snapshot(work)


async def embeddings_pending(database: Database, space: str) -> int:
    """How many ``unembedded`` would find, by the same index."""
    memories = database.collection(MEMORIES)
    return await database.read(lambda: memories.count_documents(_unembedded(space)))


async def outdated_terms(database: Database, analyser: str, limit: int) -> Sequence[Outdated]:
    """Live memories whose terms are not of this analyser."""
    memories = database.collection(MEMORIES)
    condition = {"deleted": False, "analyser": {"$ne": analyser}}
    found = await database.read(lambda: memories.find(condition, {"version": 1, "content": 1}).limit(limit).to_list())
    return [Outdated(one["_id"], one["version"], one["content"]) for one in found]


async def store_passages(database: Database, lanes: Lanes, memory_id: str, version: int, passages: Passages) -> bool:
    """Store background vectors if the live memory is still at this version."""
    others = {"$filter": {"input": "$embedded", "cond": {"$ne": ["$$this", literal(passages.space)]}}}
    embedded = {"$concatArrays": [literal([passages.space] if passages.complete else []), others]}
    changed = [
        {"$set": {"embedded": embedded}},
        {"$set": {"newest_space": {"$ifNull": [{"$first": "$embedded"}, None]}}},
    ]

    async def replace(session: Session, scope_key: str) -> None:
        within = {"scope_key": scope_key, "memory": memory_id, "space": passages.space}
        await mutations.drop_passages(database, session, within, passages)
        await mutations.add_passages(database, session, scope_key, memory_id, passages)

    return await _in_background(database, lanes, memory_id, version, changed, replace)


async def store_terms(
    database: Database, lanes: Lanes, memory_id: str, version: int, analyser: str, terms: Terms
) -> bool:
    """Replace the terms if the live memory is still at this version."""
    fields = records.of_terms(analyser, terms)
    changed = [{"$set": {name: literal(value) for name, value in fields.items()}}]
    return await _in_background(database, lanes, memory_id, version, changed, None)


async def _in_background(
    database: Database,
    lanes: Lanes,
    memory_id: str,
    version: int,
    changed: list[Document],
    then: Callable[[Session, str], Awaitable[None]] | None,
) -> bool:
    """Change a live memory without a new version, if it is still at ``version``; whether it was."""
    condition = {"_id": memory_id, "version": version, "deleted": False}
    memories = database.collection(MEMORIES)
    found = await database.read(lambda: memories.find_one(condition, {"scope_key": 1}))
    if found is None:
        return False
    with lanes.lane(found["scope_key"]) as lane:

        async def work(session: Session) -> bool:
            stamp = await lane.advance(database, session)
            pipeline = [*changed, {"$set": stamp}]
            done = await memories.update_one({**condition, "scope_key": found["scope_key"]}, pipeline, session=session)
            if not done.matched_count:
                raise _Changed
            if then is not None:
                await then(session, found["scope_key"])
            return True

        try:
            return await database.transaction(work)
        except _Changed:
            return False


class _Changed(Exception):
    """The memory is no longer as it was; nothing is stored."""


def _unembedded(space: str) -> Document:
    return {"deleted": False, "newest_space": {"$ne": space}, "embedded": {"$ne": space}}
