"""The memory operations that change nothing: get, list, search and history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muniment import access, lexical, pages, ranking
from muniment.engine.embeddings import Embeddings
from muniment.engine.projects import Projects
from muniment.engine.watching import Part, Watch, unwatched
from muniment.errors import NotFound
from muniment.models import Access, CallContext, HistoryPage, Hit, MemoryPage, MemoryRecord, SearchPage
from muniment.operations.memories import MemoryGet, MemoryHistory, MemoryList, MemorySearch
from muniment.ports import Found, Position, SearchQuery, Storage

ALL_RANKERS = "meaning,words,tags"
WORDS_ALONE = "words,tags"
"""Who ranked a search, as a watch is told; without a query's vector it is answered from words and tags."""


class Reads:
    """Get, list, search and history."""

    def __init__(
        self, storage: Storage, projects: Projects, embeddings: Embeddings, *, watch: Watch = unwatched
    ) -> None:
        self._storage = storage
        self._projects = projects
        self._embeddings = embeddings
        self._watch = watch

    async def get(self, context: CallContext, sent: MemoryGet) -> MemoryRecord:
        """One live memory, whole."""
        facts = await self._storage.load(access.audience(context.principal), sent.id)
        access.require(context.principal, facts, Access.READ, f"memory {sent.id}")
        assert facts is not None
        if facts.deleted:
            raise NotFound(f"Memory {sent.id} is deleted; memory.restore brings it back.")
        return facts.memory

    async def list(self, context: CallContext, sent: MemoryList) -> MemoryPage:
        """Memories by newest first; the deleted ones only where the caller could restore them."""
        query = pages.query_hash("memory.list", _filters(sent))
        after = pages.decode_position(sent.cursor, query)
        selector = await self._projects.select(context, sent.scope, sent.project, sent.tags, deleted=sent.deleted)
        need = Access.WRITE if sent.deleted else Access.READ
        rows = await self._storage.list_memories(
            access.audience(context.principal, need), selector, after=after, limit=sent.limit + 1
        )
        kept = rows[: pages.fitting([len(row.content) for row in rows], sent.limit)]
        more = len(rows) > len(kept)
        return MemoryPage(
            items=tuple(kept),
            cursor=pages.encode_position(query, Position(kept[-1].created_at, kept[-1].id)) if more else None,
            cut=more and len(kept) < sent.limit,
        )

    async def search(self, context: CallContext, sent: MemorySearch) -> SearchPage:
        """The best matches of all rankers, fused."""
        query = pages.query_hash("memory.search", _filters(sent))
        offset = pages.decode_number(sent.cursor, query) or 0
        selector = await self._projects.select(context, sent.scope, sent.project, sent.tags)
        meaning = await self._embeddings.query(sent.query)
        asked = SearchQuery(
            terms=lexical.query_terms(sent.query),
            tags=ranking.query_tags(sent.query),
            vector=meaning.vector,
            space=meaning.space,
            fusion=ranking.Fusion(sent.fusion),
            min_score=sent.min_score,
            offset=offset,
            limit=sent.limit + 1,
        )
        with self._watch(Part.SEARCH, WORDS_ALONE if meaning.vector is None else ALL_RANKERS):
            found = await self._storage.search(access.audience(context.principal), selector, asked)
        kept = found[: pages.fitting([len(hit.memory.content) for hit in found], sent.limit)]
        more = len(found) > len(kept)
        return SearchPage(
            items=_hits(kept),
            cursor=pages.encode(query, (offset + len(kept),)) if more else None,
            cut=more and len(kept) < sent.limit,
            degraded=meaning.degraded,
        )

    async def history(self, context: CallContext, sent: MemoryHistory) -> HistoryPage:
        """A memory's audit trail, newest first, deleted or not."""
        query = pages.query_hash("memory.history", {"id": sent.id})
        before = pages.decode_number(sent.cursor, query)
        rows = await self._storage.history(
            access.audience(context.principal), sent.id, before=before, limit=sent.limit + 1
        )
        if not rows and before is None:
            raise NotFound(f"There is no memory {sent.id} that you may read; check the id, or list what there is.")
        kept = rows[: sent.limit]
        more = len(rows) > len(kept)
        return HistoryPage(items=tuple(kept), cursor=pages.encode(query, (kept[-1].version,)) if more else None)


def _filters(sent: MemoryList | MemorySearch) -> dict[str, Any]:
    return sent.model_dump(mode="json", exclude={"limit", "cursor"})


def _hits(found: Sequence[Found]) -> tuple[Hit, ...]:
    return tuple(
        Hit(
            memory=one.memory,
            score=one.ranked.score,
            meaning=one.ranked.meaning,
            words=one.ranked.words,
            tags=one.ranked.tags,
        )
        for one in found
    )
