"""What a process keeps in mind of a scope: who is live, how long they are, and their vectors in one space.

An ``Entry`` is a value: it says what was in one snapshot, and a change makes another one. So searches that are under
way at different moments do not disturb each other. The arithmetic on vectors and the budget are ``ranking``'s; what has
changed since, and reading it, are ``corpus``'s. numpy alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from muniment.ports import Vector
from muniment.ranking import Comparison, GrowingMatrix, Kept, PassageMatrix, lengths_of
from muniment_storage_mongo.postings import KnownPostings

Key: TypeAlias = tuple[str, str | None]
"""A scope key and a space; no space where only the lengths are needed."""
Numbers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float32]

_BYTES_OF_AN_ID = 250
"""What an id costs in a list, as a key and with its length."""
_GONE_ROWS = 1_024
"""So many rows of what is gone are carried along before the matrix is made anew, and at most as many as are live."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Live memories as they were read: ``owners`` are places in ``ids``, one of each vector.

    ``terms`` are each memory's, None where they were not read.
    """

    ids: Sequence[str]
    lengths: Numbers
    owners: Numbers
    vectors: Matrix
    terms: Sequence[Mapping[str, int]] | None = None


class Entry:
    """Everything live of a scope in one snapshot. ``seen`` is the revision of each of the scope's lanes in it.

    ``postings`` are those of the terms that were read since, which are the same as long as the revisions are.
    """

    def __init__(
        self,
        seen: Mapping[int, int],
        ids: list[str],
        lengths: Numbers,
        owners: Numbers,
        buffer: GrowingMatrix,
        norms: Matrix,
        postings: KnownPostings | None = None,
    ) -> None:
        self.seen = seen
        self.ids = ids
        self.lengths = lengths
        self.places = {identity: place for place, identity in enumerate(ids)}
        self.postings = KnownPostings(len(ids)) if postings is None else postings
        self._buffer = buffer
        self._passages = PassageMatrix(buffer.array[: len(owners)], norms, owners, len(ids))

    @classmethod
    def of(cls, seen: Mapping[int, int], rows: Rows) -> Entry:
        """An entry of all that was read."""
        vectors = np.ascontiguousarray(rows.vectors, dtype=np.float32)
        return cls(seen, list(rows.ids), rows.lengths, rows.owners, GrowingMatrix(vectors), lengths_of(vectors))

    @property
    def size(self) -> int:
        """Bytes, about."""
        vectors = self._buffer.array.nbytes + self._passages.lengths.nbytes
        return vectors + len(self.ids) * _BYTES_OF_AN_ID + KnownPostings.size(len(self.ids))

    def with_changes(self, seen: Mapping[int, int], changed: Set[str], rows: Rows) -> Entry:
        """The entry of a later snapshot: what ``changed`` is replaced by what there is of it now, ``rows``."""
        keep = np.array([identity not in changed for identity in self.ids], dtype=np.bool_)
        # The last place is that of rows whose memory is gone.
        moved = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
        kept = [identity for identity in self.ids if identity not in changed]
        old, norms, buffer = moved[self._passages.owners], self._passages.lengths, self._buffer
        if len(rows.vectors) and rows.vectors.shape[1] != buffer.array.shape[1]:
            # What is there is of a space that was dropped, and registered again with other dimensions.
            old, norms, buffer = old[:0], norms[:0], GrowingMatrix(rows.vectors[:0])
        owners = np.concatenate((old, rows.owners + len(kept)))
        entry = Entry(
            seen,
            [*kept, *rows.ids],
            np.concatenate((self.lengths[keep], rows.lengths)),
            owners,
            buffer.with_rows(len(old), rows.vectors),
            np.concatenate((norms, lengths_of(rows.vectors))),
            None if rows.terms is None else self.postings.moved(moved, len(kept), rows.terms),
        )
        gone = int((owners < 0).sum())
        return entry._compact() if gone > _GONE_ROWS and gone > len(owners) // 2 else entry

    def is_within(self, revisions: Mapping[int, int]) -> bool:
        """Whether everything that this entry has seen is in the snapshot with these revisions."""
        return all(rev <= revisions.get(lane, 0) for lane, rev in self.seen.items())

    def compared(self, query: Vector) -> Comparison:
        """Every passage beside a query."""
        return self._passages.compared(query)

    def _compact(self) -> Entry:
        passages = self._passages
        live = np.flatnonzero(passages.owners >= 0)
        buffer = GrowingMatrix(passages.vectors[live])
        owners, lengths = passages.owners[live], passages.lengths[live]
        return Entry(self.seen, self.ids, self.lengths, owners, buffer, lengths, self.postings)


VectorCache: TypeAlias = Kept[Key, Entry]
"""The entries that were used last, up to a budget in bytes."""
