"""How pages are cut and continued."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muniment import limits, pages
from muniment.errors import InvalidInput
from muniment.ports import Position

QUERY = pages.query_hash("memory.list", {"tags": ["a"]})
OTHER = pages.query_hash("memory.list", {"tags": ["b"]})


def test_a_position_survives_its_cursor() -> None:
    """To the microsecond."""
    position = Position(datetime(2026, 3, 4, 5, 6, 7, 891234, tzinfo=UTC), "id-1")
    assert pages.decode_position(pages.encode_position(QUERY, position), QUERY) == position


def test_a_cursor_of_another_query_is_refused() -> None:
    """It names the field and the remedy; with its own query it is good."""
    cursor = pages.encode(QUERY, (3,))
    assert pages.decode_number(cursor, QUERY) == 3
    with pytest.raises(InvalidInput, match="another query") as refused:
        pages.decode_number(cursor, OTHER)
    assert refused.value.details["field"] == "cursor"


@given(st.text(max_size=80))
def test_a_made_up_cursor_is_invalid_input(cursor: str) -> None:
    """Whatever it holds, it is a refusal and never a crash."""
    with pytest.raises(InvalidInput):
        pages.decode_position(cursor, QUERY)
    with pytest.raises(InvalidInput):
        pages.decode_number(cursor, QUERY)


@pytest.mark.parametrize("place", [(-1,), (2**40,), (True,), ("1",), (1, 2), ()])
def test_a_cursor_with_another_place_is_invalid_input(place: tuple[int | str, ...]) -> None:
    """A forged place outside the range or of another type is refused."""
    with pytest.raises(InvalidInput):
        pages.decode_number(pages.encode(QUERY, place), QUERY)


@pytest.mark.parametrize("moment", ["yesterday", "2026-03-04T05:06:07", ""])
def test_a_cursor_without_a_moment_is_invalid_input(moment: str) -> None:
    """A time without a zone cannot be compared with a stored one."""
    with pytest.raises(InvalidInput):
        pages.decode_position(pages.encode(QUERY, (moment, "id")), QUERY)


@pytest.mark.parametrize("item", ["\ud800", "a\0b", "x" * 10_000, "ü"])
def test_a_cursor_with_an_id_that_no_storage_gives_is_invalid_input(item: str) -> None:
    """It never reaches a storage, which could not look for it."""
    with pytest.raises(InvalidInput):
        pages.decode_position(pages.encode(QUERY, ("2026-03-04T05:06:07+00:00", item)), QUERY)


def test_a_cursor_whose_moment_no_storage_can_compare_is_invalid_input() -> None:
    """In UTC it would be before the first year that there is."""
    with pytest.raises(InvalidInput):
        pages.decode_position(pages.encode(QUERY, ("0001-01-01T00:00:00+14:00", "id")), QUERY)


def test_a_cursor_of_many_brackets_is_invalid_input() -> None:
    """However deep."""
    cursor = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    with pytest.raises(InvalidInput):
        pages.decode_number(cursor, QUERY)


def test_a_page_ends_at_its_limits() -> None:
    """By items, by content, and never before its first item."""
    limit = limits.PAGE_CONTENT_MAX
    assert pages.fitting([], 10) == 0
    assert pages.fitting([1, 1, 1], 2) == 2
    assert pages.fitting([limit // 2, limit // 2, 1], 10) == 2
    assert pages.fitting([limit, 1], 10) == 1
    assert pages.fitting([limit + 16_000, 1], 10) == 1
