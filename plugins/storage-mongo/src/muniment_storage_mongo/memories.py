"""Reads of memories, and terms made anew in the background."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import DESCENDING

from muniment.lexical import Terms
from muniment.models import AuditRecord, MemoryRecord
from muniment.ports import Audience, MemoryFacts, Outdated, Position, ProjectFacts, Selector
from muniment_storage_mongo import background, projects, records, vectors
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.lanes import Lanes
from muniment_storage_mongo.records import literal
from muniment_storage_mongo.schema import AUDIT, MEMORIES


async def load(database: Database, audience: Audience, memory_id: str, space: str | None) -> MemoryFacts | None:
    """The memory, live or deleted, if the audience reads its scope."""

    async def work(session: Session) -> MemoryFacts | None:
        found, project = await _readable(database, session, audience, memory_id)
        if found is None:
            return None
        hashes = await vectors.hashes(database, session, [found], space) if space else {}
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


# ------------------------------------------------------------ in the background


async def outdated_terms(database: Database, analyser: str, limit: int) -> Sequence[Outdated]:
    """Live memories whose terms are not of this analyser."""
    memories = database.collection(MEMORIES)
    condition = {"deleted": False, "analyser": {"$ne": analyser}}
    found = await database.read(lambda: memories.find(condition, {"version": 1, "content": 1}).limit(limit).to_list())
    return [Outdated(one["_id"], one["version"], one["content"]) for one in found]


async def store_terms(
    database: Database, lanes: Lanes, memory_id: str, version: int, analyser: str, terms: Terms
) -> bool:
    """Replace the terms if the live memory is still at this version."""
    fields = records.of_terms(analyser, terms)
    changed = [{"$set": {name: literal(value) for name, value in fields.items()}}]
    return await background.change(database, lanes, memory_id, version, changed)
