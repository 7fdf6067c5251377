"""The pure rules of the mutation contract."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muniment import limits, mutations
from muniment.errors import (
    ContentEmpty,
    ContentTooLong,
    PatchAmbiguous,
    PatchNoChange,
    PatchNotFound,
    VersionConflict,
)


def test_patch_replaces_the_one_occurrence_and_says_where() -> None:
    """Offset, removed and added lengths are in characters of the content."""
    patched = mutations.patch("één twee drie", "twee", "2")
    assert patched.content == "één 2 drie"
    assert (patched.effect.offset, patched.effect.removed, patched.effect.added) == (4, 4, 1)


def test_an_empty_replacement_deletes() -> None:
    """A patch with an empty new_string removes the fragment."""
    assert mutations.patch("a\nb\nc", "b\n", "").content == "a\nc"


@pytest.mark.parametrize(
    ("content", "old", "count"), [("aaa", "aa", 2), ("abcabc", "abc", 2), ("abababa", "aba", 3), ("xx", "x", 2)]
)
def test_overlapping_occurrences_are_ambiguous(content: str, old: str, count: int) -> None:
    """The refusal carries the count, overlaps included."""
    with pytest.raises(PatchAmbiguous) as refused:
        mutations.patch(content, old, "new")
    assert refused.value.details["count"] == count
    assert str(count) in refused.value.message


@given(st.text(alphabet="ab", max_size=60), st.text(alphabet="ab", min_size=1, max_size=5))
def test_occurrences_counts_every_start(content: str, fragment: str) -> None:
    """The linear count equals the naive one."""
    naive = sum(content.startswith(fragment, start) for start in range(len(content)))
    assert mutations.occurrences(content, fragment) == naive


def test_counting_is_linear_on_hostile_input() -> None:
    """The longest content against half of itself ends soon: a quadratic count would take minutes."""
    started = time.monotonic()
    half = limits.CONTENT_MAX // 2
    assert mutations.occurrences("a" * limits.CONTENT_MAX, "a" * half) == half + 1
    assert time.monotonic() - started < 30


def test_refusals_of_a_patch() -> None:
    """Absent, unchanged, empty and too long are told apart; the edited text is what is measured."""
    with pytest.raises(PatchNotFound):
        mutations.patch("abc", "x", "y")
    with pytest.raises(PatchNoChange):
        mutations.patch("abc", "b", "b")
    with pytest.raises(ContentEmpty):
        mutations.patch("abc", "abc", "")
    full = "x" * (limits.CONTENT_MAX - 1) + "y"
    with pytest.raises(ContentTooLong):
        mutations.patch(full, "y", "yy")
    longer_fragment = mutations.patch("y" + "x" * (limits.CONTENT_MAX - 1), "y" + "x" * 5, "z" * 6)
    assert len(longer_fragment.content) == limits.CONTENT_MAX


def test_version_is_compared_only_when_sent() -> None:
    """A mutation without a version is made for the one that was read."""
    assert mutations.check_version(None, 7) == 7
    assert mutations.check_version(7, 7) == 7
    with pytest.raises(VersionConflict) as refused:
        mutations.check_version(6, 7)
    assert refused.value.details == {"current_version": 7}


def test_body_hash_tells_bodies_apart_whatever_their_key_order() -> None:
    """The same body in another order is the same request; another value or operation is not."""
    first = mutations.body_hash("memory.write", {"a": 1, "b": ["x"]})
    assert first == mutations.body_hash("memory.write", {"b": ["x"], "a": 1})
    assert first != mutations.body_hash("memory.write", {"a": 1, "b": ["y"]})
    assert first != mutations.body_hash("memory.patch", {"a": 1, "b": ["x"]})
