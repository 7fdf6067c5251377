"""The cache: values that do not disturb each other, and a budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from muniment_storage_mongo.vector_cache import Entry, Rows, VectorCache

DIMENSIONS = 4


def rows(*memories: tuple[str, Sequence[Sequence[float]]]) -> Rows:
    """Live memories by id, each with its vectors; a memory's length is its number of vectors."""
    vectors = [vector for _, of in memories for vector in of]
    owners = [place for place, (_, of) in enumerate(memories) for _ in of]
    return Rows(
        [identity for identity, _ in memories],
        np.array([len(of) for _, of in memories], dtype=np.int64),
        np.array(owners, dtype=np.int64),
        np.array(vectors, dtype=np.float32).reshape(-1, DIMENSIONS),
    )


def by_id(entry: Entry, query: Sequence[float]) -> dict[str, float]:
    """Each memory's exact cosine."""
    places = np.arange(len(entry.ids), dtype=np.int64)
    found = entry.compared(np.array(query, dtype=np.float32)).exact(places).tolist()
    return dict(zip(entry.ids, found, strict=True))


A, B, C = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0)


def test_a_memory_counts_by_its_best_passage() -> None:
    """The best of several; one without passages, and one whose vector is zero, have no cosine."""
    entry = Entry.of({}, rows(("a", [B, A]), ("none", []), ("zero", [(0.0,) * 4])))
    assert by_id(entry, A) == {"a": 1.0, "none": -np.inf, "zero": -np.inf}


def test_a_scope_without_vectors_has_no_cosines() -> None:
    """Whether nothing was embedded yet, or the search leaves meaning out; what comes later counts."""
    nothing = np.zeros((0, 0), dtype=np.float32)
    entry = Entry.of({}, Rows(["a"], np.array([1]), np.zeros(0, dtype=np.int64), nothing))
    assert by_id(entry, A) == {"a": -np.inf}
    assert entry.compared(np.array(A, dtype=np.float32)).estimates.tolist() == [-np.inf]
    assert by_id(entry.with_changes({1: 1}, {"b"}, rows(("b", [A]))), A) == {"a": -np.inf, "b": 1.0}


def test_a_space_that_came_back_with_other_dimensions_begins_anew() -> None:
    """Nothing that is left of the earlier one is in the way."""
    entry = Entry.of({1: 1}, rows(("a", [A]), ("b", [B])))
    wider = np.ones((1, DIMENSIONS + 2), dtype=np.float32)
    later = entry.with_changes({1: 2}, {"a", "b"}, Rows(["a", "b"], np.array([1, 1]), np.array([1]), wider))
    assert by_id(later, [1.0] * (DIMENSIONS + 2)) == {"a": -np.inf, "b": 1.0}


def test_a_change_replaces_what_there_was_of_a_memory() -> None:
    """Changed, gone and new memories are as they were read; what did not change stays."""
    entry = Entry.of({1: 5}, rows(("a", [A]), ("b", [A, B]), ("c", [A])))
    later = entry.with_changes({1: 7}, {"b", "c", "d"}, rows(("d", [C]), ("b", [B])))
    assert by_id(later, A) == {"a": 1.0, "d": pytest.approx(0.5**0.5), "b": 0.0}
    assert dict(zip(later.ids, later.lengths.tolist(), strict=True)) == {"a": 1, "d": 1, "b": 1}
    assert [later.places[one] for one in later.ids] == [0, 1, 2]


def test_an_entry_is_a_value() -> None:
    """Two entries that follow from one share its rows, and neither sees what the other one added."""
    entry = Entry.of({}, rows(("a", [A])))
    first = entry.with_changes({1: 1}, {"b"}, rows(("b", [B])))
    second = first.with_changes({1: 2}, {"c"}, rows(("c", [C])))
    other = first.with_changes({1: 3}, {"d"}, rows(("d", [A])))
    assert by_id(entry, A) == {"a": 1.0}
    assert by_id(first, A) == {"a": 1.0, "b": 0.0}
    assert by_id(second, A) == {"a": 1.0, "b": 0.0, "c": pytest.approx(0.5**0.5)}
    assert by_id(other, A) == {"a": 1.0, "b": 0.0, "d": 1.0}


def test_rows_of_what_is_gone_do_not_pile_up() -> None:
    """A memory that changes for ever costs no more than it did."""
    entry = Entry.of({}, rows(("a", [A])))
    for number in range(5_000):
        entry = entry.with_changes({1: number}, {"a"}, rows(("a", [B])))
    assert by_id(entry, A) == {"a": 0.0}
    assert entry.size < 200_000


def test_an_entry_ahead_of_a_snapshot_is_not_within_it() -> None:
    """Every lane counts; one that the snapshot does not have yet is at 0."""
    entry = Entry.of({1: 5, 2: 3}, rows(("a", [A])))
    assert entry.is_within({1: 5, 2: 4, 9: 1})
    assert not entry.is_within({1: 5, 2: 2})
    assert not entry.is_within({1: 5})


def test_the_budget_is_kept() -> None:
    """What was not used for longest makes room; what is larger than everything is not kept."""
    one = Entry.of({}, rows(("a", [A])))
    cache = VectorCache(2 * one.size)
    cache.put(("s1", None), one)
    cache.put(("s2", None), one)
    assert cache.get(("s1", None)) is one
    cache.put(("s3", None), one)
    assert cache.get(("s2", None)) is None
    assert cache.get(("s1", None)) is one
    cache.put(("s1", None), Entry.of({}, rows(*((str(number), [A]) for number in range(100)))))
    assert cache.get(("s1", None)) is None
    cache.put(("s4", None), one)
    assert cache.get(("s3", None)) is cache.get(("s4", None)) is one
