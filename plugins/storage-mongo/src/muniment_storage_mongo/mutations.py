"""A mutation as one transaction: the memory, its passages, its audit entry, its claim and the project that it
registers, or nothing of it.

Owns what each kind of mutation changes and what a compare-and-set that matched nothing means. The memory is changed by
a pipeline, so that its times are the server's; whoever comes second to the same memory conflicts and starts again from
what the first left.
"""

from __future__ import annotations

from typing import Any

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from muniment.errors import Internal, VersionConflict
from muniment.ports import (
    Applied,
    Create,
    Index,
    Mutation,
    Passages,
    Placement,
    ProjectTaken,
    ReceiptTaken,
    Remove,
    Restore,
    Revise,
)
from muniment.ports.refusals import memory_kept_changing, no_memory, no_space
from muniment_storage_mongo import projects, receipts, records, vectors
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.lanes import Lane, Lanes
from muniment_storage_mongo.records import literal
from muniment_storage_mongo.schema import AUDIT, DEPARTURES, MEMORIES

_ATTEMPTS = 4
"""How often a mutation finds its memory in another scope, or an old receipt in its way, before it gives up."""


class _Elsewhere(Exception):
    """The memory is at the expected version, but in another scope than the audit entry names."""

    def __init__(self, scope_key: str) -> None:
        super().__init__()
        self.scope_key = scope_key


async def apply(database: Database, lanes: Lanes, mutation: Mutation) -> Applied:
    """Apply a mutation. Raises VersionConflict, NotFound, ReceiptTaken, ProjectTaken."""
    scope_key = mutation.placement.scope_key if isinstance(mutation, Create) else mutation.audit.scope_key
    for _ in range(_ATTEMPTS):
        try:
            return await _apply(database, lanes, mutation, scope_key)
        except _Elsewhere as elsewhere:
            scope_key = elsewhere.scope_key
        except ReceiptTaken:
            # Seen within a transaction, and so maybe before everybody reads it, which this waits for.
            if mutation.claim is None or not await receipts.expire(database, mutation.claim):
                raise
        except DuplicateKeyError as error:
            taken = (error.details or {}).get("keyValue", {})
            if mutation.registers is not None and "owner" in taken:
                await projects.settled(database)
                raise ProjectTaken from error
            if mutation.claim is None or not isinstance(taken.get("_id"), dict):
                raise Internal(f"Memory {mutation.memory_id} has a key that is taken already.") from error
            if not await receipts.expire(database, mutation.claim):
                raise ReceiptTaken from error
    raise memory_kept_changing(mutation.memory_id)


async def _apply(database: Database, lanes: Lanes, mutation: Mutation, scope_key: str) -> Applied:
    target = _target(mutation, scope_key)
    if isinstance(mutation, Revise) and mutation.index is None and target is None:
        return await database.transaction(lambda session: _Change(database, session, mutation, scope_key).label())
    with lanes.lane(scope_key) as old:
        if target is None:
            return await database.transaction(
                lambda session: _Change(database, session, mutation, scope_key).within(old)
            )
        with lanes.lane(target) as new:
            return await database.transaction(
                lambda session: _Change(database, session, mutation, scope_key).move(old, new, target)
            )


def _target(mutation: Mutation, scope_key: str) -> str | None:
    """The scope that a mutation moves its memory to; None for one that leaves it where it is."""
    if isinstance(mutation, Revise) and mutation.placement and mutation.placement.scope_key != scope_key:
        return mutation.placement.scope_key
    return None


class _Change:
    """One attempt at a mutation of a memory in ``scope_key``, within a transaction."""

    def __init__(self, database: Database, session: Session, mutation: Mutation, scope_key: str) -> None:
        self._database = database
        self._session = session
        self._mutation = mutation
        self._scope_key = scope_key

    async def label(self) -> Applied:
        """New tags at most, which no cache holds."""
        return await self._traced(await self._memory(_fields(self._mutation)))

    async def within(self, lane: Lane) -> Applied:
        """A change that leaves the memory in its scope."""
        stamp = await lane.advance(self._database, self._session)
        memory = await self._memory({**_fields(self._mutation), **stamp})
        await self._replace_passages(self._scope_key, lane, memory)
        return await self._traced(memory)

    async def move(self, old: Lane, new: Lane, target: str) -> Applied:
        """A change that takes the memory to another scope, its passages along."""
        departure = await old.advance(self._database, self._session)
        stamp = await new.advance(self._database, self._session)
        memory = await self._memory({**_fields(self._mutation), **stamp})
        await self._database.collection(DEPARTURES).update_one(
            {"scope_key": self._scope_key, "memory": self._mutation.memory_id},
            {"$set": departure},
            upsert=True,
            session=self._session,
        )
        await vectors.carry(self._database, self._session, vectors.of(self._scope_key, memory["_id"]), target)
        await self._replace_passages(target, new, memory)
        return await self._traced(memory)

    async def _memory(self, fields: Document) -> Document:
        """Change the memory itself, if it is as the mutation expects it; its version and times."""
        mutation = self._mutation
        if isinstance(mutation, Create):
            condition: Document = {"_id": mutation.memory_id, "scope_key": self._scope_key, "version": 0}
            document = {**fields, "_id": mutation.memory_id, "version": 1, "last_edited_by": mutation.editor}
            stamps = {"created_at": "$$NOW", "updated_at": "$$NOW", "embedded_in": _embedded_in(mutation.index)}
            pipeline: list[Document] = [{"$replaceWith": {"$mergeObjects": [literal(document), stamps]}}]
        else:
            condition = self._expected()
            changed = {
                "version": {"$add": ["$version", 1]},
                "last_edited_by": literal(mutation.editor),
                "updated_at": {"$max": ["$$NOW", "$updated_at"]},
            }
            if _replaces_passages(mutation):
                changed["embedded_in"] = _embedded_in(_index(mutation))
            pipeline = [{"$set": {**{name: literal(value) for name, value in fields.items()}, **changed}}]
        memory = await self._database.collection(MEMORIES).find_one_and_update(
            condition,
            pipeline,
            projection={**records.APPLIED_FIELDS, "embedded_in": 1},
            upsert=isinstance(mutation, Create),
            return_document=ReturnDocument.AFTER,
            session=self._session,
        )
        if memory is None:
            raise await self._obstacle()
        return memory

    def _expected(self) -> Document:
        mutation = self._mutation
        assert isinstance(mutation, (Revise, Remove, Restore))
        return {
            "_id": mutation.memory_id,
            "scope_key": self._scope_key,
            "version": mutation.expected_version,
            "deleted": isinstance(mutation, Restore),
        }

    async def _obstacle(self) -> Exception:
        """Why the memory is not as the mutation expects it."""
        mutation, expected = self._mutation, self._expected()
        if await self._is_taken():
            return ReceiptTaken()
        standing = await self._database.collection(MEMORIES).find_one(
            {"_id": mutation.memory_id}, {"version": 1, "deleted": 1, "scope_key": 1}, session=self._session
        )
        if standing is None or standing["deleted"] is not expected["deleted"]:
            return no_memory(mutation.memory_id, deleted=expected["deleted"])
        if standing["version"] != expected["version"]:
            return VersionConflict(standing["version"])
        return _Elsewhere(standing["scope_key"])

    async def _is_taken(self) -> bool:
        claim = self._mutation.claim
        if claim is None:
            return False
        return await receipts.find(self._database, claim.principal, claim.key, self._session) is not None

    async def _replace_passages(self, scope_key: str, lane: Lane, memory: Document) -> None:
        """Leave the memory, which is changed already, the passages that its index keeps, and add the new ones."""
        mutation = self._mutation
        if not _replaces_passages(mutation):
            return
        index = _index(mutation)
        passages = index.passages if index else None
        if passages and not await lane.admits(self._database, self._session, passages.space):
            raise ReceiptTaken if await self._is_taken() else no_space(passages.space)
        within = vectors.of(scope_key, mutation.memory_id)
        if isinstance(mutation, (Revise, Remove)):
            await vectors.drop(self._database, self._session, within, passages)
        await vectors.add(self._database, self._session, scope_key, mutation.memory_id, passages)
        if passages and passages.complete and passages.space not in memory["embedded_in"]["spaces"]:
            await self._complete(within, passages)

    async def _complete(self, within: Document, passages: Passages) -> None:
        """Note that the memory is complete, where it was not and has now all that it needs."""
        if await vectors.has_kept(self._database, self._session, within, passages):
            key = {"_id": self._mutation.memory_id, "scope_key": within["scope_key"]}
            noted = {"$set": {records.EMBEDDED_IN: [passages.space]}}
            await self._database.collection(MEMORIES).update_one(key, noted, session=self._session)

    async def _traced(self, memory: Document) -> Applied:
        """Store the project that is registered, the audit entry and the claim, at the memory's new time."""
        if self._mutation.registers is not None:
            await projects.insert(self._database, self._session, self._mutation.registers, memory["updated_at"])
        entry = records.of_audit(self._mutation.audit, memory["updated_at"])
        await self._database.collection(AUDIT).insert_one(entry, session=self._session)
        await receipts.claim(self._database, self._session, self._mutation.claim, memory["updated_at"])
        return records.applied(memory)


def _index(mutation: Mutation) -> Index | None:
    return mutation.index if isinstance(mutation, (Create, Revise, Restore)) else None


def _fields(mutation: Mutation) -> Document:
    """What a mutation sets, besides the version, the editor and the times."""
    match mutation:
        case Create():
            content = {"content": mutation.content, "tags": list(mutation.tags), "deleted": False}
            return {**records.of_placement(mutation.placement), **content, **_indexed(mutation.index)}
        case Revise():
            given: dict[str, Any] = {
                "content": mutation.content,
                "tags": None if mutation.tags is None else list(mutation.tags),
            }
            changed = {name: value for name, value in given.items() if value is not None}
            return {**changed, **_placed(mutation.placement), **(_indexed(mutation.index) if mutation.index else {})}
        case Remove():
            return {"deleted": True, **records.NO_TERMS}
        case Restore():
            return {"deleted": False, **_indexed(mutation.index)}
        case _:
            raise TypeError(f"unknown mutation {type(mutation).__name__}")


def _placed(placement: Placement | None) -> Document:
    return records.of_placement(placement) if placement else {}


def _indexed(index: Index) -> Document:
    return records.of_terms(index.analyser, index.terms)


def _replaces_passages(mutation: Mutation) -> bool:
    return _index(mutation) is not None or isinstance(mutation, Remove)


def _embedded_in(index: Index | None) -> Document:
    """The spaces that a memory is complete in with new passages, for a pipeline: one at most.

    Where it was complete, what is kept is there. Where it was not, that has to be looked up.
    """
    passages = index.passages if index else None
    if passages is None or not passages.complete:
        return literal({"spaces": []})
    whole = literal([passages.space])
    if not vectors.kept(passages):
        return {"spaces": whole}
    was_complete: Document = {"$in": [literal(passages.space), {"$ifNull": ["$" + records.EMBEDDED_IN, []]}]}
    return {"spaces": {"$cond": [was_complete, whole, []]}}
