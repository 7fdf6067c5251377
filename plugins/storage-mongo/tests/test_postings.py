"""Postings that are kept: the same after a change as read anew, and within their bounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from muniment.ranking import Postings
from muniment_storage_mongo import postings
from muniment_storage_mongo.postings import KnownPostings


def of(counts: Mapping[int, int]) -> Postings:
    """Counts by place."""
    return Postings(np.array(list(counts), dtype=np.int64), np.array(list(counts.values()), dtype=np.int64))


def counts(known: KnownPostings, term: str) -> dict[int, int] | None:
    """What is known of a term, by place."""
    found = known.get(term)
    if found is None:
        return None
    assert found.places.dtype == found.frequencies.dtype == np.int64
    return dict(zip(found.places.tolist(), found.frequencies.tolist(), strict=True))


def test_a_term_that_nobody_holds_is_known_too() -> None:
    """It need not be read again; a term that was never read is not known."""
    known = KnownPostings(3)
    known.put("none", of({}))
    assert (counts(known, "none"), counts(known, "other")) == ({}, None)


def test_a_change_moves_what_stays_and_adds_what_came() -> None:
    """Of five memories the first and the fourth are gone or changed; two come. The earlier ones are as they were."""
    known = KnownPostings(5)
    known.put("a", of({0: 1, 1: 2, 3: 4, 4: 5}))
    known.put("b", of({3: 7}))
    later = known.moved(np.array([-1, 0, 1, -1, 2, -1]), 3, [{"b": 8, "c": 1}, {"a": 9}])
    assert (counts(later, "a"), counts(later, "b"), counts(later, "c")) == ({0: 2, 2: 5, 4: 9}, {3: 8}, None)
    assert (counts(known, "a"), counts(known, "b")) == ({0: 1, 1: 2, 3: 4, 4: 5}, {3: 7})


def test_terms_that_were_not_asked_for_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, and by bytes; one that every memory holds has always room."""
    monkeypatch.setattr(postings, "TERMS", 2)
    known = KnownPostings(10)
    for term in ("a", "b"):
        known.put(term, of({0: 1}))
    known.put("a", of({0: 1}))
    assert known.get("b") is not None
    known.put("c", of({0: 1}))
    assert (counts(known, "a"), counts(known, "b"), counts(known, "c")) == (None, {0: 1}, {0: 1})

    monkeypatch.setattr(postings, "_COMMON", 1)
    known = KnownPostings(1_000)
    everybody = dict.fromkeys(range(1_000), 1)
    for term in ("d", "e"):
        known.put(term, of(everybody))
    assert (counts(known, "d"), counts(known, "e")) == (None, everybody)
