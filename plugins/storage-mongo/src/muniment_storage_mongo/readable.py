"""Every live memory that a search may find, as places in one array: scope after scope, each with its entry.

Owns the places and what is computed on them; ``ranking`` scores. What is in a scope is ``corpus``'s. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from muniment import ranking
from muniment.ports import SearchQuery
from muniment.ranking import Postings
from muniment_storage_mongo.vector_cache import Entry, Floats, Numbers


class Readable:
    """The memories of an audience beside a query; those in ``selected`` scopes are searched, all count for the
    statistics of words."""

    def __init__(self, entries: Mapping[str, Entry], selected: Collection[str], query: SearchQuery) -> None:
        self.entries = entries
        self._query = query
        vector = query.vector
        self._compared = {} if vector is None else {key: one.compared(vector) for key, one in entries.items()}
        chosen = frozenset(selected)
        self._offsets: dict[str, int] = {}
        count = 0
        for key, entry in entries.items():
            self._offsets[key] = count
            count += len(entry.ids)
        self.lengths = _joined([entry.lengths for entry in entries.values()])
        self.selected: NDArray[np.bool_] = np.repeat(
            np.array([key in chosen for key in entries], dtype=np.bool_),
            np.array([len(entry.ids) for entry in entries.values()], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def places(self, scope_keys: Sequence[str], ids: Sequence[str]) -> Numbers:
        """The places of memories of several scopes."""
        pairs = zip(scope_keys, ids, strict=True)
        return np.array([self._offsets[key] + self.entries[key].places[one] for key, one in pairs], dtype=np.int64)

    def postings(self, by_scope: Mapping[str, Postings]) -> Postings:
        """A term's postings in every scope as one; their places there become places among all."""
        found = [(postings.places + self._offsets[key], postings.frequencies) for key, postings in by_scope.items()]
        return Postings(_joined([places for places, _ in found]), _joined([counts for _, counts in found]))

    @property
    def meaning(self) -> Floats:
        """The best cosine of each within ``ranking.margin``, -inf where it has none."""
        return np.concatenate([one.estimates for one in self._compared.values()] or [np.full(len(self), -np.inf)])

    def page(self, scores: ranking.Scores) -> list[ranking.Ranked]:
        """The asked part of the fused order, of exact scores; ``scores`` become exact where they decide it."""
        query = self._query
        blur = 0.0 if query.vector is None else ranking.margin(len(query.vector))
        places: dict[str, int] = {}
        for key, here in self._within(scores.candidates(blur=blur, wanted=query.offset + query.limit)):
            offset, of_scope = self._offsets[key], self.entries[key].ids
            places.update({of_scope[place]: place + offset for place in here.tolist()})
            if key in self._compared:
                compared = here[scores.meaning[here + offset] > -np.inf]
                scores.meaning[compared + offset] = self._compared[key].exact(compared)
        return scores.fuse(
            places, fusion=query.fusion, min_score=query.min_score, offset=query.offset, limit=query.limit
        )

    def _within(self, places: Sequence[int]) -> Iterable[tuple[str, Numbers]]:
        """Each scope in which some of the places are, and which there, counted from its first."""
        ordered = np.array(places, dtype=np.int64)
        for key, offset in self._offsets.items():
            here = ordered[(ordered >= offset) & (ordered < offset + len(self.entries[key].ids))]
            if len(here):
                yield key, here - offset


def _joined(parts: Sequence[Numbers]) -> Numbers:
    """Arrays one behind the other."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
