"""Search in one snapshot: what the rankers need of the readable scopes, the core's fusion, and the page's contents.

Owns the queries and which memories are selected. What is in a scope is ``corpus``'s, places and the page are
``readable``'s; BM25 and the order are ``ranking``'s.

Most searches find what their process has in mind as it was. One that needs nothing else of the server therefore drafts
its page first, and asks for the contents of the draft together with the revisions that it must hold for; where the
snapshot has others, the draft is thrown away. Either way revisions and contents are of one moment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muniment import ranking
from muniment.errors import MunimentError, StorageUnavailable
from muniment.ports import Audience, Found, SearchQuery, Selector
from muniment.ranking import Postings
from muniment_storage_mongo import lanes, projects, records
from muniment_storage_mongo.corpus import Corpus, Later
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.lanes import Revisions
from muniment_storage_mongo.readable import Readable
from muniment_storage_mongo.schema import MEMORIES
from muniment_storage_mongo.vector_cache import Entry, Key, Numbers

log = logging.getLogger(__name__)

_ATTEMPTS = 16
"""Snapshots that are taken before a search gives up on being overtaken."""
_BATCH = 100_000
"""Documents of one reply; the server cuts it at 16 MB."""
_TAGS: Mapping[str, int] = {"scope_key": 1, "tags": 1}


async def search(
    database: Database, corpus: Corpus, audience: Audience, selector: Selector, query: SearchQuery
) -> list[Found]:
    """The fused order from ``query.offset``, at most ``query.limit``, with contents."""

    async def work(session: Session) -> list[Found]:
        return await _Search(database, session, corpus, audience, selector, query).found()

    forgotten = False
    for attempt in range(_ATTEMPTS):
        try:
            return await database.snapshot(work)
        except Later as later:
            if attempt >= _ATTEMPTS // 2:
                corpus.forget(later.key)
        except MunimentError:
            raise
        except Exception:
            if forgotten:
                raise
            forgotten = True
            log.exception("what is kept in mind does not fit what is stored; it is forgotten and read anew")
            corpus.forget_read(audience, query.space)
    raise StorageUnavailable("Others kept writing what this search was to read; try again.")


@dataclass(frozen=True, slots=True)
class _Draft:
    """A page that holds where the scopes with a memory have these revisions."""

    revisions: Mapping[str, Revisions]
    page: Sequence[ranking.Ranked]


class _Search:
    """One search in one snapshot."""

    def __init__(
        self,
        database: Database,
        session: Session,
        corpus: Corpus,
        audience: Audience,
        selector: Selector,
        query: SearchQuery,
    ) -> None:
        self._memories = database.collection(MEMORIES)
        self._database = database
        self._session = session
        self._corpus = corpus
        self._audience = audience
        self._selector = selector
        self._query = query

    async def found(self) -> list[Found]:
        """The page."""
        expected = self._corpus.read_before(self._audience)
        filled = [key for key, has_memories in expected.items() if has_memories]
        draft = self._draft(expected)
        beside = _beside(records.MEMORY_FIELDS, _with_ids(draft.page)) if draft else self._tagged_beside(filled)
        revisions, others = await lanes.readable(
            self._database, self._session, self._audience, expected=expected, beside=beside
        )
        self._corpus.note(self._audience, {key: bool(seen) for key, seen in revisions.items()})
        if draft is not None and draft.revisions == {key: seen for key, seen in revisions.items() if seen}:
            return _found(draft.page, others)
        readable = await self._readable(revisions)
        if not len(readable):
            return []
        tagged = others if draft is None and set(readable.entries) == set(filled) else None
        page = readable.page(await self._scores(readable, tagged))
        return _found(page, await self._read(records.MEMORY_FIELDS, _with_ids(page)) if page else [])

    def _draft(self, expected: Mapping[str, bool]) -> _Draft | None:
        """The page as it is if nothing has changed; None where more must be asked for, or something changes often."""
        query = self._query
        if query.terms or query.tags or self._selector.tags or not any(expected.values()):
            return None
        chosen = projects.select(list(expected), self._selector)
        entries: dict[str, Entry] = {}
        for key, has_memories in expected.items():
            entry = self._corpus.steady(self._key(key, chosen)) if has_memories else None
            if entry is not None:
                entries[key] = entry
            elif has_memories:
                return None
        readable = Readable(entries, chosen, query)
        nothing = np.zeros(len(readable), dtype=np.int64)
        scores = self._scored(readable, {}, nothing, readable.selected)
        return _Draft({key: entry.seen for key, entry in entries.items()}, readable.page(scores))

    async def _readable(self, revisions: Mapping[str, Revisions]) -> Readable:
        chosen = projects.select(list(revisions), self._selector)
        entries = {
            key: await self._corpus.entry(self._session, self._key(key, chosen), seen)
            for key, seen in revisions.items()
            if seen
        }
        return Readable(entries, chosen, self._query)

    def _key(self, scope_key: str, chosen: Sequence[str]) -> Key:
        """What is needed of a scope; one that the selector leaves out counts for the statistics of words only."""
        return scope_key, self._query.space if self._query.vector is not None and scope_key in chosen else None

    async def _read(self, fields: Mapping[str, int], condition: Document) -> list[Document]:
        return await self._memories.find(condition, fields, session=self._session, batch_size=_BATCH).to_list()

    async def _scores(self, readable: Readable, tagged: Sequence[Document] | None) -> ranking.Scores:
        """Every score of what is readable, by meaning an estimate. ``tagged`` was read with the revisions, or not."""
        counts, holding = await self._tags(readable, tagged)
        by_term = {
            term: readable.postings(await self._corpus.postings(self._session, readable.entries, term))
            for term in sorted(self._query.terms)
        }
        return self._scored(readable, by_term, counts, readable.selected & holding)

    def _scored(
        self,
        readable: Readable,
        by_term: Mapping[str, Postings],
        matching_tags: Numbers,
        selected: NDArray[np.bool_],
    ) -> ranking.Scores:
        return ranking.scores_of_all(
            self._query.terms,
            lengths=readable.lengths,
            by_term=by_term,
            matching_tags=matching_tags,
            meaning=readable.meaning,
            selected=selected,
        )

    async def _tags(self, readable: Readable, tagged: Sequence[Document] | None) -> tuple[Numbers, NDArray[np.bool_]]:
        """How many of the query's tags each memory holds, and which hold all of the selector's."""
        counts = np.zeros(len(readable), dtype=np.int64)
        holding = np.full(len(readable), not self._selector.tags)
        keys = list(readable.entries)
        if self._selector.tags:
            condition = {**_live(keys), "tags": {"$all": list(self._selector.tags)}}
            holding[_places(readable, await self._read({"scope_key": 1}, condition))] = True
        if self._query.tags:
            documents = await self._read(_TAGS, self._tagged(keys)) if tagged is None else tagged
            matching = [len(self._query.tags.intersection(one["tags"])) for one in documents]
            counts[_places(readable, documents)] = matching
        return counts, holding

    def _tagged_beside(self, scope_keys: Sequence[str]) -> list[Document]:
        """The stages that add to a pipeline who holds a tag of the query in these scopes."""
        return _beside(_TAGS, self._tagged(scope_keys)) if self._query.tags and scope_keys else []

    def _tagged(self, scope_keys: Sequence[str]) -> Document:
        return {**_live(scope_keys), "tags": {"$in": sorted(self._query.tags)}}


def _found(page: Sequence[ranking.Ranked], contents: Sequence[Document]) -> list[Found]:
    memories = {one["_id"]: records.memory(one) for one in contents}
    return [Found(memory=memories[one.id], ranked=one) for one in page]


def _beside(fields: Mapping[str, int], condition: Document) -> list[Document]:
    """The stages that add memories to a pipeline."""
    return [{"$unionWith": {"coll": MEMORIES, "pipeline": [{"$match": condition}, {"$project": dict(fields)}]}}]


def _with_ids(page: Sequence[ranking.Ranked]) -> Document:
    return {"_id": {"$in": [one.id for one in page]}}


def _live(scope_keys: Sequence[str]) -> Document:
    return {"scope_key": {"$in": list(scope_keys)}, "deleted": False}


def _places(readable: Readable, documents: Sequence[Document]) -> Numbers:
    return readable.places([one["scope_key"] for one in documents], [one["_id"] for one in documents])
