"""The rules of the mutation contract: what an edit does to a text, and what every text must keep.

Pure. Who may edit is ``access``; that an edit is applied whole, once and on the version it was made for is the
storage's, by ``ports.Mutation``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from muniment import limits
from muniment.errors import (
    ContentEmpty,
    ContentTooLong,
    PatchAmbiguous,
    PatchNoChange,
    PatchNotFound,
    VersionConflict,
)
from muniment.models import PatchEffect


@dataclass(frozen=True, slots=True)
class Patched:
    """A patched text and what was done to it."""

    content: str
    effect: PatchEffect


def patch(content: str, old: str, new: str) -> Patched:
    """Replace the one occurrence of ``old`` by ``new``.

    Overlapping occurrences count: "aa" in "aaa" is ambiguous. Raises PatchNotFound, PatchAmbiguous (with the count),
    PatchNoChange, ContentEmpty, ContentTooLong.
    """
    offset = content.find(old)
    if offset < 0:
        raise PatchNotFound
    if content.find(old, offset + 1) >= 0:
        count = occurrences(content, old)
        raise PatchAmbiguous(
            f"old_string occurs {count} times; send a longer fragment that occurs exactly once.", count=count
        )
    if old == new:
        raise PatchNoChange
    edited = content[:offset] + new + content[offset + len(old) :]
    check_content(edited)
    return Patched(edited, PatchEffect(offset=offset, removed=len(old), added=len(new)))


def occurrences(content: str, fragment: str) -> int:
    """How often a non-empty ``fragment`` occurs, overlaps counted, in time linear in both (Knuth-Morris-Pratt)."""
    borders = [0] * len(fragment)
    matched = 0
    for position in range(1, len(fragment)):
        while matched and fragment[position] != fragment[matched]:
            matched = borders[matched - 1]
        matched += fragment[position] == fragment[matched]
        borders[position] = matched
    count = matched = 0
    for character in content:
        while matched and (matched == len(fragment) or character != fragment[matched]):
            matched = borders[matched - 1]
        matched += character == fragment[matched]
        count += matched == len(fragment)
    return count


def check_content(content: str) -> None:
    """Refuse a content that a memory may not have after an edit. Raises ContentEmpty, ContentTooLong."""
    if not content:
        raise ContentEmpty
    if len(content) > limits.CONTENT_MAX:
        raise ContentTooLong(
            f"The content would be {len(content):,} characters; a memory holds at most {limits.CONTENT_MAX:,}. "
            "Split it into several memories.",
            length=len(content),
            limit=limits.CONTENT_MAX,
        )


def check_version(sent: int | None, current: int) -> int:
    """The version that a mutation is made for: the one sent, or the one read. Raises VersionConflict."""
    if sent is not None and sent != current:
        raise VersionConflict(current)
    return current


def body_hash(operation: str, body: dict[str, Any]) -> str:
    """The identity of a request: SHA-256 of the operation and its input as the client sent it, defaults filled in."""
    text = json.dumps([operation, body], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
