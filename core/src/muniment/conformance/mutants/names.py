"""Mutants made for ACC-08 and ACC-09: names that match others, and nothing taken as everything."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from muniment.conformance.mutants.mutant import Mutants
from muniment.models import Access
from muniment.ports import Audience, Selector
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow, ProjectRow, ReceiptRow

MUTANTS = Mutants()


@MUTANTS("LIKE on groups", made_for="ACC-08", fails="ACC-08")
class GroupsByPattern(ReferenceStorage):
    """A caller's group is compared with LIKE, in which % and _ stand for others."""

    def is_member(self, audience: Audience, group: str) -> bool:
        """By pattern."""
        return any(_like(name, group) for name in audience.groups)


@MUTANTS("groups in a canonical form", made_for="ACC-08", fails="ACC-08")
class NormalisedGroups(ReferenceStorage):
    """Groups are compared in Unicode's composed form."""

    def is_member(self, audience: Audience, group: str) -> bool:
        """Composed."""
        return unicodedata.normalize("NFC", group) in {unicodedata.normalize("NFC", one) for one in audience.groups}


@MUTANTS("users without case", made_for="ACC-08", fails="ACC-08")
class UsersWithoutCase(ReferenceStorage):
    """A scope is found in a column whose collation ignores case."""

    def in_scope(self, scope_key: str, keys: frozenset[str]) -> bool:
        """Folded."""
        return scope_key.casefold() in {key.casefold() for key in keys}


@MUTANTS("padded comparison of users", made_for="ACC-08", fails="ACC-08")
class PaddedUsers(ReferenceStorage):
    """White space at the end of a scope does not count, as in a column of type char."""

    def in_scope(self, scope_key: str, keys: frozenset[str]) -> bool:
        """Stripped."""
        return scope_key.rstrip() in {key.rstrip() for key in keys}


@MUTANTS("project keys as paths", made_for="ACC-08", fails="ACC-08")
class KeysAsPaths(ReferenceStorage):
    """A slash at the end of a project's key does not count."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        """Stripped."""
        return super().is_called(row, name) or row.key.rstrip("/") == name.rstrip("/")


@MUTANTS("project keys by prefix", made_for="ACC-08", fails="ACC-02 ACC-08")
class KeysByPrefix(ReferenceStorage):
    """A project is found by the beginning of its key."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        """By prefix."""
        return super().is_called(row, name) or row.key.startswith(f"{name}-")


@MUTANTS("tags without case", made_for="ACC-08", fails="READ-03 ACC-08")
class TagsWithoutCase(ReferenceStorage):
    """Tags are compared without case in a filter."""

    def has_tags(self, row: MemoryRow, wanted: Sequence[str]) -> bool:
        """Folded."""
        return {tag.casefold() for tag in wanted} <= {tag.casefold() for tag in row.tags}


@MUTANTS("tags by pattern", made_for="ACC-08", fails="ACC-08")
class TagsByPattern(ReferenceStorage):
    """A tag of a query is a pattern to the tags ranker."""

    def overlap(self, tags: Sequence[str], wanted: frozenset[str]) -> float:
        """Those that any pattern matches."""
        matched = sum(any(re.fullmatch(pattern, tag) for pattern in wanted if _compiles(pattern)) for tag in tags)
        return matched / (matched + 1)


@MUTANTS("idempotency keys collapsed", made_for="ACC-08", fails="ACC-08")
class CollapsedKeys(ReferenceStorage):
    """Runs of white space in an idempotency key count as one."""

    def receipt_of(self, principal: str, key: str) -> ReceiptRow | None:
        """Collapsed."""
        same = [
            row
            for (owner, other), row in self.data.receipts.items()
            if (owner, other.split()) == (principal, key.split())
        ]
        return same[0] if same else None


@MUTANTS("agents without case", made_for="ACC-08", fails="ACC-08")
class AgentsWithoutCase(ReferenceStorage):
    """Who an idempotency key belongs to is compared without case."""

    def receipt_of(self, principal: str, key: str) -> ReceiptRow | None:
        """Folded."""
        folded = principal.casefold()
        same = [row for (owner, other), row in self.data.receipts.items() if (owner.casefold(), other) == (folded, key)]
        return same[0] if same else None


@MUTANTS("an empty scope is every scope", made_for="ACC-09", fails="ACC-01 ACC-09")
class EmptyIsEverything(ReferenceStorage):
    """A scope in which nothing is found is left out of the filter."""

    def selected(self, selector: Selector, rows: Iterable[MemoryRow]) -> list[MemoryRow]:
        """All rows rather than none."""
        everything = list(rows)
        return super().selected(selector, everything) or [
            row for row in everything if self.has_tags(row, selector.tags)
        ]


@MUTANTS(
    "no groups are all groups", made_for="ACC-09", fails="ACC-01 ACC-04 ACC-06 ACC-07 ACC-08 ACC-09 ACC-10 SCOPE-05"
)
class NoGroupsAreAll(ReferenceStorage):
    """A caller without groups is asked for no grant."""

    def admits(self, row: ProjectRow, audience: Audience) -> bool:
        """Whoever has no groups, to read."""
        return super().admits(row, audience) or (not audience.groups and audience.need is Access.READ)


def _like(text: str, pattern: str) -> bool:
    """SQL's LIKE."""
    parts = (".*" if one == "%" else "." if one == "_" else re.escape(one) for one in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True
