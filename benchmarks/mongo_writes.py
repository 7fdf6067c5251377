"""Get, create and patch of the storage on MongoDB, and the same statements by PyMongo alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from estate import Estate, Text
from mongo_load import SPACE, Raw
from pymongo import ReturnDocument, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.read_concern import ReadConcern
from search_writes import USER, Writes

from muniment import access
from muniment.ports import Audience, Create, Revise
from muniment_storage_mongo import records
from muniment_storage_mongo.records import literal
from muniment_storage_mongo.schema import AUDIT, LANES, MEMORIES, PASSAGES
from muniment_storage_mongo.storage import MongoStorage

KEY = access.user_key(USER)
LANE = 63
"""A lane of its own, as another process would have."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One call, ours and raw."""

    name: str
    ours: Callable[[], Awaitable[object]]
    raw: Callable[[], Awaitable[object]]


class Bare:
    """PyMongo alone."""

    def __init__(self, database: Raw) -> None:
        self._database = database

    async def get(self, memory: str) -> object:
        """A memory of the user's."""
        return await self._database[MEMORIES].find_one({"_id": memory, "user": USER}, records.FACT_FIELDS)

    async def create(self, made: Create) -> None:
        """Lane, memory, passages, audit entry."""
        fields = {**records.of_placement(made.placement), "content": made.content, "tags": list(made.tags)}
        document = {**fields, **_index(made), "deleted": False, "version": 1, "last_edited_by": USER}
        expected = {"_id": made.memory_id, "scope_key": KEY, "version": 0}
        stamps = {"created_at": "$$NOW", "updated_at": "$$NOW"}
        await self._write(made, expected, lambda stamp: {**document, **stamp}, stamps, upsert=True)

    async def revise(self, made: Revise) -> None:
        """Lane, memory, passages that go and come, audit entry."""
        document = {"content": made.content, **_index(made), "last_edited_by": USER}
        expected = {"_id": made.memory_id, "scope_key": KEY, "version": made.expected_version, "deleted": False}
        stamps = {"version": {"$add": ["$version", 1]}, "updated_at": {"$max": ["$$NOW", "$updated_at"]}}
        await self._write(made, expected, lambda stamp: {**document, **stamp}, stamps, upsert=False)

    async def _write(
        self,
        made: Create | Revise,
        expected: dict[str, Any],
        document: Callable[[dict[str, Any]], dict[str, Any]],
        stamps: dict[str, Any],
        *,
        upsert: bool,
    ) -> None:
        async def work(session: AsyncClientSession) -> None:
            lane: dict[str, Any] | None = await self._database[LANES].find_one_and_update(
                {"_id": f"{LANE} {KEY}", "scope_key": KEY},
                {"$inc": {"rev": 1}, "$setOnInsert": {"lane": LANE}},
                projection={"_id": 0, "lane": 1, "rev": 1},
                upsert=True,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            assert lane is not None
            fields = {name: literal(value) for name, value in document(lane).items()}
            memory: dict[str, Any] | None = await self._database[MEMORIES].find_one_and_update(
                expected,
                [{"$set": {**fields, **stamps}}],
                projection=records.APPLIED_FIELDS,
                upsert=upsert,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            assert memory is not None
            passages = made.index.passages if made.index else None
            assert passages is not None
            if not upsert:
                kept = sorted(passages.hashes - {one.hash for one in passages.vectors})
                gone = {"$or": [{"space": {"$ne": SPACE.id}}, {"hash": {"$nin": kept}}]}
                within = {"scope_key": KEY, "memory": made.memory_id, **gone}
                await self._database[PASSAGES].delete_many(within, session=session)
            fresh = records.of_passages(KEY, made.memory_id, passages)
            await self._database[PASSAGES].insert_many(fresh, session=session)
            await self._database[AUDIT].insert_one(records.of_audit(made.audit, memory["updated_at"]), session=session)

        async with (
            self._database.client.start_session(causal_consistency=False) as session,
            await session.start_transaction(ReadConcern("snapshot"), WriteConcern(w="majority")),
        ):
            await work(session)


class Writing:
    """One round after another of the same calls on both sides, each on a memory of its own."""

    def __init__(self, storage: MongoStorage, bare: Bare, estate: Estate) -> None:
        self._storage = storage
        self._bare = bare
        self._writes = Writes(estate)
        self._first = (self._writes.create(), self._writes.create())
        self._version = 1

    async def start(self) -> None:
        """The memories that are read and patched."""
        await self._storage.apply(self._first[0])
        await self._bare.create(self._first[1])

    def pairs(self) -> Iterator[Pair]:
        """A get, a create and a patch."""
        ours, raw = (one.memory_id for one in self._first)
        yield Pair("get", lambda: self._storage.load(Audience(USER), ours), lambda: self._bare.get(raw))
        made, other = self._writes.create(), self._writes.create()
        yield Pair("create", lambda: self._storage.apply(made), lambda: self._bare.create(other))
        edits = [self._patch(one) for one in self._first]
        self._version += 1
        yield Pair("patch", lambda: self._storage.apply(edits[0]), lambda: self._bare.revise(edits[1]))

    def _patch(self, made: Create) -> Revise:
        return self._writes.patch(made.memory_id, self._version, Text(made.content, 0))


def _index(made: Create | Revise) -> dict[str, Any]:
    assert made.index is not None
    return {**records.of_terms(made.index.analyser, made.index.terms), "embedded_in": {"spaces": [SPACE.id]}}
