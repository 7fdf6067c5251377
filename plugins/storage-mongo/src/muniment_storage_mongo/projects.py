"""Projects and their grants: who reads which scope, what an audience may know of a project, and what was done to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, DESCENDING, ReturnDocument
from pymongo.errors import DuplicateKeyError

from muniment import access
from muniment.errors import NotFound, VersionConflict
from muniment.models import Access, AuditRecord, Scope, Share
from muniment.ports import (
    Applied,
    Audience,
    AuditDraft,
    NewProject,
    Position,
    ProjectFacts,
    Selector,
    ShareChange,
)
from muniment.ports.refusals import no_project, project_not_stored
from muniment_storage_mongo import records
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.records import literal
from muniment_storage_mongo.schema import AUDIT, PROJECTS, TRAIL_INDEX


def readable_by(audience: Audience) -> Document:
    """The condition on a project that the audience owns it or holds a grant that is enough."""
    grant: Document = {"group": {"$in": sorted(audience.groups)}}
    if audience.need is Access.WRITE:
        grant["access"] = Share.RW.value
    return {"$or": [{"owner": audience.user}, {"shares": {"$elemMatch": grant}}]}


def after(position: Position | None) -> Document:
    """The condition on what comes behind a position, newest first, then by id."""
    if position is None:
        return {}
    at = position.created_at
    return {"created_at": {"$lte": at}, "$or": [{"created_at": {"$lt": at}}, {"_id": {"$gt": position.id}}]}


NEWEST_FIRST = [("created_at", DESCENDING), ("_id", ASCENDING)]


async def scope_keys(database: Database, session: Session, audience: Audience) -> list[str]:
    """Every scope key of the audience, its own first."""
    found = database.collection(PROJECTS).find(readable_by(audience), {"_id": 1}, session=session)
    return [access.user_key(audience.user), *[access.project_key(one["_id"]) async for one in found]]


async def selected_keys(database: Database, session: Session, audience: Audience, selector: Selector) -> list[str]:
    """The audience's scope keys that the selector takes."""
    own = access.user_key(audience.user)
    if selector.scope is Scope.USER or selector.scope_key == own:
        return select([own], selector)
    return select(await scope_keys(database, session, audience), selector)


def select(keys: Sequence[str], selector: Selector) -> list[str]:
    """Those of an audience's scope keys that the selector takes; the audience's own is its only one of a user."""
    return [
        key
        for place, key in enumerate(keys)
        if selector.scope_key in (None, key)
        and (selector.scope is None or (selector.scope is Scope.USER) == (place == 0))
    ]


async def of_memory(database: Database, session: Session, audience: Audience, project_id: str) -> ProjectFacts | None:
    """A memory's project, if the audience reads it."""
    condition = {"_id": project_id, **readable_by(audience)}
    found = await database.collection(PROJECTS).find_one(condition, session=session)
    return records.project_facts(found, audience) if found else None


async def find(database: Database, audience: Audience, name: str) -> Sequence[ProjectFacts]:
    """The audience's projects with this key or id."""
    condition = {"$and": [{"$or": [{"key": name}, {"_id": name}]}, readable_by(audience)]}
    found = await database.read(lambda: database.collection(PROJECTS).find(condition).to_list())
    return [records.project_facts(one, audience) for one in found]


async def page(
    database: Database, audience: Audience, *, position: Position | None, limit: int
) -> Sequence[ProjectFacts]:
    """The audience's projects, newest first."""
    condition = {"$and": [readable_by(audience), after(position)]}
    projects = database.collection(PROJECTS)
    found = await database.read(lambda: projects.find(condition).sort(NEWEST_FIRST).limit(limit).to_list())
    return [records.project_facts(one, audience) for one in found]


async def register(database: Database, new: NewProject) -> tuple[ProjectFacts, bool]:
    """Insert unless (owner, key) is there."""
    known = await _owned(database, new)
    if known is not None:
        return known, False
    stamped = [{"$replaceWith": {"$mergeObjects": [literal(_document(new)), _STAMPS]}}]

    async def work(session: Session) -> Document:
        made: Document | None = await database.collection(PROJECTS).find_one_and_update(
            {"_id": new.id, "version": 0},
            stamped,
            upsert=True,
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        assert made is not None  # it is inserted, or its key is taken
        await database.collection(AUDIT).insert_one(records.of_audit(new.audit, made["created_at"]), session=session)
        return made

    try:
        return records.project_facts(await database.transaction(work), Audience(new.owner)), True
    except DuplicateKeyError:
        await settled(database)
        known = await _owned(database, new)
    if known is None:
        raise project_not_stored(new.key)
    return known, False


async def insert(database: Database, session: Session, new: NewProject, at: datetime) -> None:
    """Insert a project and its audit entry within a transaction. Raises DuplicateKeyError where the key is taken."""
    document = {**_document(new), "created_at": at, "updated_at": at}
    await database.collection(PROJECTS).insert_one(document, session=session)
    await database.collection(AUDIT).insert_one(records.of_audit(new.audit, at), session=session)


async def settled(database: Database) -> None:
    """Wait until a project that was in the way is read by everybody: a write of nothing waits for a majority too."""
    await database.write(lambda: database.collection(PROJECTS).delete_one({"_id": None}))


def _document(new: NewProject) -> Document:
    return {"_id": new.id, "key": new.key, "owner": new.owner, "version": 1, "shares": []}


async def _owned(database: Database, new: NewProject) -> ProjectFacts | None:
    condition = {"owner": new.owner, "key": new.key}
    found = await database.read(lambda: database.collection(PROJECTS).find_one(condition))
    return records.project_facts(found, Audience(new.owner)) if found else None


async def record(database: Database, audit: AuditDraft) -> None:
    """Store an audit entry once."""
    stamped = [{"$replaceWith": {"$mergeObjects": [literal(records.of_audit(audit)), {"at": "$$NOW"}, "$$ROOT"]}}]
    entries = database.collection(AUDIT)
    try:
        await database.write(lambda: entries.update_one({"_id": audit.id}, stamped, upsert=True))
    except DuplicateKeyError:
        return


async def trail(database: Database, scope_key: str, *, position: Position | None, limit: int) -> Sequence[AuditRecord]:
    """A scope's audit entries that belong to no memory, newest first."""
    condition: Document = {"scope_key": scope_key, "memory_id": None}
    if position is not None:
        at = position.created_at
        condition |= {"at": {"$lte": at}, "$or": [{"at": {"$lt": at}}, {"_id": {"$gt": position.id}}]}
    order = [("at", DESCENDING), ("_id", ASCENDING)]
    entries = database.collection(AUDIT)
    found = await database.read(lambda: entries.find(condition, hint=TRAIL_INDEX).sort(order).limit(limit).to_list())
    return [records.audit_record(one) for one in found]


async def change_share(database: Database, change: ShareChange) -> Applied:
    """Compare-and-set on the project's version. Raises VersionConflict, NotFound."""
    others = {"$filter": {"input": "$shares", "cond": {"$ne": ["$$this.group", literal(change.group)]}}}
    granted = [{"group": change.group, "access": change.share.value}] if change.share else []
    changed = {
        "shares": {"$concatArrays": [others, literal(granted)]},
        "version": {"$add": ["$version", 1]},
        "updated_at": {"$max": ["$$NOW", "$updated_at"]},
    }

    async def work(session: Session) -> Applied:
        project = await database.collection(PROJECTS).find_one_and_update(
            {"_id": change.project_id, "version": change.expected_version},
            [{"$set": changed}],
            projection=records.APPLIED_FIELDS,
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        if project is None:
            raise await _refusal(database, session, change.project_id)
        entry = records.of_audit(change.audit, project["updated_at"])
        await database.collection(AUDIT).insert_one(entry, session=session)
        return records.applied(project)

    return await database.transaction(work)


async def _refusal(database: Database, session: Session, project_id: str) -> NotFound | VersionConflict:
    current = await database.collection(PROJECTS).find_one({"_id": project_id}, {"version": 1}, session=session)
    return VersionConflict(current["version"]) if current else no_project(project_id)


_STAMPS = {"created_at": "$$NOW", "updated_at": "$$NOW"}
