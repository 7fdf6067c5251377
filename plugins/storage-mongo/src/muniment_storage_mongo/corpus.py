"""What is live in a scope, as the snapshot of a search has it: from the cache, with what has changed since read anew.

The lanes of the scope (see ``lanes``) say what the snapshot holds. What the cache has not seen is what bears a higher
revision of a lane: memories that were changed, and departures of those that left the scope. Both are read in the same
snapshot, so the entry that comes out is exact in it, whoever wrote and whatever crashed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

import numpy as np

from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.lanes import Revisions
from muniment_storage_mongo.schema import DEPARTURES, LENGTHS_INDEX, MEMORIES, PASSAGES
from muniment_storage_mongo.vector_cache import Entry, Key, Matrix, Numbers, Rows, VectorCache

_BATCH = 1_000
"""Passages of one reply; larger replies are slower."""
_BATCH_OF_KEYS = 100_000
"""Index keys of one reply; the server cuts it at 16 MB."""


class Later(Exception):
    """The cache is ahead of this snapshot; take another one. A database that was restored stays behind: ``forget``."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self.key = key


class Corpus:
    """The scopes that this process searches."""

    def __init__(self, database: Database, cache: VectorCache) -> None:
        self._database = database
        self._cache = cache
        self._turns: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def entry(self, session: Session, key: Key, revisions: Revisions) -> Entry:
        """A scope as it is in the session's snapshot, where its lanes have these revisions. Raises Later."""
        known = self._cache.get(key)
        if known is not None and known.seen == revisions:
            return known
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:  # what one search reads, the others that wait need not read again
            known = self._cache.get(key)
            if known is None:
                entry = Entry.of(revisions, await self._rows(session, key, None))
            elif known.seen == revisions:
                return known
            elif not known.is_within(revisions):
                raise Later(key)
            else:
                changed = await self._changed(session, key[0], known.seen, revisions)
                entry = known.with_changes(revisions, changed, await self._rows(session, key, sorted(changed)))
            self._cache.put(key, entry)
            return entry

    def forget(self, key: Key) -> None:
        """Keep nothing of a scope in mind."""
        self._cache.drop(key)

    async def _changed(self, session: Session, scope_key: str, seen: Revisions, revisions: Revisions) -> set[str]:
        """The ids of what a snapshot has and an entry has not seen."""
        lanes = [
            {"lane": lane, "rev": {"$gt": seen.get(lane, 0)}}
            for lane, rev in revisions.items()
            if rev != seen.get(lane, 0)
        ]
        condition: Document = {"scope_key": scope_key, "$or": lanes}
        memories = self._database.collection(MEMORIES).find(condition, {"_id": 1}, session=session)
        departures = self._database.collection(DEPARTURES).find(condition, {"_id": 0, "memory": 1}, session=session)
        return {one["_id"] async for one in memories} | {one["memory"] async for one in departures}

    async def _rows(self, session: Session, key: Key, ids: Sequence[str] | None) -> Rows:
        """What is live of a scope, or of these ids in it."""
        scope_key, space = key
        found, lengths = await self._lengths(session, scope_key, ids)
        if space is None or not found:
            return Rows(found, lengths, np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.float32))
        owners, vectors = await self._vectors(session, scope_key, space, ids)
        places = {identity: place for place, identity in enumerate(found)}
        return Rows(found, lengths, np.array([places[one] for one in owners], dtype=np.int64), vectors)

    async def _lengths(self, session: Session, scope_key: str, ids: Sequence[str] | None) -> tuple[list[str], Numbers]:
        condition: Document = {"scope_key": scope_key, "deleted": False}
        if ids is not None:
            condition["_id"] = {"$in": list(ids)}
        cursor = self._database.collection(MEMORIES).find(
            condition,
            {"length": 1},
            hint=LENGTHS_INDEX if ids is None else [("_id", 1)],
            batch_size=_BATCH_OF_KEYS,
            session=session,
        )
        found = await cursor.to_list()
        return [one["_id"] for one in found], np.array([one["length"] for one in found], dtype=np.int64)

    async def _vectors(
        self, session: Session, scope_key: str, space: str, ids: Sequence[str] | None
    ) -> tuple[list[str], Matrix]:
        condition: Document = {"scope_key": scope_key, "space": space}
        if ids is not None:
            condition["memory"] = {"$in": list(ids)}
        cursor = self._database.collection(PASSAGES).find(
            condition,
            {"_id": 0, "memory": 1, "vector": 1},
            hint="space" if ids is None else "memory",
            batch_size=_BATCH,
            session=session,
        )
        owners: list[str] = []
        parts: list[Matrix] = []
        while batch := await cursor.to_list(_BATCH):
            owners += [one["memory"] for one in batch]
            packed = b"".join([one["vector"] for one in batch])
            parts.append(np.frombuffer(packed, dtype="<f4").reshape(len(batch), -1))
        return owners, np.concatenate(parts, dtype=np.float32) if parts else np.zeros((0, 0), dtype=np.float32)
