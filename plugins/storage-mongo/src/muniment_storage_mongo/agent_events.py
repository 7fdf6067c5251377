"""Events before and after their deliveries: enqueued, dead, and enqueued again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pymongo import ASCENDING, ReturnDocument
from pymongo.errors import DuplicateKeyError

from muniment.errors import Internal, StorageUnavailable
from muniment.models import Agent
from muniment.ports import LostEvent, NewEvent, Position, ReceiptTaken
from muniment_storage_mongo import agent_records, receipts
from muniment_storage_mongo.agent_records import LEASE_IS_OVER
from muniment_storage_mongo.agent_schema import AGENT, EVENTS, EventState
from muniment_storage_mongo.database import Database, Document, Session

_ATTEMPTS = 4
"""How often an old receipt may stand in the way."""


async def enqueue(database: Database, event: NewEvent) -> datetime:
    """Store an event; when. Raises ReceiptTaken."""
    claim = event.claim
    if claim is None:
        return await database.write(lambda: _store(database, event))

    async def work(session: Session) -> datetime:
        at = await _store(database, event, session)
        await receipts.claim(database, session, claim, at)
        return at

    for _ in range(_ATTEMPTS):
        try:
            return await database.transaction(work)
        except DuplicateKeyError as error:
            if not await receipts.expire(database, claim):
                raise ReceiptTaken from error
    raise StorageUnavailable(f"Event {event.id} met an old idempotency key again and again; try again.")


async def dead(
    database: Database, agent: Agent, attempts_max: int, after: Position | None, limit: int
) -> Sequence[LostEvent]:
    """An agent's dead events, oldest first."""
    query = _dead(agent, attempts_max)
    if after is not None:
        at, place = after.created_at, after.id
        query["$or"] = [{"enqueued_at": {"$gt": at}}, {"enqueued_at": at, "_id.id": {"$gt": place}}]

    async def work() -> list[LostEvent]:
        order = [("enqueued_at", ASCENDING), ("_id.id", ASCENDING)]
        cursor = database.collection(EVENTS.name).find(query).sort(order).limit(limit)
        return [agent_records.lost_event(agent, event) async for event in cursor]

    return await database.read(work)


async def waiting(database: Database, attempts_max: int) -> int:
    """How many events of all agents a claim would get; what is acknowledged is in neither index."""
    events = database.collection(EVENTS.name)
    pending = {"state": EventState.PENDING.value}
    lapsed = {"state": EventState.DELIVERED.value, "attempts": {"$lt": attempts_max}, **LEASE_IS_OVER}

    async def work() -> int:
        never_out = await events.count_documents(pending, hint="event_pending")
        return never_out + await events.count_documents(lapsed, hint="event_delivered")

    return await database.read(work)


async def agents_waiting(database: Database, agents: Sequence[Agent], attempts_max: int) -> frozenset[Agent]:
    """Those of the agents with an event that a claim would get, in one query; what it reads is what waits, and what
    is out, of these agents."""
    keys = {agent_records.key_of(agent): agent for agent in agents}
    of_these: Document = {AGENT: {"$in": sorted(keys)}}
    lapsed = {**of_these, "state": EventState.DELIVERED.value, "attempts": {"$lt": attempts_max}, **LEASE_IS_OVER}
    by_agent: list[Document] = [{"$group": {"_id": f"${AGENT}"}}]
    pipeline: list[Document] = [
        {"$match": {**of_these, "state": EventState.PENDING.value}},
        *by_agent,
        {"$unionWith": {"coll": EVENTS.name, "pipeline": [{"$match": lapsed}, *by_agent]}},
    ]
    events = database.collection(EVENTS.name)

    async def work() -> list[Document]:
        return await (await events.aggregate(pipeline)).to_list()

    return frozenset(keys[one["_id"]] for one in await database.read(work))


async def requeue(database: Database, agent: Agent, event_ids: Sequence[str], attempts_max: int) -> Sequence[str]:
    """Give dead events their attempts back; the ids that were dead. Their tokens stay."""
    keys = [agent_records.event_key(agent, event_id) for event_id in event_ids]
    events = database.collection(EVENTS.name)

    async def work(session: Session) -> set[str]:
        cursor = events.find({**_dead(agent, attempts_max), "_id": {"$in": keys}}, {"_id": 1}, session=session)
        found = [event["_id"] async for event in cursor]
        await events.update_many({"_id": {"$in": found}}, {"$set": {"attempts": 0}}, session=session)
        return {key["id"] for key in found}

    requeued = await database.transaction(work)
    return [event_id for event_id in event_ids if event_id in requeued]


async def _store(database: Database, event: NewEvent, session: Session | None = None) -> datetime:
    try:
        stored = await database.collection(EVENTS.name).find_one_and_update(
            {"_id": agent_records.event_key(event.agent, event.id), "state": None},
            agent_records.enqueuing(event),
            {"enqueued_at": 1},
            upsert=True,
            return_document=ReturnDocument.AFTER,
            session=session,
        )
    except DuplicateKeyError as error:
        raise Internal(f"The agent has an event {event.id} already.") from error
    assert stored is not None
    return stored["enqueued_at"]


def _dead(agent: Agent, attempts_max: int) -> Document:
    return {
        AGENT: agent_records.key_of(agent),
        "state": EventState.DELIVERED.value,
        "attempts": {"$gte": attempts_max},
        **LEASE_IS_OVER,
    }
