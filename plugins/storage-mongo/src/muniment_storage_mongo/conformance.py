"""What the suite needs of this plugin: empty subjects, raw reads, faults by validator, and crashes by SIGKILL.

Each subject is a database of its own. Without a URL the server is a replica set of one on loopback, which goes away
with this process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError

from muniment.conformance.places import PlacedSubject, PlacesTarget
from muniment.conformance.target import (
    AgentFaultPoint,
    FaultPoint,
    NotRun,
    Stored,
    StoredAudit,
    StoredPassage,
    StoredTerm,
)
from muniment.models import Agent
from muniment.ports import PluginContext, Storage
from muniment_storage_mongo import agent_probe, settings
from muniment_storage_mongo.database import MAJORITY, Database, Session
from muniment_storage_mongo.migrate import COLLECTIONS
from muniment_storage_mongo.mongod import NoBinary, NotStarted, ReplicaSet
from muniment_storage_mongo.schema import AUDIT, MEMORIES, PASSAGES, PROJECTS, RECEIPTS
from muniment_storage_mongo.storage import MongoStorage

_COLLECTION_OF = {
    FaultPoint.MEMORY: MEMORIES,
    FaultPoint.AUDIT: AUDIT,
    FaultPoint.PASSAGES: PASSAGES,
    FaultPoint.TERMS: MEMORIES,
    FaultPoint.RECEIPT: RECEIPTS,
    FaultPoint.PROJECT: PROJECTS,
}
_VALIDATORS = {one.name: one.validator for one in COLLECTIONS}
_NOTHING = {"_id": {"$exists": False}}
"""A validator that no document passes."""


class MongoTarget(PlacesTarget):
    """A server that is given by its URL; a place is a database."""

    name = "storage-mongo"
    contract = "1.2"

    def __init__(self, spec: str) -> None:
        super().__init__()
        self._spec = spec

    def describe(self) -> Mapping[str, str]:
        """The server, without its password."""
        return {"storage": self._configured(settings.DATABASE).place}

    def client(self, place: str) -> Storage:
        """With connections and a cache of its own."""
        return MongoStorage(self._configured(place))

    async def empty(self, place: str) -> None:
        """Delete every document."""
        async with self._raw(place) as raw:
            for one in COLLECTIONS:
                await raw[one.name].delete_many({})

    def remove(self, places: Sequence[str]) -> None:
        """Drop the databases."""
        url = self._configured(settings.DATABASE).url
        client: MongoClient[dict[str, Any]] = MongoClient(url, serverSelectionTimeoutMS=5_000)
        with contextlib.suppress(PyMongoError), client:
            for name in places:
                client.drop_database(name)

    async def probe(self, subject: PlacedSubject) -> Stored:
        """Every document, in one snapshot."""
        async with self._raw(subject.place) as raw:
            database = Database(raw.client, raw.name, place="the suite's")
            return await database.snapshot(lambda session: _stored(raw, session))

    async def layout(self, subject: PlacedSubject) -> frozenset[str]:
        """Collections with their validators, and indexes; none belongs to one space."""
        lines: set[str] = set()
        async with self._raw(subject.place) as raw:
            async for one in await raw.list_collections():
                lines.add(f"{one['name']}: {one['options']}")
                indexes = await raw[one["name"]].index_information()
                lines.update(f"{one['name']} {name}: {index}" for name, index in indexes.items())
        return frozenset(lines)

    @asynccontextmanager
    async def fault(self, subject: PlacedSubject, point: FaultPoint) -> AsyncGenerator[None]:
        """A validator that no document of the point's collection passes."""
        collection = _COLLECTION_OF[point]
        async with self._raw(subject.place) as raw:
            await raw.command({"collMod": collection, "validator": _NOTHING})
        try:
            yield
        finally:
            async with self._raw(subject.place) as raw:
                await raw.command({"collMod": collection, "validator": _VALIDATORS[collection]})

    @asynccontextmanager
    async def fault_agent(self, subject: PlacedSubject, point: AgentFaultPoint, agent: Agent) -> AsyncGenerator[None]:
        """A validator that no document of the agent's passes."""
        async with self._raw(subject.place) as raw:
            await agent_probe.fail(raw, point, agent)
        try:
            yield
        finally:
            async with self._raw(subject.place) as raw:
                await agent_probe.mend(raw)

    async def age(self, subject: PlacedSubject, seconds: float) -> None:
        """Change the documents."""
        async with self._raw(subject.place) as raw:
            await agent_probe.age(raw, seconds)

    def _configured(self, name: str) -> settings.Settings:
        context = PluginContext(self._spec, Path(tempfile.gettempdir()))
        return settings.parse(context).model_copy(update={"database": name})

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

    async def crash(self, subject: PlacedSubject) -> None:
        """Kill the server."""
        self._replica_set.nodes[0].kill()

    def remove(self, places: Sequence[str]) -> None:
        """The data go with the server."""

    async def start(self) -> bool:
        """Start the server; it stays between subjects."""
        try:
            await asyncio.to_thread(self._replica_set.start)
        except (NoBinary, NotStarted) as error:
            raise NotRun(str(error)) from error
        return True


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
