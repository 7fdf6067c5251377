"""Who reads what in the reference storage, and in which order; each rule of it a method that a mutant can break."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from muniment.access import project_key, user_key
from muniment.models import Access, Share
from muniment.ports import Audience, Position, Selector
from muniment.reference.rows import MemoryRow, ProjectRow, ReferenceData

Row = TypeVar("Row", ProjectRow, MemoryRow)


class Readers:
    """The readable set of an audience, and what a selector covers of it."""

    data: ReferenceData

    def readable_projects(self, audience: Audience) -> list[ProjectRow]:
        """The audience's projects."""
        return [row for row in self.data.projects.values() if self.admits(row, audience)]

    def admits(self, row: ProjectRow, audience: Audience) -> bool:
        """Whether the audience owns the project or holds a grant on it that is enough."""
        if self.owns(row, audience):
            return True
        grants = self.grants(row, audience)
        return Share.RW in grants if audience.need is Access.WRITE else bool(grants)

    def owns(self, row: ProjectRow, audience: Audience) -> bool:
        """Whether the audience's user is the project's owner."""
        return row.owner == audience.user

    def grants(self, row: ProjectRow, audience: Audience) -> tuple[Share, ...]:
        """The grants to the audience's groups."""
        return tuple([share for group, share in row.shares.items() if self.is_member(audience, group)])

    def is_member(self, audience: Audience, group: str) -> bool:
        """Whether the audience belongs to the group."""
        return group in audience.groups

    def readable_keys(self, audience: Audience) -> frozenset[str]:
        """The audience's scope keys."""
        projects = (project_key(row.id) for row in self.readable_projects(audience))
        return frozenset((user_key(audience.user), *projects))

    def readable(self, audience: Audience, *, deleted: bool) -> list[MemoryRow]:
        """The audience's memories, live or deleted."""
        keys = self.readable_keys(audience)
        return [
            row
            for row in self.data.memories.values()
            if row.deleted is deleted and self.in_scope(row.placement.scope_key, keys)
        ]

    def searchable(self, audience: Audience) -> list[MemoryRow]:
        """The live memories whose search entries the audience reads."""
        keys = self.readable_keys(audience)
        rows = self.data.memories.values()
        return [row for row in rows if not row.deleted and self.in_scope(row.entries_under, keys)]

    def in_scope(self, scope_key: str, keys: frozenset[str]) -> bool:
        """Whether a memory's scope key is one of the audience's."""
        return scope_key in keys

    def selects(self, selector: Selector, row: MemoryRow) -> bool:
        """Whether the selector's parts all hold."""
        return (
            (selector.scope_key is None or row.placement.scope_key == selector.scope_key)
            and (selector.scope is None or row.placement.scope == selector.scope)
            and self.has_tags(row, selector.tags)
        )

    def has_tags(self, row: MemoryRow, wanted: Sequence[str]) -> bool:
        """Whether the memory has all of these tags."""
        return set(wanted) <= set(row.tags)

    def selected(self, selector: Selector, rows: Iterable[MemoryRow]) -> list[MemoryRow]:
        """Those of the rows that the selector covers."""
        return [row for row in rows if self.selects(selector, row)]

    def in_order(self, rows: Iterable[Row], after: Position | None) -> list[Row]:
        """By ``created_at`` descending, then ``id``; only those that come after the position."""
        ordered = sorted(rows, key=lambda row: row.id)
        ordered.sort(key=lambda row: row.created_at, reverse=True)
        return ordered if after is None else [row for row in ordered if self.follows(row, after)]

    def follows(self, row: ProjectRow | MemoryRow, after: Position) -> bool:
        """Whether a row comes after the position."""
        return row.created_at < after.created_at or (row.created_at == after.created_at and row.id > after.id)
