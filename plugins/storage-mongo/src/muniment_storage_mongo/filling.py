"""How a space fills: which memories lack passages in it, who works on which of them, and what comes of it.

What is live has few different sets of spaces that it is embedded in, and an index has them by that set and by id. So
each set without the space is looked at by itself, and memories that are complete cost nothing. A lease is an entry of
the memory's ``leases``: for one registration of a space, for one version of the memory, until a time of the server's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from heapq import merge
from itertools import islice
from typing import Any

from bson.objectid import ObjectId

from muniment.ports import Passages, Progress, Unembedded
from muniment.ports.refusals import no_space
from muniment_storage_mongo import background, vectors
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.lanes import Lane, Lanes
from muniment_storage_mongo.records import EMBEDDED_IN, literal
from muniment_storage_mongo.schema import EMBEDDED_INDEX, MEMORIES, SPACES

_LIVE: Mapping[str, Any] = {"deleted": False}
_LEASES: Mapping[str, Any] = {"$ifNull": ["$leases", []]}
_TO_EMBED: Mapping[str, int] = {"version": 1, "content": 1, "scope_key": 1, "leases": 1}


async def embedded_sets(database: Database, session: Session) -> list[Document]:
    """The different values of ``embedded_in`` that live memories have, each found by one look into the index."""
    found: list[Document] = []
    while True:
        beyond: Document = {"embedded_in": {"$gt": found[-1]}} if found else {}
        one = await database.collection(MEMORIES).find_one(
            {**_LIVE, **beyond},
            {"_id": 0, "embedded_in": 1},
            sort=[("embedded_in", 1)],
            hint=EMBEDDED_INDEX,
            session=session,
        )
        if one is None:
            return found
        found.append(one["embedded_in"])


async def unembedded(database: Database, space: str, limit: int) -> Sequence[Unembedded]:
    """Live memories whose passages in the space are not complete, whoever works on them."""

    async def work(session: Session) -> list[Unembedded]:
        lacking = await _lacking(database, session, space)
        waiting = database.collection(MEMORIES).find(lacking, _TO_EMBED, hint=EMBEDDED_INDEX, session=session)
        return await _to_embed(database, session, await waiting.limit(limit).to_list(), space)

    return await database.snapshot(work)


async def pending(database: Database, space: str) -> int:
    """How many ``unembedded`` would find."""

    async def work(session: Session) -> int:
        lacking = await _lacking(database, session, space)
        counting: list[Document] = [{"$match": lacking}, {"$count": "memories"}]
        counted = await database.collection(MEMORIES).aggregate(counting, hint=EMBEDDED_INDEX, session=session)
        return sum([one["memories"] async for one in counted])

    return await database.snapshot(work)


async def progress(database: Database, space: str) -> Progress:
    """Counted in one index."""

    async def work(session: Session) -> Progress:
        registered = await _registration(database, session, space) is not None
        counting: list[Document] = [
            {"$match": _LIVE},
            {"$group": {"_id": "$embedded_in", "memories": {"$sum": 1}}},
        ]
        counted = await database.collection(MEMORIES).aggregate(counting, hint=EMBEDDED_INDEX, session=session)
        by_set = await counted.to_list()
        complete = [one["memories"] for one in by_set if registered and space in one["_id"]["spaces"]]
        return Progress(sum(complete), sum(one["memories"] for one in by_set))

    return await database.snapshot(work)


async def lease(
    database: Database, space: str, *, after: str | None, limit: int, lease: timedelta
) -> Sequence[Unembedded]:
    """By id, above ``after``. For those that somebody else was faster to lease the next ones are taken."""
    leased: dict[str, Unembedded] = {}
    while len(leased) < limit:
        some = await _lease_some(database, space, after, limit - len(leased), lease)
        if some is None:
            break
        leased |= {one.memory_id: one for one in some}
    return [leased[memory_id] for memory_id in sorted(leased)]


async def _lease_some(
    database: Database, space: str, after: str | None, limit: int, lease: timedelta
) -> Sequence[Unembedded] | None:
    """Those of the first free memories that nobody was faster to lease; None where no memory is free."""
    memories = database.collection(MEMORIES)

    async def look(session: Session) -> tuple[ObjectId, list[str]]:
        registration = await _registration(database, session, space)
        if registration is None:
            raise no_space(space)
        return registration, await _first(database, session, space, _free(registration), after, limit)

    registration, ids = await database.snapshot(look)
    if not ids:
        return None
    holder = ObjectId()
    condition: Document = {"_id": {"$in": ids}, **_LIVE, EMBEDDED_IN: {"$ne": space}, **_free(registration)}
    taking = _taking(space, registration, holder, lease)
    await database.write(lambda: memories.update_many(condition, taking))

    async def taken(session: Session) -> list[Unembedded]:
        found = memories.find({"_id": {"$in": ids}, "leases.holder": holder}, _TO_EMBED, session=session)
        held = [one async for one in found if _is_held(one, holder)]
        return await _to_embed(database, session, held, space)

    return await database.snapshot(taken)


async def store_passages(database: Database, lanes: Lanes, memory_id: str, version: int, passages: Passages) -> bool:
    """Store background vectors if the live memory is still at this version; its lease ends."""
    space = passages.space
    others = _without(space, "$" + EMBEDDED_IN, "$$this")
    changed: list[Document] = [
        {
            "$set": {
                EMBEDDED_IN: {"$concatArrays": [others, literal([space] if passages.complete else [])]},
                "leases": _without(space, _LEASES, "$$this.space"),
            }
        }
    ]

    async def replace(session: Session, scope_key: str, lane: Lane) -> None:
        if not await lane.admits(database, session, space):
            raise no_space(space)
        within = vectors.of(scope_key, memory_id)
        await vectors.drop(database, session, {**within, "space": space}, passages)
        await vectors.add(database, session, scope_key, memory_id, passages)
        if not passages.complete or await vectors.has_kept(database, session, within, passages):
            return
        key = {"_id": memory_id, "scope_key": scope_key}
        incomplete = {"$pull": {EMBEDDED_IN: space}}
        await database.collection(MEMORIES).update_one(key, incomplete, session=session)

    return await background.change(database, lanes, memory_id, version, changed, replace)


async def _registration(database: Database, session: Session, space: str) -> ObjectId | None:
    """Which registration of a space there is."""
    found = await database.collection(SPACES).find_one({"_id": space}, {"registration": 1}, session=session)
    return found["registration"] if found else None


async def _lacking(database: Database, session: Session, space: str) -> Document:
    """The condition on live memories that lack the space."""
    sets = await embedded_sets(database, session)
    return {**_LIVE, "embedded_in": {"$in": [one for one in sets if space not in one["spaces"]]}}


async def _first(
    database: Database, session: Session, space: str, free: Document, after: str | None, limit: int
) -> list[str]:
    """The first free memories that lack the space, by id, above ``after``."""
    above: Document = {} if after is None else {"_id": {"$gt": after}}
    found: list[list[str]] = []
    for one in await embedded_sets(database, session):
        if space not in one["spaces"]:
            condition = {**_LIVE, "embedded_in": one, **above, **free}
            waiting = database.collection(MEMORIES).find(condition, {"_id": 1}, hint=EMBEDDED_INDEX, session=session)
            found.append([row["_id"] async for row in waiting.sort("_id").limit(limit)])
    return list(islice(merge(*found), limit))


async def _to_embed(database: Database, session: Session, found: Sequence[Document], space: str) -> list[Unembedded]:
    if not found:
        return []
    hashes = await vectors.hashes(database, session, found, space)
    return [Unembedded(one["_id"], one["version"], one["content"], hashes[one["_id"]]) for one in found]


# ------------------------------------------------------------ leases


def _free(registration: ObjectId) -> Document:
    """The condition on a memory that nobody has a lease on its version."""
    holds = {
        "$and": [
            {"$eq": ["$$this.registration", registration]},
            {"$eq": ["$$this.version", "$version"]},
            {"$gt": ["$$this.until", "$$NOW"]},
        ]
    }
    held: Document = {"$filter": {"input": _LEASES, "cond": holds}}
    return {"$expr": {"$eq": [held, []]}}


def _taking(space: str, registration: ObjectId, holder: ObjectId, lease: timedelta) -> list[Document]:
    """Lease a memory, in the place of a lease in the space that is over."""
    others = _without(space, _LEASES, "$$this.space")
    new = {
        "space": literal(space),
        "registration": registration,
        "holder": holder,
        "version": "$version",
        "until": {"$add": ["$$NOW", round(lease.total_seconds() * 1_000)]},
    }
    return [{"$set": {"leases": {"$concatArrays": [others, [new]]}}}]


def _is_held(memory: Document, holder: ObjectId) -> bool:
    """Whether a lease is still one of the memory's version."""
    return any(one["holder"] == holder and one["version"] == memory["version"] for one in memory["leases"])


def _without(space: str, elements: Any, of: str) -> Document:
    """A list but for what is the space's, for a pipeline."""
    return {"$filter": {"input": elements, "cond": {"$ne": [of, literal(space)]}}}
