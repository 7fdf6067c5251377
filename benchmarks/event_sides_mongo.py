"""MongoDB for the benchmark of events: the bare driver, and the documents that the sides share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import uuid4

from bson import Timestamp
from event_sides import CONNECTIONS, DRIVER, LEASE, PAYLOAD, Ground, Receipt, Side, beside, draft
from pymongo import AsyncMongoClient, ReturnDocument, UpdateOne, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from muniment import limits
from muniment.models import Agent
from muniment.ports import PluginContext
from muniment_storage_mongo import agent_records
from muniment_storage_mongo.agent_records import EMPTY, NOW
from muniment_storage_mongo.agent_schema import ENVELOPES, EVENTS, EXCHANGE_KEYS, EventState
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.storage import create

Document: TypeAlias = dict[str, Any]

DATABASE = "bench"
MAJORITY = WriteConcern(w="majority")
FIELDS = ("state", "attempts", "token", "lease_until")


class Raw:
    """PyMongo alone: the storage's statements on its documents, in transactions where it has one.

    A lock for each agent keeps transactions from undoing each other, without which hardly any gets through.
    """

    name = DRIVER

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._client = database.client
        self._envelopes = database[ENVELOPES.name]
        self._keys = database[EXCHANGE_KEYS.name]
        self._events = database[EVENTS.name]
        self._claiming: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._changing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def append(self, agent: Agent, key: str) -> None:
        """The envelope's pipeline and the dedupe key."""
        of_agent = agent_records.key_of(agent)
        pipeline = [EMPTY, *agent_records.appending(draft(agent), limits.EXCHANGES_KEPT, NOW)]
        async with self._transaction(of_agent) as session:
            envelope: Document | None = await self._envelopes.find_one_and_update(
                {"_id": of_agent},
                pipeline,
                {"revision": 1, "at": NOW},
                upsert=True,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            assert envelope is not None
            stored: Document = {"_id": {"agent": of_agent, "key": key}, "revision": envelope["revision"]}
            await self._keys.insert_many([stored], session=session)

    async def claim(self, agent: Agent, token: str) -> Sequence[Receipt]:
        """The oldest event and the envelope of one snapshot, then the delivery."""
        of_agent = agent_records.key_of(agent)
        async with self._claiming[of_agent]:
            async with self._client.start_session(snapshot=True) as session:
                found = await self._events.aggregate(_claimable(of_agent), session=session)
                event, envelope = await found.to_list()
            delivery = {
                "state": EventState.DELIVERED.value,
                "token": token,
                "attempts": event["attempts"] + 1,
                "lease_until": event["now"] + LEASE,
                "delivered": envelope["revision"],
            }
            seen = {"_id": event["_id"], **{name: event.get(name) for name in FIELDS}}
            await self._events.bulk_write([UpdateOne(seen, {"$set": delivery})], ordered=False)
        return [(agent, event["_id"]["id"], token)]

    async def ack(self, receipt: Receipt) -> bool:
        """The event, then last seen."""
        agent, event, token = receipt
        of_agent = agent_records.key_of(agent)
        out = {"_id": agent_records.event_key(agent, event), "token": token, "state": EventState.DELIVERED.value}
        acked = {"$set": {"state": EventState.ACKED.value}}
        async with self._transaction(of_agent) as session:
            found: Document | None = await self._events.find_one_and_update(
                out, acked, {"delivered": 1}, session=session
            )
            if found is not None:
                unseen = {"_id": of_agent, "last_seen": {"$lt": found["delivered"]}}
                await self._envelopes.update_one(unseen, {"$set": {"last_seen": found["delivered"]}}, session=session)
        return found is not None

    @asynccontextmanager
    async def _transaction(self, of_agent: str) -> AsyncGenerator[AsyncClientSession]:
        async with (
            self._changing[of_agent],
            self._client.start_session(causal_consistency=False) as session,
            await session.start_transaction(ReadConcern("snapshot"), MAJORITY),
        ):
            yield session


def _claimable(agent: str) -> list[Document]:
    """The oldest event that waits or whose lease is over, then the envelope with what was not seen."""
    pending = {"_id.agent": agent, "state": EventState.PENDING.value}
    over = {"attempts": {"$lt": limits.ATTEMPTS_MAX}, **agent_records.LEASE_IS_OVER}
    lapsed = {"_id.agent": agent, "state": EventState.DELIVERED.value, **over}
    oldest: list[Document] = [{"$sort": {"number": 1, "_id.id": 1}}, {"$limit": 1}]
    entries: Document = {"$ifNull": ["$exchanges", []]}
    fresh: Document = {
        "$filter": {"input": entries, "as": "entry", "cond": {"$gt": ["$$entry.revision", "$last_seen"]}}
    }
    envelope: list[Document] = [
        {"$match": {"_id": agent}},
        {"$project": {"revision": 1, "last_seen": 1, "exchanges": fresh}},
    ]
    return [
        {"$match": pending},
        *oldest,
        {"$unionWith": {"coll": EVENTS.name, "pipeline": [{"$match": lapsed}, *oldest]}},
        *oldest,
        {"$set": {"now": NOW}},
        {"$unionWith": {"coll": ENVELOPES.name, "pipeline": envelope}},
    ]


class Documents(Ground):
    """What the sides share."""

    def __init__(
        self, sides: Sequence[Side], process: int, database: AsyncDatabase[Document], agents: Sequence[Agent]
    ) -> None:
        super().__init__(sides, process, agents)
        self._envelopes = database[ENVELOPES.name]
        self._events = database[EVENTS.name]
        self._number = 0

    async def revisions(self) -> int:
        """The sum of all envelopes' revisions."""
        return sum([one["revision"] async for one in self._envelopes.find({}, {"revision": 1})])

    async def unsee(self, count: int) -> None:
        """Let each agent have seen all exchanges but the last ``count``."""
        await self._envelopes.update_many({}, [{"$set": {"last_seen": {"$subtract": ["$revision", count]}}}])

    async def enqueue(self, events: int) -> None:
        """Events in turn for every agent."""
        documents: list[Document] = []
        for place in range(events):
            self._number += 1
            documents.append(
                {
                    "_id": agent_records.event_key(self.agents[place % len(self.agents)], str(uuid4())),
                    **{"number": Timestamp(1, self._number), "enqueued_at": datetime.now(UTC), "payload": PAYLOAD},
                    **{"state": EventState.PENDING.value, "attempts": 0},
                }
            )
        await self._events.insert_many(documents)

    async def unfinished(self) -> int:
        """How many events are not acknowledged, or were claimed more than once."""
        other = [{"state": {"$ne": EventState.ACKED.value}}, {"attempts": {"$ne": 1}}]
        return await self._events.count_documents({"$or": other})


@asynccontextmanager
async def ground(agents: Sequence[Agent]) -> AsyncGenerator[Documents]:
    """A server of its own, and the sides on it."""
    with ReplicaSet() as running:
        url = running.url(DATABASE)
        storage = create(PluginContext(url, running.directory, {"pool_size": CONNECTIONS}))
        process = running.primary().pid
        assert process is not None
        client: AsyncMongoClient[Document] = AsyncMongoClient(
            url, tz_aware=True, w="majority", readConcernLevel="majority", maxPoolSize=CONNECTIONS
        )
        async with client, beside(Raw(client[DATABASE]), storage) as sides:
            yield Documents(sides, process, client[DATABASE], agents)
