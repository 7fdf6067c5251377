"""``muniment.ports.Storage`` on MongoDB.

Owns the life of the storage: the client, the checks of what it is connected to, and the schema. What each call does is
in the modules that it goes on to; it holds no rule of core's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from muniment.errors import ConfigurationError
from muniment.lexical import Terms
from muniment.models import Agent, AuditRecord, MemoryRecord
from muniment.ports import (
    Applied,
    Audience,
    AuditDraft,
    Backlog,
    Found,
    MemoryFacts,
    Mutation,
    NewProject,
    Outdated,
    PluginContext,
    Position,
    ProjectFacts,
    SearchQuery,
    Selector,
    ShareChange,
    StoredReceipt,
)
from muniment.ports.refusals import not_open
from muniment_storage_mongo import (
    agent_events,
    filling,
    memories,
    migrate,
    mutations,
    projects,
    receipts,
    refusals,
    search,
    settings,
)
from muniment_storage_mongo.agents import MongoAgents
from muniment_storage_mongo.corpus import Corpus
from muniment_storage_mongo.database import Client, Database
from muniment_storage_mongo.lanes import Lanes
from muniment_storage_mongo.schema import VERSION
from muniment_storage_mongo.settings import Settings
from muniment_storage_mongo.spaces import MongoSpaces
from muniment_storage_mongo.tokens import MongoTokens
from muniment_storage_mongo.vector_cache import VectorCache

_OLDEST = 13
"""The wire version of MongoDB 5.0, the first with snapshot reads."""
_MEGABYTE = 1_000_000
_STALLED = 120_000
"""Milliseconds after which a server that took a request and says nothing counts as away."""


def create(context: PluginContext) -> MongoStorage:
    """The storage of ``mongodb://…`` and ``mongodb+srv://…``, not opened. Raises ConfigurationError."""
    return MongoStorage(settings.parse(context))


class MongoStorage(MongoAgents, MongoTokens, MongoSpaces):
    """Keeps everything in one database."""

    def __init__(self, configured: Settings) -> None:
        super().__init__()
        self._configured = configured
        self._options = configured.options
        self._opened: Database | None = None
        self._life = asyncio.Lock()
        self._corpus: Corpus | None = None
        self._lanes = Lanes()

    # ------------------------------------------------------------ life

    async def open(self) -> None:
        """Connect, check what is there, and bring its schema up to date."""
        async with self._life:
            if self._opened is not None:
                return
            database = await self._connected()
            try:
                await self._prepare(database)
            except BaseException:
                await database.close()
                raise
            self._corpus = Corpus(database, VectorCache(self._options.vector_cache_mb * _MEGABYTE))
            self._opened = database

    async def close(self) -> None:
        """Close the connections."""
        async with self._life:
            database, self._opened = self._opened, None
            if database is not None:
                await database.close()

    async def migrate(self) -> tuple[str, ...]:
        """Bring the schema up to date. Works on a storage that is open and on one that is not."""
        async with self._life:
            if self._opened is not None:
                return await migrate.migrate(self._opened)
            database = await self._connected()
            try:
                return await migrate.migrate(database)
            finally:
                await database.close()

    async def describe(self) -> Mapping[str, str]:
        """Versions, and how the server runs."""
        database = self._database
        about = await database.command({"buildInfo": 1})
        greeting = await database.command({"hello": 1})
        replica_set = greeting.get("setName")
        return {
            "server": f"MongoDB {about['version']}",
            "mode": f"replica set {replica_set}" if replica_set else "sharded cluster",
            "place": self._configured.place,
            "schema": f"version {await migrate.version(database)}",
            "vector search": "exact",
        }

    async def _prepare(self, database: Database) -> None:
        """See that the schema is this release's. Raises ConfigurationError."""
        if await migrate.version(database) == VERSION:
            return
        if not self._options.migrate:
            raise ConfigurationError(
                f"MongoDB ({database.place}) does not have the schema of this release, and migrate = false "
                "forbids making it at start; run muniment migrate."
            )
        await migrate.migrate(database)

    async def _connected(self) -> Database:
        """A database that answers and can do transactions. Raises StorageUnavailable, ConfigurationError."""
        database = self._client()
        try:
            try:
                await self._check(database)
            except refusals.WrongReplicaSet:
                # A server that is of none is told apart by asking it alone.
                alone = self._client(directConnection=True, replicaSet=None)
                try:
                    await self._check(alone)
                finally:
                    await alone.close()
                raise
        except BaseException:
            await database.close()
            raise
        return database

    async def _check(self, database: Database) -> None:
        greeting = await database.command({"hello": 1})
        refusal = refusals.of_greeting(greeting, database.place)
        if refusal is not None:
            raise refusal
        if greeting.get("maxWireVersion", 0) < _OLDEST:
            raise ConfigurationError(f"MongoDB ({database.place}) is older than 5.0; upgrade the server.")

    def _client(self, **options: Any) -> Database:
        """The database by a new client, which connects when it is used."""
        configured = self._configured
        waiting = self._options.primary_timeout * 1_000
        try:
            client: Client = AsyncMongoClient(
                configured.url,
                maxPoolSize=self._options.pool_size,
                connectTimeoutMS=self._options.connect_timeout * 1_000,
                serverSelectionTimeoutMS=waiting,
                waitQueueTimeoutMS=waiting,
                socketTimeoutMS=_STALLED,
                appname="muniment",
                retryWrites=True,
                retryReads=True,
                **options,
            )
        except (PyMongoError, ValueError) as error:
            raise refusals.of_settings(error, configured.place) from error
        return Database(client, configured.database, place=configured.place, patience=self._options.primary_timeout)

    @property
    def _database(self) -> Database:
        if self._opened is None:
            raise not_open()
        return self._opened

    # ------------------------------------------------------------ projects

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        """The audience's projects with this key or id."""
        return await projects.find(self._database, audience, name)

    async def list_projects(self, audience: Audience, *, after: Position | None, limit: int) -> Sequence[ProjectFacts]:
        """The audience's projects, newest first."""
        return await projects.page(self._database, audience, position=after, limit=limit)

    async def register_project(self, new: NewProject) -> tuple[ProjectFacts, bool]:
        """Insert unless (owner, key) is there."""
        return await projects.register(self._database, new)

    async def record(self, audit: AuditDraft) -> None:
        """Store an audit entry once."""
        await projects.record(self._database, audit)

    async def change_share(self, change: ShareChange) -> Applied:
        """Compare-and-set on the project's version."""
        return await projects.change_share(self._database, change)

    # ------------------------------------------------------------ reads of memories

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """The memory, live or deleted, if the audience reads its scope."""
        return await memories.load(self._database, audience, memory_id, space)

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """Readable memories, newest first."""
        return await memories.page(self._database, audience, selector, position=after, limit=limit)

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """The fused order over the readable live memories."""
        database = self._database
        assert self._corpus is not None
        return await search.search(database, self._corpus, audience, selector, query)

    async def history(
        self, audience: Audience, memory_id: str, *, before: int | None, limit: int
    ) -> Sequence[AuditRecord]:
        """A readable memory's audit entries by version descending."""
        return await memories.history(self._database, audience, memory_id, before=before, limit=limit)

    async def trail(self, scope_key: str, *, after: Position | None, limit: int) -> Sequence[AuditRecord]:
        """A scope's audit entries that belong to no memory, newest first."""
        return await projects.trail(self._database, scope_key, position=after, limit=limit)

    # ------------------------------------------------------------ mutations

    async def apply(self, mutation: Mutation) -> Applied:
        """Apply one mutation in one transaction."""
        return await mutations.apply(self._database, self._lanes, mutation)

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        """The receipt kept for this key."""
        database = self._database
        return await database.read(lambda: receipts.find(database, principal, key))

    # ------------------------------------------------------------ in the background

    async def outdated_terms(self, analyser: str, *, limit: int) -> Sequence[Outdated]:
        """Live memories whose terms are not of this analyser."""
        return await memories.outdated_terms(self._database, analyser, limit)

    async def store_terms(self, memory_id: str, version: int, analyser: str, terms: Terms) -> bool:
        """Replace the terms if the memory is still at this version."""
        return await memories.store_terms(self._database, self._lanes, memory_id, version, analyser, terms)

    # ------------------------------------------------------------ what waits

    async def backlog(self, space: str | None, *, attempts_max: int) -> Backlog:
        """The counts, one after the other."""
        database = self._database
        return Backlog(
            events_waiting=await agent_events.waiting(database, attempts_max),
            embeddings_pending=0 if space is None else await filling.pending(database, space),
        )

    async def agents_waiting(self, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
        """Those of the agents with an event that a claim would get."""
        return await agent_events.agents_waiting(self._database, agents, attempts_max)
