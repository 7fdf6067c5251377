"""What the conformance suite reads and breaks of agent memory, around the plugin."""

from __future__ import annotations

from typing import Any, TypeAlias

from pymongo.asynchronous.database import AsyncDatabase

from muniment.conformance.target import (
    AgentFaultPoint,
    StoredAgents,
    StoredDedupeKey,
    StoredEntry,
    StoredEnvelope,
    StoredEvent,
)
from muniment.models import Agent
from muniment_storage_mongo.agent_records import agent_of, key_of
from muniment_storage_mongo.agent_schema import AGENT, ENVELOPES, EVENTS, EXCHANGE_KEYS, EventState
from muniment_storage_mongo.database import Document, Session
from muniment_storage_mongo.schema import MEMORIES

Raw: TypeAlias = AsyncDatabase[Document]

_OF_POINT = {AgentFaultPoint.ENVELOPE: (ENVELOPES, "_id"), AgentFaultPoint.EVENT: (EVENTS, AGENT)}


async def stored(db: Raw, session: Session | None = None) -> StoredAgents:
    """Everything of agent memory, in the session's snapshot."""

    async def documents(name: str) -> list[Document]:
        return await db[name].find(session=session).to_list()

    envelopes = await documents(ENVELOPES.name)
    return StoredAgents(
        envelopes=tuple(
            StoredEnvelope(
                agent_of(one["_id"]),
                one["revision"],
                one["last_seen"],
                one.get("sync_key"),
                {name: section["version"] for name, section in one.get("sections", {}).items()},
            )
            for one in envelopes
        ),
        exchanges=tuple(
            StoredEntry(
                agent_of(one["_id"]),
                entry["revision"],
                entry["kind"],
                tuple(entry["peers"]),
                entry["takeaway"],
                entry["size"],
            )
            for one in envelopes
            for entry in one.get("exchanges", ())
        ),
        events=tuple(
            StoredEvent(
                one["_id"]["id"],
                agent_of(one["_id"]["agent"]),
                one["state"] == EventState.ACKED.value,
                one["attempts"],
                one.get("token"),
                one.get("delivered"),
            )
            for one in await documents(EVENTS.name)
        ),
        dedupe_keys=tuple(
            StoredDedupeKey(agent_of(one["_id"]["agent"]), one["_id"]["key"], one["revision"])
            for one in await documents(EXCHANGE_KEYS.name)
        ),
    )


async def fail(db: Raw, point: AgentFaultPoint, agent: Agent) -> None:
    """Let every change of the agent's documents of the point's collection be refused."""
    collection, field = _OF_POINT[point]
    validator = {"$and": [collection.validator, {field: {"$ne": key_of(agent)}}]}
    await db.command({"collMod": collection.name, "validator": validator})


async def mend(db: Raw) -> None:
    """Undo ``fail``."""
    for collection, _ in _OF_POINT.values():
        await db.command({"collMod": collection.name, "validator": collection.validator})


async def age(db: Raw, seconds: float) -> None:
    """Move the end of every lease that still runs back, of events and of memories that are being embedded."""
    milliseconds = round(seconds * 1000)
    earlier: Any = [{"$set": {"lease_until": {"$subtract": ["$lease_until", milliseconds]}}}]
    await db[EVENTS.name].update_many({"$expr": {"$gt": ["$lease_until", "$$NOW"]}}, earlier)
    moved = {"$cond": [{"$gt": ["$$this.until", "$$NOW"]}, milliseconds, 0]}
    lease = {"$mergeObjects": ["$$this", {"until": {"$subtract": ["$$this.until", moved]}}]}
    leases: Any = [{"$set": {"leases": {"$map": {"input": "$leases", "in": lease}}}}]
    await db[MEMORIES].update_many({"leases": {"$exists": True}}, leases)
