"""What is live in a scope, as the snapshot of a search has it: from the cache, with what has changed since read anew.

The lanes of the scope (see ``lanes``) say what the snapshot holds. What the cache has not seen is what bears a higher
revision of a lane: memories that were changed, and departures of those that left the scope. Both are read in the same
snapshot, so the entry that comes out is exact in it, whoever wrote and whatever crashed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import repeat
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from muniment.ports import Audience
from muniment.ranking import Postings
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.lanes import Revisions
from muniment_storage_mongo.replies import Query, batches
from muniment_storage_mongo.schema import DEPARTURES, LENGTHS_INDEX, MEMORIES, PASSAGES, SPACE_INDEX, WORDS_INDEX
from muniment_storage_mongo.vector_cache import Entry, Key, Matrix, Numbers, Rows, VectorCache

_BATCH = 2_000
"""Passages of one reply."""
_BATCH_OF_KEYS = 100_000
"""Index keys of one reply; the server cuts it at 16 MB."""
_FEW = 100
"""Changed memories whose terms are read, to go on with the postings that are kept; they are long."""
_VECTORS: Mapping[str, int] = {"_id": 0, "memory": 1, "vector": 1}
_AUDIENCES = 1_000
"""So many audiences are kept in mind."""


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
        self._steady: WeakSet[Entry] = WeakSet()
        self._read_before: OrderedDict[Audience, Mapping[str, bool]] = OrderedDict()

    async def entry(self, session: Session, key: Key, revisions: Revisions) -> Entry:
        """A scope as it is in the session's snapshot, where its lanes have these revisions. Raises Later."""
        known = self._cache.get(key)
        if known is not None and known.seen == revisions:
            self._steady.add(known)
            return known
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:  # what one search reads, the others that wait need not read again
            known = self._cache.get(key)
            if known is None:
                entry = await self._whole(session, key, revisions)
            elif known.seen == revisions:
                return known
            elif not known.is_within(revisions):
                raise Later(key)
            else:
                entry = await self._later(session, key, known, revisions)
            self._cache.put(key, entry)
            return entry

    def steady(self, key: Key) -> Entry | None:
        """A scope as it was in an earlier snapshot, if it was found unchanged since."""
        known = self._cache.get(key)
        return known if known in self._steady else None

    def note(self, audience: Audience, scopes: Mapping[str, bool]) -> None:
        """Keep in mind which scopes an audience reads, its own first, and whether each has had a memory."""
        self._read_before[audience] = scopes
        self._read_before.move_to_end(audience)
        if len(self._read_before) > _AUDIENCES:
            self._read_before.popitem(last=False)

    def read_before(self, audience: Audience) -> Mapping[str, bool]:
        """What was noted of an audience last. It may be able to read others now, or fewer."""
        return self._read_before.get(audience, {})

    def forget(self, key: Key) -> None:
        """Keep nothing of a scope in mind."""
        self._cache.drop(key)

    def forget_read(self, audience: Audience, space: str | None) -> None:
        """Keep nothing in mind of what an audience reads."""
        for scope_key in self._read_before.pop(audience, {}):
            for key in ((scope_key, None), (scope_key, space)):
                self.forget(key)

    async def postings(self, session: Session, entries: Mapping[str, Entry], term: str) -> Mapping[str, Postings]:
        """Who holds a term in each of these scopes, and how often, by their places in the scope's entry.

        Read from the keys of the index, no document is; what is read is kept.
        """
        known = {key: entry.postings.get(term) for key, entry in entries.items()}
        unknown = [key for key, postings in known.items() if postings is None]
        read = await self._postings(session, entries, unknown, term) if unknown else {}
        for key, postings in read.items():
            entries[key].postings.put(term, postings)
        return {key: read[key] if postings is None else postings for key, postings in known.items()}

    async def _postings(
        self, session: Session, entries: Mapping[str, Entry], scope_keys: Sequence[str], term: str
    ) -> dict[str, Postings]:
        places: dict[str, list[int]] = {key: [] for key in scope_keys}
        counts: dict[str, list[int]] = {key: [] for key in scope_keys}
        condition: Document = {"scope_key": {"$in": list(scope_keys)}, "terms.t": term}
        query = Query(MEMORIES, condition, WORDS_INDEX, _BATCH_OF_KEYS)
        async for batch in batches(self._database, session, query):
            ids, only = batch.texts("_id"), batch.only("scope_key")
            keys = batch.texts("scope_key") if only is None else repeat(only, len(ids))
            for key, identity, count in zip(keys, ids, batch.numbers("terms.n").tolist(), strict=True):
                places[key].append(entries[key].places[identity])
                counts[key].append(count)
        return {
            key: Postings(np.array(places[key], dtype=np.int64), np.array(counts[key], dtype=np.int64))
            for key in scope_keys
        }

    async def _whole(self, session: Session, key: Key, revisions: Revisions) -> Entry:
        """All of a scope."""
        scope_key, space = key
        condition: Document = {"scope_key": scope_key, "deleted": False}
        query = Query(MEMORIES, condition, LENGTHS_INDEX, _BATCH_OF_KEYS, {"length": 1})
        ids: list[str] = []
        lengths = [np.zeros(0, dtype=np.int64)]
        async for batch in batches(self._database, session, query):
            ids += batch.texts("_id")
            lengths.append(batch.numbers("length"))
        vectors = Query(PASSAGES, {"scope_key": scope_key, "space": space}, SPACE_INDEX, _BATCH, _VECTORS)
        owners, matrix = await self._vectors(session, ids, vectors if space is not None else None)
        return Entry.of(revisions, Rows(ids, np.concatenate(lengths), owners, matrix))

    async def _later(self, session: Session, key: Key, known: Entry, revisions: Revisions) -> Entry:
        """What was known of a scope, with what the snapshot has and it has not seen."""
        scope_key, space = key
        lanes = [
            {"lane": lane, "rev": {"$gt": known.seen.get(lane, 0)}}
            for lane, rev in revisions.items()
            if rev != known.seen.get(lane, 0)
        ]
        condition: Document = {"scope_key": scope_key, "$or": lanes}
        memories, departures = self._database.collection(MEMORIES), self._database.collection(DEPARTURES)
        found = await memories.find(condition, {"length": 1, "deleted": 1}, session=session).to_list()
        departed = await departures.find(condition, {"_id": 0, "memory": 1}, session=session).to_list()
        live = {one["_id"]: one["length"] for one in found if not one["deleted"]}
        ids, lengths = list(live), np.array(list(live.values()), dtype=np.int64)
        within = {"scope_key": scope_key, "memory": {"$in": ids}, "space": space}
        vectors = Query(PASSAGES, within, "memory", _BATCH, _VECTORS)
        owners, matrix = await self._vectors(session, ids, vectors if space is not None else None)
        terms = await self._terms(session, ids) if known.postings and len(ids) <= _FEW else None
        changed = {one["_id"] for one in found} | {one["memory"] for one in departed}
        return known.with_changes(revisions, changed, Rows(ids, lengths, owners, matrix, terms))

    async def _vectors(self, session: Session, ids: Sequence[str], query: Query | None) -> tuple[Numbers, Matrix]:
        """The vectors of these memories that a query finds, each with the place of its memory among them."""
        places = {identity: place for place, identity in enumerate(ids)}
        owners = [np.zeros(0, dtype=np.int64)]
        vectors: list[Matrix] = []
        if query is not None and ids:
            async for batch in batches(self._database, session, query):
                owners.append(np.array([places[one] for one in batch.texts("memory")], dtype=np.int64))
                vectors.append(batch.vectors("vector"))
        return np.concatenate(owners), np.concatenate(vectors) if vectors else np.zeros((0, 0), dtype=np.float32)

    async def _terms(self, session: Session, ids: Sequence[str]) -> list[dict[str, int]]:
        """The terms of a few memories with their counts."""
        found = self._database.collection(MEMORIES).find({"_id": {"$in": list(ids)}}, {"terms": 1}, session=session)
        terms = {one["_id"]: {each["t"]: each["n"] for each in one["terms"]} async for one in found} if ids else {}
        return [terms[one] for one in ids]
