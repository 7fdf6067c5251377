"""The vectors of scopes that are searched again and again, kept in mind by this process.

What is kept is what one snapshot held, and the oldest transaction that it may not have seen. A later snapshot reads
anew the memories of which passages were changed by that one or by a later one (``search_entry.changed``), and whoever
is not live in the scope any more is left out; so the answer is exact in each snapshot, whoever wrote, but for a space
that is being dropped, whose vectors stay in mind. The arithmetic is ``ranking``'s. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from muniment.ranking import GrowingMatrix, PassageMatrix, lengths_of
from muniment.ranking.meaning import Matrix
from muniment_storage_postgres.arrays import NUMBER, Numbers, elements
from muniment_storage_postgres.readable import Readable

_GONE_ROWS = 1_024
"""So many rows of what is gone are carried along before the matrix is made anew, and at most as many as are live."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The passages of a scope in a space: ``memories`` says whose each row of the matrix is, -1 for nobody's.

    ``seen``: what older transactions changed is in it, and what this one or later ones changed may be.
    """

    seen: int
    memories: Numbers
    lengths: Matrix
    matrix: GrowingMatrix

    @classmethod
    def of(cls, seen: int, memories: Numbers, vectors: Matrix) -> Vectors:
        """All that was read."""
        return cls(seen, memories, lengths_of(vectors), GrowingMatrix(vectors))

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self.matrix.array.nbytes + self.lengths.nbytes + self.memories.nbytes

    @property
    def dimensions(self) -> int:
        """Of each vector."""
        return self.matrix.array.shape[1]

    def with_changes(self, seen: int, changed: Numbers, memories: Numbers, vectors: Matrix) -> Vectors:
        """As a later snapshot has it: of the ``changed`` memories there is what was read now, and nothing else."""
        if not len(changed):
            return replace(self, seen=seen)
        kept = np.where(np.isin(self.memories, changed), -1, self.memories)
        return Vectors(
            seen,
            np.concatenate([kept, memories]),
            np.concatenate([self.lengths, lengths_of(vectors)]),
            self.matrix.with_rows(len(kept), vectors),
        )

    def only(self, there: NDArray[np.bool_]) -> Vectors:
        """Without the rows of who is not there, once they are many."""
        live = np.flatnonzero(there)
        gone = len(there) - len(live)
        if gone <= _GONE_ROWS or gone <= len(live):
            return self
        return Vectors(self.seen, self.memories[live], self.lengths[live], GrowingMatrix(self.matrix.array[live]))

    def among(self, scope: int, readable: Readable) -> PassageMatrix:
        """The passages of what is live in the scope, by the places of the readable memories."""
        places, there = readable.in_scope(self.memories, scope)
        owners = np.where(there, places, -1)
        return PassageMatrix(self.matrix.array[: len(owners)], self.lengths, owners, len(readable.numbers))


def read(packed: bytes | None, vectors: bytes | None, dimensions: int) -> tuple[Numbers, Matrix]:
    """The memories of passages, and their vectors, from an answer of ``passages`` or ``changes``; None for none."""
    sent = np.dtype([("head", ">i4"), ("values", ">f4", (dimensions,))])
    values = np.frombuffer(vectors or b"", dtype=sent)["values"].astype(np.float32)
    return elements(packed or b"", NUMBER).astype(np.int64), values
