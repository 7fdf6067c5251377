"""How a long answer is cut into pages: opaque cursors, and the limit of content in one page.

A cursor is bound to the query that made it and holds only a place in an order, so a forged one shows nothing that
its bearer may not read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from muniment import limits
from muniment.errors import InvalidInput
from muniment.ports import Position

_ID = re.compile(r"[!-~]{0,200}")
"""What an id may be made of, whoever made it."""


def query_hash(operation: str, filters: dict[str, Any]) -> str:
    """The identity of a query: its operation and filters, without limit and cursor."""
    text = json.dumps([operation, filters], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def encode(query: str, place: Sequence[str | int]) -> str:
    """A cursor for ``place`` in the answer to ``query``."""
    return base64.urlsafe_b64encode(json.dumps([query, *place]).encode()).decode().rstrip("=")


def decode(cursor: str, query: str, kinds: tuple[type, ...]) -> list[Any]:
    """The place that a cursor holds. Raises InvalidInput for a malformed one and for another query's."""
    try:
        found = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError):
        found = None
    match found:
        case [str() as made_for, *place] if len(place) == len(kinds) and all(
            type(part) is kind for part, kind in zip(place, kinds, strict=True)
        ):
            if made_for == query:
                return place
            raise InvalidInput("cursor", "it belongs to another query; start this one without a cursor")
        case _:
            raise _foreign()


def encode_position(query: str, position: Position) -> str:
    """A cursor after an item of a list."""
    return encode(query, (position.created_at.isoformat(), position.id))


def decode_position(cursor: str | None, query: str) -> Position | None:
    """The position that a list continues after. Raises InvalidInput."""
    if cursor is None:
        return None
    created_at, item = decode(cursor, query, (str, str))
    try:
        moment = datetime.fromisoformat(created_at)
        if moment.tzinfo is None or not _ID.fullmatch(item):
            raise ValueError
        return Position(moment.astimezone(UTC), item)
    except (ValueError, OverflowError):
        raise _foreign() from None


def decode_number(cursor: str | None, query: str) -> int | None:
    """The offset or version that an answer continues at. Raises InvalidInput."""
    if cursor is None:
        return None
    (number,) = decode(cursor, query, (int,))
    if not 0 <= number < 2**31:
        raise _foreign()
    return number


def _foreign() -> InvalidInput:
    return InvalidInput("cursor", "it is not one that this server made; start again without a cursor")


def fitting(lengths: Sequence[int], limit: int) -> int:
    """How many of the first items make one page: at most ``limit``, of at most ``PAGE_CONTENT_MAX`` characters of
    content in all, and at least one where there is any."""
    total = 0
    for count, length in enumerate(lengths[:limit]):
        total += length
        if count and total > limits.PAGE_CONTENT_MAX:
            return count
    return min(len(lengths), limit)
