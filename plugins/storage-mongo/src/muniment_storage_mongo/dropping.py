"""How a space's passages are taken away: batch by batch, each memory's in one transaction with the note that they were
complete, under a revision of its scope's, so that every cache learns of it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from muniment_storage_mongo import lanes
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.filling import embedded_sets
from muniment_storage_mongo.lanes import Lane
from muniment_storage_mongo.records import EMBEDDED_IN
from muniment_storage_mongo.schema import EMBEDDED_INDEX, MEMORIES, PASSAGES, SPACE_INDEX

_PASSAGES = 512
"""Passages that are looked at for the memories of one batch."""
_MEMORIES = 16
"""Memories of one batch at most; they are locked while it lasts."""

Check: TypeAlias = Callable[[Session], Awaitable[None]]
Batch: TypeAlias = Mapping[str, set[str]]
"""Ids of memories, each with the scope keys that it has passages in: one, as a rule."""


class Stays(Exception):
    """The space is not dropped."""


async def take_most(database: Database, space: str, check: Check) -> None:
    """Take away what there is while others may go on storing passages in the space, so that little is left for
    ``take_rest``. ``check`` raises where it may not go on."""
    before, left = 0, await _count(database, space)
    while left and (before == 0 or left <= before // 2):
        taken = 0
        while taken < left and (some := await _take_some(database, space, check)):
            taken += some
        before, left = left, await _count(database, space)


async def take_rest(database: Database, space: str, check: Check) -> None:
    """Take away everything; nobody must be able to store passages in the space."""
    while await _take_some(database, space, check):
        pass


async def _count(database: Database, space: str) -> int:
    """How many passages a space has."""
    passages = database.collection(PASSAGES)
    return await database.read(lambda: passages.count_documents({"space": space}, hint=SPACE_INDEX))


async def _take_some(database: Database, space: str, check: Check) -> int:
    """Clear one batch; how many passages and memories that was, 0 where nothing is left."""
    batch = await database.snapshot(lambda session: _batch(database, session, space))
    if not batch:
        return 0

    async def work(session: Session) -> int:
        await check(session)
        return len(batch) + await _clear(database, session, space, batch)

    return await database.transaction(work)


async def _batch(database: Database, session: Session, space: str) -> Batch:
    """Some memories that have passages in the space; where none has, some that count as complete without any."""
    fields = {"_id": 0, "scope_key": 1, "memory": 1}
    stored = database.collection(PASSAGES).find({"space": space}, fields, hint=SPACE_INDEX, session=session)
    batch: dict[str, set[str]] = {}
    async for one in stored.limit(_PASSAGES):
        if one["memory"] in batch or len(batch) < _MEMORIES:
            batch.setdefault(one["memory"], set()).add(one["scope_key"])
    for of in [] if batch else await embedded_sets(database, session):
        if space in of["spaces"]:
            complete = {"deleted": False, "embedded_in": of}
            found = database.collection(MEMORIES).find(complete, {"_id": 1}, hint=EMBEDDED_INDEX, session=session)
            return {one["_id"]: set[str]() async for one in found.limit(_MEMORIES)}
    return batch


async def _clear(database: Database, session: Session, space: str, batch: Batch) -> int:
    """Take the space from a batch of memories, wherever they are now; how many passages that were.

    A memory is written before its passages are deleted, so a move of it that carries them either came before, or begins
    again.
    """
    memories = database.collection(MEMORIES)
    present = memories.find({"_id": {"$in": list(batch)}}, {"scope_key": 1}, session=session)
    by_scope: dict[str, list[str]] = {}
    async for one in present:
        by_scope.setdefault(one["scope_key"], []).append(one["_id"])
    for scope_key, ids in by_scope.items():
        stamp = await Lane(scope_key, random.randrange(lanes.COUNT)).advance(database, session)
        others = {"$filter": {"input": "$" + EMBEDDED_IN, "cond": {"$ne": ["$$this", {"$literal": space}]}}}
        cleared = [{"$set": {EMBEDDED_IN: others, **stamp}}]
        await memories.update_many({"_id": {"$in": ids}, "scope_key": scope_key}, cleared, session=session)
    scope_keys = {*by_scope, *(key for keys in batch.values() for key in keys)}
    left: Document = {"scope_key": {"$in": sorted(scope_keys)}, "memory": {"$in": list(batch)}, "space": space}
    return (await database.collection(PASSAGES).delete_many(left, session=session)).deleted_count
