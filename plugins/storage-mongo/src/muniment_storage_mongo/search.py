"""Search in one snapshot: what the rankers need of the readable scopes, the core's fusion, and the page's contents.

Owns the queries and which memories are readable and selected. What is in a scope is ``corpus``'s; BM25 and the order
are ``ranking``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from muniment import ranking
from muniment.errors import StorageUnavailable
from muniment.ports import Audience, Found, SearchQuery, Selector
from muniment.ranking import Postings
from muniment_storage_mongo import lanes, projects, records
from muniment_storage_mongo.corpus import Corpus, Later
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.packed import batches
from muniment_storage_mongo.schema import MEMORIES, WORDS_INDEX
from muniment_storage_mongo.vector_cache import Entry, Numbers

_ATTEMPTS = 16
"""Snapshots that are taken before a search gives up on being overtaken."""
_BATCH = 100_000
"""Index keys of one reply; the server cuts it at 16 MB."""


async def search(
    database: Database, corpus: Corpus, audience: Audience, selector: Selector, query: SearchQuery
) -> list[Found]:
    """The fused order from ``query.offset``, at most ``query.limit``, with contents."""

    async def work(session: Session) -> list[Found]:
        return await _Search(database, session, corpus, selector, query).found(audience)

    for attempt in range(_ATTEMPTS):
        try:
            return await database.snapshot(work)
        except Later as later:
            if attempt >= _ATTEMPTS // 2:
                corpus.forget(later.key)
    raise StorageUnavailable("Others kept writing what this search was to read; try again.")


class _Readable:
    """Every live memory of the audience, scope after scope."""

    def __init__(self, entries: Mapping[str, Entry], selected: Iterable[str]) -> None:
        self.entries = entries
        chosen = frozenset(selected)
        self.offsets: dict[str, int] = {}
        count = 0
        for key, entry in entries.items():
            self.offsets[key] = count
            count += len(entry.ids)
        self.lengths = _joined([entry.lengths for entry in entries.values()])
        self.selected = np.repeat(
            np.array([key in chosen for key in entries], dtype=np.bool_),
            np.array([len(entry.ids) for entry in entries.values()], dtype=np.int64),
        )

    def places_in(self, scope_key: str, ids: Iterable[str]) -> Numbers:
        """The places of memories of one scope among all."""
        known = self.entries[scope_key].places
        return np.array([known[one] for one in ids], dtype=np.int64) + self.offsets[scope_key]

    def places(self, scope_keys: Sequence[str], ids: Sequence[str]) -> Numbers:
        """The places of memories of several scopes among all."""
        pairs = zip(scope_keys, ids, strict=True)
        return np.array([self.offsets[key] + self.entries[key].places[one] for key, one in pairs], dtype=np.int64)

    def within(self, places: Sequence[int]) -> Iterable[tuple[int, Entry, Numbers]]:
        """Places by scope: what comes before the scope, its entry, and the places that are in it."""
        ordered = np.array(places, dtype=np.int64)
        for key, entry in self.entries.items():
            offset = self.offsets[key]
            here = ordered[(ordered >= offset) & (ordered < offset + len(entry.ids))]
            if len(here):
                yield offset, entry, here - offset


class _Search:
    """One search in one snapshot."""

    def __init__(
        self, database: Database, session: Session, corpus: Corpus, selector: Selector, query: SearchQuery
    ) -> None:
        self._memories = database.collection(MEMORIES)
        self._database = database
        self._session = session
        self._corpus = corpus
        self._selector = selector
        self._query = query

    async def found(self, audience: Audience) -> list[Found]:
        """The page."""
        readable = await self._readable(audience)
        if not len(readable.lengths):
            return []
        scores = await self._scores(readable)
        page = self._page(readable, scores)
        condition = {"_id": {"$in": [one.id for one in page]}}
        contents = self._memories.find(condition, records.MEMORY_FIELDS, session=self._session)
        memories = {one["_id"]: records.memory(one) async for one in contents} if page else {}
        return [Found(memory=memories[one.id], ranked=one) for one in page]

    async def _readable(self, audience: Audience) -> _Readable:
        revisions = await lanes.readable(self._database, self._session, audience)
        space = self._query.space if self._query.vector is not None else None
        chosen = projects.select(list(revisions), self._selector)
        entries = {
            # A scope that the selector leaves out counts for the statistics of words only.
            key: await self._corpus.entry(self._session, (key, space if key in chosen else None), seen)
            for key, seen in revisions.items()
            if seen
        }
        return _Readable(entries, chosen)

    async def _scores(self, readable: _Readable) -> ranking.Scores:
        """Every score of what is readable; by meaning an estimate."""
        query = self._query
        keys = list(readable.entries)
        counts, holding = await self._tags(readable, keys)
        meaning = [
            np.full(len(entry.ids), -np.inf) if query.vector is None else entry.estimates(query.vector)
            for entry in readable.entries.values()
        ]
        return ranking.scores_of_all(
            query.terms,
            lengths=readable.lengths,
            by_term={term: await self._postings(readable, keys, term) for term in sorted(query.terms)},
            matching_tags=counts,
            meaning=np.concatenate(meaning),
            selected=readable.selected & holding,
        )

    def _page(self, readable: _Readable, scores: ranking.Scores) -> list[ranking.Ranked]:
        """The asked part of the fused order, of exact scores."""
        query = self._query
        blur = 0.0 if query.vector is None else ranking.margin(len(query.vector))
        places: dict[str, int] = {}
        for offset, entry, here in readable.within(scores.candidates(blur=blur, wanted=query.offset + query.limit)):
            places.update({entry.ids[place]: place + offset for place in here.tolist()})
            if query.vector is not None:
                compared = here[scores.meaning[here + offset] > -np.inf]
                scores.meaning[compared + offset] = entry.exact(query.vector, compared)
        return scores.fuse(
            places, fusion=query.fusion, min_score=query.min_score, offset=query.offset, limit=query.limit
        )

    async def _postings(self, readable: _Readable, keys: Sequence[str], term: str) -> Postings:
        """Who holds a term, and how often: from the keys of the index, no document is read."""
        cursor = self._memories.find_raw_batches(
            {"scope_key": {"$in": list(keys)}, "terms.t": term},
            hint=WORDS_INDEX,
            return_key=True,
            batch_size=_BATCH,
            session=self._session,
        )
        places: list[Numbers] = []
        counts: list[Numbers] = []
        async for batch in batches(cursor):
            ids, scope_key = batch.texts("_id"), batch.only("scope_key")
            if scope_key is None:
                places.append(readable.places(batch.texts("scope_key"), ids))
            else:
                places.append(readable.places_in(scope_key, ids))
            counts.append(batch.numbers("terms.n"))
        return Postings(places=_joined(places), frequencies=_joined(counts))

    async def _tags(self, readable: _Readable, keys: Sequence[str]) -> tuple[Numbers, NDArray[np.bool_]]:
        """How many of the query's tags each memory holds, and which hold all of the selector's."""
        size = len(readable.lengths)
        counts = np.zeros(size, dtype=np.int64)
        holding = np.full(size, not self._selector.tags)
        within: Document = {"scope_key": {"$in": list(keys)}, "deleted": False}
        if self._selector.tags:
            condition = {**within, "tags": {"$all": list(self._selector.tags)}}
            found = self._memories.find(condition, {"scope_key": 1}, session=self._session, batch_size=_BATCH)
            holding[_places(readable, await found.to_list())] = True
        if self._query.tags:
            wanted = sorted(self._query.tags)
            condition = {**within, "tags": {"$in": wanted}}
            fields = {"scope_key": 1, "tags": 1}
            found = self._memories.find(condition, fields, session=self._session, batch_size=_BATCH)
            documents = await found.to_list()
            matching = [len(self._query.tags.intersection(one["tags"])) for one in documents]
            counts[_places(readable, documents)] = matching
        return counts, holding


def _places(readable: _Readable, documents: Sequence[Document]) -> Numbers:
    return readable.places([one["scope_key"] for one in documents], [one["_id"] for one in documents])


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
