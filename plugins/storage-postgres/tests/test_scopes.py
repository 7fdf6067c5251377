"""What a process keeps in mind, without a server: what it reads to keep, and what of it a search may use."""

from __future__ import annotations

import numpy as np

from muniment.ports import Audience, SearchQuery, Selector
from muniment.ranking import Fusion
from muniment_storage_postgres import vectors, words
from muniment_storage_postgres.mind import Scope, Scopes
from muniment_storage_postgres.reach import Asked, Known

EMPTY = words.Words.of(5, 0, words.Entries.of(None, None, None))


def some_vectors(count: int) -> vectors.Vectors:
    """One of each memory, of 8 dimensions."""
    return vectors.Vectors.of(5, np.arange(count), np.zeros((count, 8), dtype=np.float32))


def test_a_search_reads_no_more_than_has_room_beside_what_it_needs() -> None:
    """Half of the budget is for one search, so that what grows still fits; who was chosen is counted anew."""
    known = Scopes(2_000)
    known.note({(1, None): 480, (1, 1): 480})
    needed = Scope(EMPTY, 1, some_vectors(15))
    wanted: list[tuple[int, int | None]] = [(1, None), (1, 1), (2, None)]
    assert known.to_read(wanted, beside=[needed]) == []
    assert known.to_read(wanted, beside=[]) == wanted[:2]
    assert known.to_read(wanted, beside=[]) == []


def test_what_was_too_large_is_not_read_again_for_seeming_smaller() -> None:
    """The estimate is of lengths; what was read says how much there is."""
    known = Scopes(1_000)
    known.keep(1, Scope(EMPTY, 1, some_vectors(50)))
    assert known.now() == {}
    known.note({(1, None): 100})
    assert known.to_read([(1, None)], beside=[]) == []


def test_what_is_kept_is_not_to_be_read() -> None:
    """Also where the server answered for it at the same time, to another search."""
    kept = Scopes(1_000_000)
    kept.note({(1, None): 100, (1, 7): 100, (2, None): 100})
    kept.keep(1, Scope(EMPTY, 7, some_vectors(2)))
    assert kept.to_read([(1, None), (1, 7), (2, None)], beside=[]) == [(2, None)]


def test_nothing_is_used_that_is_ahead_of_the_snapshot() -> None:
    """As where the next connection is to a server that lags behind."""
    query = SearchQuery({}, frozenset(), np.ones(8, dtype=np.float32), "test:8", Fusion.weighted, None, 0, 5)
    asked = Asked(Audience("ann"), Selector(), query)
    kept = {1: Scope(EMPTY, 7, some_vectors(0))}
    for seen, there in ((4, 0), (5, 1), (6, 1)):
        known = Known(asked, [(1, True, 7, False, seen)], kept, seen=seen)
        assert (len(known.kept), len(known.vectors)) == (there, there)
