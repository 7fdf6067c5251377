"""The postings of the terms that a scope was last searched for, so that common words are read once and not ever again.

They are those of one snapshot; a change takes them along to the next one. numpy alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muniment.ranking import Postings

TERMS: Final = 256
"""So many terms of a scope are kept at most: each one is work at every change."""
_COMMON = 64
"""So many terms that every memory holds have room."""
_BYTES_OF_A_TERM = 400
_BYTES_OF_A_POSTING = 8

_Small = NDArray[np.int32]


class KnownPostings:
    """Postings by term; places are those of one entry of ``vector_cache``, which has so many ``memories``."""

    def __init__(self, memories: int) -> None:
        self._budget = self.size(memories)
        self._used = 0
        self._terms: OrderedDict[str, tuple[_Small, _Small]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._terms)

    @staticmethod
    def size(memories: int) -> int:
        """The bytes that the terms of so many memories can take, about."""
        return _COMMON * (_BYTES_OF_A_TERM + _BYTES_OF_A_POSTING * memories)

    def get(self, term: str) -> Postings | None:
        """What is known of a term, which counts as asked for now; None where it has to be read."""
        known = self._terms.get(term)
        if known is None:
            return None
        self._terms.move_to_end(term)
        places, counts = known
        return Postings(places.astype(np.int64), counts.astype(np.int64))

    def put(self, term: str, postings: Postings) -> None:
        """Keep a term that was read; those that were not asked for longest make room. There is always room for one."""
        if term in self._terms:
            return
        self._terms[term] = postings.places.astype(np.int32), postings.frequencies.astype(np.int32)
        self._used += _size(len(postings.places))
        while self._used > self._budget or len(self._terms) > TERMS:
            _, (oldest, _) = self._terms.popitem(last=False)
            self._used -= _size(len(oldest))

    def moved(self, places: NDArray[np.int64], start: int, changed: Sequence[Mapping[str, int]]) -> KnownPostings:
        """The postings after a change.

        ``places`` has the new place of each memory, -1 for one that is gone or changed. ``changed`` has the terms of
        those that take the places from ``start`` on, to the last.
        """
        later = KnownPostings(start + len(changed))
        for term, (old, counts) in self._terms.items():
            moved = places[old]
            kept = moved >= 0
            fresh = [(start + number, terms[term]) for number, terms in enumerate(changed) if term in terms]
            added = np.array(fresh, dtype=np.int64).reshape(-1, 2)
            frequencies = np.concatenate((counts[kept], added[:, 1]), dtype=np.int64)
            later.put(term, Postings(np.concatenate((moved[kept], added[:, 0])), frequencies))
        return later


def _size(postings: int) -> int:
    return _BYTES_OF_A_TERM + _BYTES_OF_A_POSTING * postings
