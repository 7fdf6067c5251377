"""Mutants made for ACC-01 to ACC-07: who reads and writes what, and who a caller is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muniment.conformance.mutants.mutant import Mutants
from muniment.errors import NotFound
from muniment.models import AuditRecord, MemoryRecord, Share
from muniment.ports import Audience, Found, MemoryFacts, Placement, Position, ProjectFacts, SearchQuery, Selector
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow, ProjectRow

MUTANTS = Mutants()


@MUTANTS(
    "search without access control",
    made_for="ACC-01",
    fails="ACC-01 ACC-03 ACC-06 ACC-07 ACC-08 ACC-09 ACC-10 VEC-03 LEX-04 RANK-01",
)
class SearchesEverything(ReferenceStorage):
    """The index is searched whole, and the hits are not checked."""

    def searchable(self, audience: Audience) -> list[MemoryRow]:
        """All that is live."""
        return [row for row in self.data.memories.values() if not row.deleted]


@MUTANTS(
    "list without access control",
    made_for="ACC-01",
    fails="MUT-11 READ-02 ACC-01 ACC-03 ACC-05 ACC-06 ACC-07 ACC-08 ACC-09",
)
class ListsEverything(ReferenceStorage):
    """Only reads by id are checked."""

    def readable(self, audience: Audience, *, deleted: bool) -> list[MemoryRow]:
        """All there is."""
        return [row for row in self.data.memories.values() if row.deleted is deleted]


@MUTANTS("later pages of a list without access control", made_for="ACC-01", fails="READ-02 ACC-01")
class ListsEverythingLater(ReferenceStorage):
    """The statement for what comes after a cursor leaves out for whom."""

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """All that follows."""
        if after is None:
            return await super().list_memories(audience, selector, after=after, limit=limit)
        await self.pause()
        rows = [row for row in self.data.memories.values() if row.deleted is selector.deleted]
        return [row.record() for row in self.in_order(self.selected(selector, rows), after)[:limit]]


@MUTANTS("list by tags without access control", made_for="ACC-01", fails="ACC-01")
class ListsEverythingTagged(ReferenceStorage):
    """A filter by tags is looked up in an index of its own, which knows nobody's scopes."""

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """All that have them."""
        if not selector.tags:
            return await super().list_memories(audience, selector, after=after, limit=limit)
        await self.pause()
        rows = [row for row in self.data.memories.values() if row.deleted is selector.deleted]
        return [row.record() for row in self.in_order(self.selected(selector, rows), after)[:limit]]


@MUTANTS("search by words without access control", made_for="ACC-01", fails="ACC-01")
class SearchesEverythingByWords(ReferenceStorage):
    """Where a query has no vector, the index of words is searched whole."""

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """All that is live."""
        if query.vector is not None:
            return await super().search(audience, selector, query)
        await self.pause()
        live = [row for row in self.data.memories.values() if not row.deleted]
        ranked = self.rank(live, self.selected(selector, live), query)[query.offset : query.offset + query.limit]
        return [Found(self.data.memories[one.id].record(), one) for one in ranked]


@MUTANTS("deleted memories without access control", made_for="ACC-01", fails="ACC-01 ACC-04")
class LoadsEverythingDeleted(ReferenceStorage):
    """What is deleted is in nobody's scope any more, and so in everybody's."""

    def may_load(self, row: MemoryRow, audience: Audience) -> bool:
        """Or deleted."""
        return row.deleted or super().may_load(row, audience)


@MUTANTS("later pages of projects without access control", made_for="ACC-01", fails="ACC-01")
class ListsEveryProjectLater(ReferenceStorage):
    """The statement for what comes after a cursor leaves out for whom."""

    async def list_projects(self, audience: Audience, *, after: Position | None, limit: int) -> Sequence[ProjectFacts]:
        """All that follow."""
        if after is None:
            return await super().list_projects(audience, after=after, limit=limit)
        await self.pause()
        rows = self.in_order(self.data.projects.values(), after)
        return [self.project_facts(row, audience) for row in rows[:limit]]


@MUTANTS("trail without access control", made_for="ACC-01", fails="ACC-01 ACC-03 ACC-04 ACC-05 ACC-06 ACC-08")
class ShowsEveryTrail(ReferenceStorage):
    """Whoever knows an id reads its history."""

    async def history(
        self, audience: Audience, memory_id: str, *, before: int | None, limit: int
    ) -> Sequence[AuditRecord]:
        """Whoever asks."""
        entries = [entry for entry in self.data.audit.values() if entry.memory_id == memory_id]
        entries.sort(key=lambda entry: -entry.version)
        return [entry for entry in entries if before is None or self.precedes(entry, before)][:limit]


@MUTANTS(
    "read by id without access control",
    made_for="ACC-01",
    fails="MUT-12 ACC-01 ACC-03 ACC-04 ACC-05 ACC-06 ACC-07 ACC-08",
)
class LoadsEverything(ReferenceStorage):
    """Whoever knows an id reads the memory."""

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """As if it were shared with the reader."""
        facts = await super().load(audience, memory_id, space=space)
        row = self.data.memories.get(memory_id)
        if facts is not None or row is None:
            return facts
        return MemoryFacts(row.record(), row.placement.scope_key, "somebody", (Share.RO,), row.deleted)


@MUTANTS(
    "grants counted for every group",
    made_for="ACC-01",
    fails="MUT-11 MUT-12 MUT-14 ACC-01 ACC-02 ACC-03 ACC-04 ACC-05 ACC-06 ACC-07 ACC-08 ACC-09 ACC-10 ACC-12 SCOPE-03 "
    "SCOPE-04",
)
class GrantsToAnybody(ReferenceStorage):
    """A project that is shared at all is shared with everybody."""

    def is_member(self, audience: Audience, group: str) -> bool:
        """Of every group."""
        return True


@MUTANTS(
    "every grant counts as read-write",
    made_for="ACC-02",
    fails="MUT-11 MUT-12 MUT-14 ACC-02 ACC-03 ACC-05 ACC-06 ACC-08",
)
class GrantsAreWritable(ReferenceStorage):
    """A grant is a row that is there or not; its level is not looked at."""

    def grants(self, row: ProjectRow, audience: Audience) -> tuple[Share, ...]:
        """All of them rw."""
        return tuple(Share.RW for _ in super().grants(row, audience))


@MUTANTS(
    "every grant counts as read-only",
    made_for="ACC-02",
    fails="MUT-02 MUT-11 MUT-12 MUT-15 ACC-02 ACC-03 ACC-05 ACC-06 ACC-07 ACC-08 ACC-12 SCOPE-03 SCOPE-04",
)
class GrantsAreReadOnly(ReferenceStorage):
    """Only the owner writes."""

    def grants(self, row: ProjectRow, audience: Audience) -> tuple[Share, ...]:
        """All of them ro."""
        return tuple(Share.RO for _ in super().grants(row, audience))


@MUTANTS("author keeps write access", made_for="ACC-03", fails="MUT-12 ACC-03 ACC-05")
class AuthorWrites(ReferenceStorage):
    """Whoever edited a memory last counts as its owner while any grant is left."""

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """Owned by its editor."""
        facts = await super().load(audience, memory_id, space=space)
        own = facts is not None and facts.memory.last_edited_by == audience.user
        return replace(facts, owner=audience.user) if facts is not None and own else facts


@MUTANTS("author keeps read access", made_for="ACC-03", fails="ACC-03 ACC-05")
class AuthorReads(ReferenceStorage):
    """A list holds what the caller edited, in whatever scope it is."""

    def readable(self, audience: Audience, *, deleted: bool) -> list[MemoryRow]:
        """Its own edits too."""
        rows = super().readable(audience, deleted=deleted)
        edited = [row for row in self.data.memories.values() if row.editor == audience.user and row.deleted is deleted]
        return [*rows, *(row for row in edited if row not in rows)]


@MUTANTS("a hidden memory is refused by name", made_for="ACC-04", fails="ACC-04")
class NamesHidden(ReferenceStorage):
    """The refusal of what is there differs from the refusal of what is not."""

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """Say that it is there."""
        facts = await super().load(audience, memory_id, space=space)
        if facts is None and memory_id in self.data.memories:
            raise NotFound(f"Memory {memory_id} is not shared with you.")
        return facts


@MUTANTS("weakest grant counts", made_for="ACC-05", fails="ACC-05")
class WeakestGrant(ReferenceStorage):
    """Of several groups the one with the least access decides."""

    def grants(self, row: ProjectRow, audience: Audience) -> tuple[Share, ...]:
        """The least."""
        return tuple(sorted(super().grants(row, audience)))[:1]


@MUTANTS("first grant counts", made_for="ACC-05", fails="ACC-05")
class FirstGrant(ReferenceStorage):
    """Of several groups the one that was granted access first decides."""

    def grants(self, row: ProjectRow, audience: Audience) -> tuple[Share, ...]:
        """The first."""
        return super().grants(row, audience)[:1]


@MUTANTS("revoked grants cached", made_for="ACC-05", fails="MUT-12 ACC-03 ACC-05 ACC-08 SCOPE-04 LEX-04")
class CachesGrants(ReferenceStorage):
    """A client remembers the grants that it has seen, and never forgets one."""

    def grants(self, row: ProjectRow, audience: Audience) -> tuple[Share, ...]:
        """The remembered ones too."""
        seen = vars(self).setdefault("seen", {})
        found = seen.setdefault((row.id, audience.user, audience.groups), set())
        found.update(super().grants(row, audience))
        return tuple(found)


@MUTANTS("first groups count", made_for="ACC-05", fails="ACC-05")
class FirstGroups(ReferenceStorage):
    """Of a caller's many groups only so many are asked for a grant."""

    def is_member(self, audience: Audience, group: str) -> bool:
        """Of one of the first twenty."""
        return group in sorted(audience.groups)[:20]


@MUTANTS("search entries left behind by a move", made_for="ACC-06", fails="ACC-06 VEC-01 VEC-02 VEC-03 LEX-02")
class LeavesEntriesBehind(ReferenceStorage):
    """Terms and passages stay under the scope key that the memory was moved from."""

    def moved(self, row: MemoryRow, placement: Placement) -> MemoryRow:
        """Without its entries."""
        return replace(super().moved(row, placement), entries_under=row.entries_under)


@MUTANTS(
    "project does not follow a move",
    made_for="ACC-06",
    fails="MUT-10 MUT-13 MUT-15 ACC-06 SCOPE-05 VEC-01 VEC-02 LEX-02",
)
class MovesKeyOnly(ReferenceStorage):
    """A move changes the scope key that reads go by, and not the project that a memory names."""

    def moved(self, row: MemoryRow, placement: Placement) -> MemoryRow:
        """Without the project."""
        kept = replace(placement, scope=row.placement.scope, project_id=row.placement.project_id)
        return super().moved(row, kept)


@MUTANTS("trail left behind by a move", made_for="ACC-06", fails="ACC-06")
class LeavesTrailBehind(ReferenceStorage):
    """Who may read one entry of a memory's trail, as one of the scope that it was in, reads all of them."""

    async def history(
        self, audience: Audience, memory_id: str, *, before: int | None, limit: int
    ) -> Sequence[AuditRecord]:
        """By the entries' scopes."""
        await self.pause()
        keys = self.readable_keys(audience)
        entries = [entry for entry in self.data.audit.values() if entry.memory_id == memory_id]
        entries.sort(key=lambda entry: -entry.version)
        if not any(entry.scope_key in keys for entry in entries):
            return []
        return [entry for entry in entries if before is None or self.precedes(entry, before)][:limit]


@MUTANTS("reader adds to a project", made_for="ACC-06", fails="MUT-14 ACC-02 ACC-06")
class ReadersMayMoveIn(ReferenceStorage):
    """A project that is looked up for a write is taken as writable by whoever reads it."""

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        """With a grant that is enough."""
        return [replace(facts, grants=(Share.RW,)) for facts in await super().find_projects(audience, name)]


@MUTANTS("user's name counts as a group's", made_for="ACC-07", fails="ACC-07")
class UserIsGroup(ReferenceStorage):
    """Principals are one list, so a user called as a group has the group's grants."""

    def is_member(self, audience: Audience, group: str) -> bool:
        """Or called like it."""
        return super().is_member(audience, group) or group == audience.user


@MUTANTS("names count as scope keys", made_for="ACC-07", fails="ACC-07")
class NamesAreKeys(ReferenceStorage):
    """The keys of a user and of its groups are their bare names, so one called as a scope reads it."""

    def readable_keys(self, audience: Audience) -> frozenset[str]:
        """The names too."""
        return super().readable_keys(audience) | {audience.user} | audience.groups


@MUTANTS("group's name counts as an owner's", made_for="ACC-07", fails="ACC-07")
class GroupIsOwner(ReferenceStorage):
    """A member of a group that is called as the owner counts as the owner."""

    def owns(self, row: ProjectRow, audience: Audience) -> bool:
        """Or one of its groups."""
        return super().owns(row, audience) or row.owner in audience.groups
