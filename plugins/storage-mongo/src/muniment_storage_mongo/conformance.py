"""What the suite needs of this plugin: empty subjects, raw reads, faults by validator, and crashes by SIGKILL.

Each subject is a database of its own, and is emptied and used again, since making one takes longer than a check.
Without a URL the server is a replica set of one on loopback, which goes away with this process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError

from muniment.conformance.target import (
    AgentFaultPoint,
    FaultPoint,
    NotRun,
    StorageTarget,
    Stored,
    StoredAudit,
    StoredPassage,
    StoredTerm,
    Subject,
)
from muniment.errors import MunimentError
from muniment.models import Agent
from muniment.ports import PluginContext, Storage
from muniment_storage_mongo import agent_probe, settings
from muniment_storage_mongo.database import MAJORITY, Database, Session
from muniment_storage_mongo.migrate import COLLECTIONS
from muniment_storage_mongo.mongod import NoBinary, ReplicaSet
from muniment_storage_mongo.schema import AUDIT, MEMORIES, PASSAGES, RECEIPTS
from muniment_storage_mongo.storage import MongoStorage

_COLLECTION_OF = {
    FaultPoint.MEMORY: MEMORIES,
    FaultPoint.AUDIT: AUDIT,
    FaultPoint.PASSAGES: PASSAGES,
    FaultPoint.TERMS: MEMORIES,
    FaultPoint.RECEIPT: RECEIPTS,
}
_VALIDATORS = {one.name: one.validator for one in COLLECTIONS}
_NOTHING = {"_id": {"$exists": False}}
"""A validator that no document passes."""


@dataclass
class MongoSubject(Subject):
    """A subject, and the database that it lives in."""

    database: str


class MongoTarget(StorageTarget[MongoSubject]):
    """A server that is given by its URL."""

    name = "storage-mongo"

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._free: list[str] = []
        self._made: list[str] = []
        self._reached = False

    def describe(self) -> Mapping[str, str]:
        """The server, without its password."""
        return {"storage": self._configured(settings.DATABASE).place}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[MongoSubject]:
        """A subject in an empty database."""
        name = self._free.pop() if self._free else self._new_database()
        subject = MongoSubject(self._client(name), name)
        try:
            await subject.storage.open()
        except MunimentError as error:
            if self._reached:
                raise
            raise NotRun(f"MongoDB cannot be used: {error}") from error
        self._reached = True
        try:
            yield subject
        finally:
            await subject.storage.close()
            await self._recycle(name)

    @asynccontextmanager
    async def second(self, subject: MongoSubject) -> AsyncGenerator[Storage]:
        """Another client with connections and a cache of its own."""
        client = self._client(subject.database)
        await client.open()
        try:
            yield client
        finally:
            await client.close()

    async def probe(self, subject: MongoSubject) -> Stored:
        """Every document, in one snapshot."""
        async with self._raw(subject.database) as raw:
            database = Database(raw.client, raw.name, place="the suite's")
            return await database.snapshot(lambda session: _stored(raw, session))

    @asynccontextmanager
    async def fault(self, subject: MongoSubject, point: FaultPoint) -> AsyncGenerator[None]:
        """A validator that no document of the point's collection passes."""
        collection = _COLLECTION_OF[point]
        async with self._raw(subject.database) as raw:
            await raw.command({"collMod": collection, "validator": _NOTHING})
        try:
            yield
        finally:
            async with self._raw(subject.database) as raw:
                await raw.command({"collMod": collection, "validator": _VALIDATORS[collection]})

    @asynccontextmanager
    async def fault_agent(self, subject: MongoSubject, point: AgentFaultPoint, agent: Agent) -> AsyncGenerator[None]:
        """A validator that no document of the agent's passes."""
        async with self._raw(subject.database) as raw:
            await agent_probe.fail(raw, point, agent)
        try:
            yield
        finally:
            async with self._raw(subject.database) as raw:
                await agent_probe.mend(raw)

    async def age(self, subject: MongoSubject, seconds: float) -> None:
        """Change the documents."""
        async with self._raw(subject.database) as raw:
            await agent_probe.age(raw, seconds)

    def _new_database(self) -> str:
        if not self._made:
            atexit.register(self._drop)
        self._made.append(f"muniment_suite_{uuid4().hex[:12]}")
        return self._made[-1]

    def _drop(self) -> None:
        """Leave nothing on somebody's server."""
        url = self._configured(settings.DATABASE).url
        client: MongoClient[dict[str, Any]] = MongoClient(url, serverSelectionTimeoutMS=5_000)
        with contextlib.suppress(PyMongoError), client:
            for name in self._made:
                client.drop_database(name)

    async def _recycle(self, name: str) -> None:
        async with self._raw(name) as raw:
            for one in COLLECTIONS:
                await raw[one.name].delete_many({})
        self._free.append(name)

    def _configured(self, name: str) -> settings.Settings:
        context = PluginContext(self._spec, Path(tempfile.gettempdir()))
        return settings.parse(context).model_copy(update={"database": name})

    def _client(self, name: str) -> Storage:
        return MongoStorage(self._configured(name))

    @asynccontextmanager
    async def _raw(self, name: str) -> AsyncGenerator[agent_probe.Raw]:
        """A client that the plugin knows nothing of."""
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(self._configured(name).url, tz_aware=True)
        async with client:
            yield client.get_database(name, write_concern=MAJORITY)


class OwnTarget(MongoTarget):
    """A replica set of the target's own."""

    def __init__(self) -> None:
        self._replica_set = ReplicaSet()
        atexit.register(self._replica_set.remove)
        super().__init__(self._replica_set.url())

    def describe(self) -> Mapping[str, str]:
        """How it runs."""
        return {"storage": "a replica set of its own"}

    async def crash(self, subject: MongoSubject) -> None:
        """Kill the server."""
        self._replica_set.nodes[0].kill()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[MongoSubject]:
        """A subject in an empty database; the server stays between subjects."""
        try:
            await self._start()
        except (NoBinary, RuntimeError) as error:
            raise NotRun(str(error)) from error
        async with super().open() as subject:
            yield subject

    @asynccontextmanager
    async def second(self, subject: MongoSubject) -> AsyncGenerator[Storage]:
        """Another client, once the server runs."""
        await self._start()
        async with super().second(subject) as client:
            yield client

    def _drop(self) -> None:
        """The data go with the server."""

    async def _start(self) -> None:
        await asyncio.to_thread(self._replica_set.start)


def target(url: str | None = None) -> MongoTarget:
    """The target for a server's URL, or for one that it starts itself."""
    return MongoTarget(url) if url else OwnTarget()


async def _stored(raw: agent_probe.Raw, session: Session) -> Stored:
    found = {one.name: await raw[one.name].find({}, session=session).to_list() for one in COLLECTIONS}
    return Stored(
        passages=tuple(
            StoredPassage(
                one["scope_key"],
                one["space"],
                one["memory"],
                one["hash"],
                vector=tuple(np.frombuffer(one["vector"], dtype="<f4").tolist()),
            )
            for one in found[PASSAGES]
        ),
        terms=tuple(
            StoredTerm(one["scope_key"], one["_id"], term["t"], term["n"])
            for one in found[MEMORIES]
            for term in one["terms"]
        ),
        audit=tuple(
            StoredAudit(one["_id"], one["action"], one["memory_id"], one["project_id"])
            for one in sorted(found[AUDIT], key=lambda one: (one["at"], one["version"], one["_id"]))
        ),
        receipts=len(found[RECEIPTS]),
        rows={name: tuple(sorted(map(repr, documents))) for name, documents in found.items()},
        agents=await agent_probe.stored(raw, session),
    )
