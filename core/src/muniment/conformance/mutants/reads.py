"""Mutants made for READ-01 to READ-05: fields, pages, tag filters, sizes and cursors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from muniment.conformance.mutants.mutant import Mutants
from muniment.models import MemoryRecord
from muniment.ports import (
    Applied,
    Audience,
    Found,
    MemoryFacts,
    Mutation,
    Position,
    ProjectFacts,
    SearchQuery,
    Selector,
)
from muniment.reference import ReferenceStorage
from muniment.reference.readers import Row
from muniment.reference.rows import MemoryRow, ProjectRow

MUTANTS = Mutants()


class _WithDeletionMark(MemoryRecord):
    """A record with a column too many."""

    deleted: bool


@MUTANTS("deletion mark in the record", made_for="READ-01", fails="READ-01")
class ShowsDeletionMark(ReferenceStorage):
    """A memory is returned with every column that its row has."""

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """With a tenth field."""
        facts = await super().load(audience, memory_id, space=space)
        if facts is None:
            return None
        return replace(facts, memory=_WithDeletionMark(**facts.memory.model_dump(), deleted=facts.deleted))


@MUTANTS("hit read from the search index", made_for="READ-01", fails="READ-01")
class HitsFromIndex(ReferenceStorage):
    """A hit's memory is what was indexed when its text last changed, without the edits since."""

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """As of version 1."""
        hits = await super().search(audience, selector, query)
        return [replace(hit, memory=hit.memory.model_copy(update={"version": 1})) for hit in hits]


@MUTANTS("list without tags", made_for="READ-01", fails="READ-01 RANK-02")
class ListsWithoutTags(ReferenceStorage):
    """The statement of the list leaves a column out."""

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """Without the tags."""
        rows = await super().list_memories(audience, selector, after=after, limit=limit)
        return [row.model_copy(update={"tags": ()}) for row in rows]


@MUTANTS("cursor by offset", made_for="READ-02", fails="MUT-01 READ-02 READ-04")
class PagesByOffset(ReferenceStorage):
    """A page starts after as many rows as were shown before, whatever was written since."""

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """Skip as many as this client has shown."""
        rows = await super().list_memories(audience, selector, after=None, limit=10**6)
        start = vars(self).get("shown", 0) if after else 0
        vars(self)["shown"] = start + limit - 1
        return rows[start : start + limit]


@MUTANTS("ties dropped by a cursor", made_for="READ-02", fails="READ-02 READ-03 READ-04")
class DropsTies(ReferenceStorage):
    """A page starts at the next time, so rows of the same time as the last one are never shown."""

    def follows(self, row: ProjectRow | MemoryRow, after: Position) -> bool:
        """By time alone."""
        return row.created_at < after.created_at


@MUTANTS("list ordered by the last edit", made_for="READ-02", fails="READ-01 READ-02")
class OrdersByEdit(ReferenceStorage):
    """A memory that is edited moves to the front, past the cursor."""

    def readable(self, audience: Audience, *, deleted: bool) -> list[MemoryRow]:
        """Order by the time of the last edit."""
        return [replace(row, created_at=row.updated_at) for row in super().readable(audience, deleted=deleted)]


@MUTANTS("oldest first", made_for="READ-02", fails="READ-02")
class OldestFirst(ReferenceStorage):
    """The list is ordered the other way round, and so are its cursors."""

    def in_order(self, rows: Iterable[Row], after: Position | None) -> list[Row]:
        """Reverse."""
        ordered = super().in_order(rows, None)[::-1]
        return (
            ordered
            if after is None
            else [row for row in ordered if not self.follows(row, after) and row.id != after.id]
        )


@MUTANTS("list cached", made_for="READ-02", fails="READ-02")
class CachesLists(ReferenceStorage):
    """A client remembers the lists that it has read until it writes itself."""

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """The remembered one."""
        lists = vars(self).setdefault("lists", {})
        asked = audience, selector, after, limit
        if asked not in lists:
            lists[asked] = await super().list_memories(audience, selector, after=after, limit=limit)
        return lists[asked]

    async def apply(self, mutation: Mutation) -> Applied:
        """Forget them."""
        vars(self).pop("lists", None)
        return await super().apply(mutation)


@MUTANTS("pages of a hundred at most", made_for="READ-02", fails="READ-02")
class CapsPages(ReferenceStorage):
    """A list has at most a hundred memories, whatever was asked for, and there it ends."""

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """A hundred."""
        return await super().list_memories(audience, selector, after=after, limit=min(limit, 100))


@MUTANTS("any of the tags", made_for="READ-03", fails="READ-03")
class AnyTag(ReferenceStorage):
    """A filter by several tags finds what has one of them."""

    def has_tags(self, row: MemoryRow, wanted: Sequence[str]) -> bool:
        """One is enough."""
        return not wanted or not set(wanted).isdisjoint(row.tags)


@MUTANTS("tags matched as a substring", made_for="READ-03", fails="READ-03 ACC-08")
class TagsBySubstring(ReferenceStorage):
    """Tags are one text with spaces between, and a filter looks for a part of it."""

    def has_tags(self, row: MemoryRow, wanted: Sequence[str]) -> bool:
        """Anywhere in the text."""
        text = " ".join(row.tags)
        return all(tag in text for tag in wanted)


@MUTANTS("tag filter not applied to a search", made_for="READ-03", fails="READ-03 ACC-08 RANK-01")
class SearchesAllTags(ReferenceStorage):
    """Tags narrow the list only."""

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """Without the tags."""
        return await super().search(audience, replace(selector, tags=()), query)


@MUTANTS("list cuts contents", made_for="READ-04", fails="MUT-01 READ-04")
class ListCutsContent(ReferenceStorage):
    """A list holds the beginning of a long text instead of fewer memories."""

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """The first 10,000 characters."""
        rows = await super().list_memories(audience, selector, after=after, limit=limit)
        return [row.model_copy(update={"content": row.content[:10_000]}) for row in rows]


@MUTANTS("long text out of line not listed", made_for="READ-04", fails="READ-04")
class LeavesOutLong(ReferenceStorage):
    """A search returns only texts that are stored in line."""

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """Up to 48,000 characters."""
        return [hit for hit in await super().search(audience, selector, query) if len(hit.memory.content) <= 48_000]


@MUTANTS("offset of a search ignored", made_for="READ-04", fails="READ-04 ACC-10 RANK-01")
class SearchFromStart(ReferenceStorage):
    """Every page of hits is the first one."""

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """From the beginning."""
        return await super().search(audience, selector, replace(query, offset=0))


@MUTANTS("projects have no second page", made_for="READ-05", fails="READ-05")
class OneProjectPage(ReferenceStorage):
    """The list of projects takes a cursor and finds nothing after it."""

    async def list_projects(self, audience: Audience, *, after: Position | None, limit: int) -> Sequence[ProjectFacts]:
        """The first page only."""
        return [] if after is not None else await super().list_projects(audience, after=after, limit=limit)
