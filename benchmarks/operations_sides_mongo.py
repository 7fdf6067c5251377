"""MongoDB for the benchmark of operations: the bare driver, the server, and what is in its collections.

The bare driver is PyMongo with the storage's own statements: one transaction for what changes a memory, in a lane of
its own for each call that is under way, as in as many processes. What it reads it reads outside of a session. A search
is ``mongo_search``'s, with the vectors in mind: it does not ask for words and scores by meaning alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import event_sides_mongo
from estate import Estate, Memory
from event_sides import DRIVER, Whole
from measuring import Call
from mongo_load import Raw as Database
from mongo_load import fill
from mongo_search import Plain
from operations_sides import EMBEDDER, LIMIT, PAGE, READERS, SPACE_ID, Bare, Ground, Ours, Question, Side, loads
from pymongo import DESCENDING, AsyncMongoClient, ReturnDocument, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.read_concern import ReadConcern

from muniment import access
from muniment.engine import Engine
from muniment.models import Agent
from muniment.ports import Create, Index, PluginContext, Remove, Revise
from muniment_storage_mongo import records
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.records import literal
from muniment_storage_mongo.schema import AUDIT, LANES, MEMORIES, PASSAGES, PROJECTS
from muniment_storage_mongo.storage import create

PLAIN, CROWDED = "plain", "crowded"
"""The databases: one with the readers' memories alone, one with those of others too."""
CACHE = "cache_size=2GB"
KEY = access.user_key(DRIVER)
CONCURRENT = 16
"""Lanes."""

Document = dict[str, Any]


class Raw(Bare):
    """PyMongo alone."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._scopes = {user: Plain(database, user, SPACE_ID) for user in READERS}
        self._lanes: asyncio.Queue[int] = asyncio.Queue()
        for lane in range(CONCURRENT):
            self._lanes.put_nowait(lane)

    def get(self, user: str, memory: str) -> Call:
        """A memory of the user's own."""
        found = self._database[MEMORIES].find_one
        return partial(found, {"_id": memory, "user": user}, records.FACT_FIELDS)

    def newest(self, user: str) -> Call:
        """The user's projects, and the memories of all its scopes."""
        return partial(self._newest, user)

    def search(self, question: Question) -> Call:
        """Revisions and tags, one product, contents."""
        return partial(self._scopes[question.user].search_beside, question.vector, question.tags, LIMIT + 1)

    def create(self, made: Create) -> Call:
        """Lane, memory, passages, audit entry."""
        fields = {**records.of_placement(made.placement), "content": made.content, "tags": list(made.tags)}
        document = {**fields, **_terms(made.index), "deleted": False, "_id": made.memory_id, "version": 1}
        stamps = {"created_at": "$$NOW", "updated_at": "$$NOW", "embedded_in": literal({"spaces": [SPACE_ID]})}
        edited = {**document, "last_edited_by": made.editor}

        def pipeline(lane: Document) -> Document:
            return {"$replaceWith": {"$mergeObjects": [literal({**edited, **lane}), stamps]}}

        return partial(self._transaction, made, {"_id": made.memory_id, "scope_key": KEY, "version": 0}, pipeline)

    def change(self, made: Revise | Remove, *, read: bool = True) -> Call:
        """Memory and hashes to begin with; then lane, memory, passages that go and come, audit entry."""
        spaces = [SPACE_ID] if isinstance(made, Revise) else []
        stamps = {
            "version": {"$add": ["$version", 1]},
            "last_edited_by": literal(made.editor),
            "updated_at": {"$max": ["$$NOW", "$updated_at"]},
            "embedded_in": literal({"spaces": spaces}),
        }
        fields: Document = {"deleted": True, **records.NO_TERMS}
        if isinstance(made, Revise):
            fields = {"content": made.content, **_terms(made.index)}

        def pipeline(lane: Document) -> Document:
            return {"$set": {**{name: literal(value) for name, value in {**fields, **lane}.items()}, **stamps}}

        expected = {"_id": made.memory_id, "scope_key": KEY, "version": made.expected_version, "deleted": False}
        return partial(self._change, made, expected, pipeline, read)

    async def _newest(self, user: str) -> list[Document]:
        projects = self._database[PROJECTS].find({"owner": user}, {"_id": 1})
        keys = [access.user_key(user), *[access.project_key(one["_id"]) async for one in projects]]
        found = self._database[MEMORIES].find({"scope_key": {"$in": keys}, "deleted": False}, records.MEMORY_FIELDS)
        return await found.sort([("created_at", DESCENDING), ("_id", 1)]).limit(PAGE).to_list()

    async def _change(self, made: Revise | Remove, expected: Document, pipeline: Any, read: bool) -> None:
        if read:
            await self._database[MEMORIES].find_one({"_id": made.memory_id, "user": DRIVER}, records.FACT_FIELDS)
            within = {"scope_key": {"$in": [KEY]}, "memory": {"$in": [made.memory_id]}, "space": SPACE_ID}
            await self._database[PASSAGES].find(within, {"_id": 0, "memory": 1, "hash": 1}, hint="memory").to_list()
        await self._transaction(made, expected, pipeline)

    async def _transaction(self, made: Create | Revise | Remove, expected: Document, pipeline: Any) -> None:
        lane = await self._lanes.get()
        try:
            async with (
                self._database.client.start_session(causal_consistency=False) as session,
                await session.start_transaction(ReadConcern("snapshot"), WriteConcern(w="majority")),
            ):
                await self._apply(session, lane, made, expected, pipeline)
        finally:
            self._lanes.put_nowait(lane)

    async def _apply(
        self, session: AsyncClientSession, lane: int, made: Create | Revise | Remove, expected: Document, pipeline: Any
    ) -> None:
        advanced: Document | None = await self._database[LANES].find_one_and_update(
            {"_id": f"{lane} {KEY}", "scope_key": KEY},
            {"$inc": {"rev": 1}, "$setOnInsert": {"lane": lane}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        assert advanced is not None
        memory: Document | None = await self._database[MEMORIES].find_one_and_update(
            expected,
            [pipeline({"lane": lane, "rev": advanced["rev"]})],
            projection={**records.APPLIED_FIELDS, "embedded_in": 1},
            upsert=isinstance(made, Create),
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        assert memory is not None, "nothing was changed"
        passages = None if isinstance(made, Remove) or made.index is None else made.index.passages
        if not isinstance(made, Create):
            within: Document = {"scope_key": KEY, "memory": made.memory_id}
            if passages is not None:
                kept = sorted(passages.hashes - {one.hash for one in passages.vectors})
                within["$or"] = [{"space": {"$ne": SPACE_ID}}, {"hash": {"$nin": kept}}]
            await self._database[PASSAGES].delete_many(within, session=session)
        fresh = records.of_passages(KEY, made.memory_id, passages)
        if fresh:
            await self._database[PASSAGES].insert_many(fresh, session=session)
        await self._database[AUDIT].insert_one(records.of_audit(made.audit, memory["updated_at"]), session=session)


def _terms(index: Index | None) -> Document:
    assert index is not None
    return records.of_terms(index.analyser, index.terms)


class Documents(Ground):
    """The server."""

    of_search = "it reads no postings and scores by meaning alone, with the vectors in mind as ours has them"

    def __init__(self, database: Database, *given: Any) -> None:
        super().__init__(*given)
        self._database = database

    async def rows(self, user: str) -> object:
        """Sums that tell different documents apart."""
        key = access.user_key(user)
        sums = {
            "_id": None,
            "live": {"$sum": {"$cond": ["$deleted", 0, 1]}},
            "versions": {"$sum": "$version"},
            "length": {"$sum": "$length"},
            "terms": {"$sum": {"$sum": "$terms.n"}},
        }
        memories_of = await self._database[MEMORIES].aggregate([{"$match": {"scope_key": key}}, {"$group": sums}])
        counts = [await self._database[one].count_documents({"scope_key": key}) for one in (AUDIT, PASSAGES)]
        return await memories_of.to_list(), counts


@asynccontextmanager
async def ground(estate: Estate, foreign: int, agents: Sequence[Agent]) -> AsyncGenerator[Documents]:
    """A server of its own, and the sides on it; ``foreign`` memories of others are in the crowded database."""
    with ReplicaSet() as running:
        process = running.primary().pid
        async with AsyncExitStack() as stack:
            client: AsyncMongoClient[Document] = AsyncMongoClient(
                running.url(), tz_aware=True, w="majority", readConcernLevel="majority", maxPoolSize=50
            )
            await stack.enter_async_context(client)
            await client.admin.command({"setParameter": 1, "wiredTigerEngineRuntimeConfig": CACHE})
            made, mixed = loads(estate, foreign)
            plain, engine = await _filled(stack, running, client[PLAIN], estate, made)
            crowded, _ = await _filled(stack, running, client[CROWDED], estate, mixed)
            events = [event_sides_mongo.Raw(client[PLAIN]), Whole(engine)]
            documents = event_sides_mongo.Documents(events, process or 0, client[PLAIN], agents)
            readable = {user: [one.id for one in made if one.owner == user] for user in READERS}
            yield Documents(client[PLAIN], process, plain, crowded, documents, readable)


async def _filled(
    stack: AsyncExitStack, running: ReplicaSet, database: Database, estate: Estate, made: Sequence[Memory]
) -> tuple[Sequence[Side], Engine]:
    """The engine and the bare driver on a database with these memories."""
    storage = create(PluginContext(running.url(database.name), running.directory))
    engine = await stack.enter_async_context(Engine(storage, EMBEDDER, background=False))
    await engine.embeddings.space()
    await fill(database, estate, made, SPACE_ID)
    return (Ours(engine), Raw(database)), engine
