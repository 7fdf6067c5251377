"""The vectors of scopes that are searched again and again, kept in mind by this process.

What is kept is what one snapshot held, and the oldest transaction that it may not have seen. A later snapshot reads
anew the memories of which passages were changed by that one or by a later one (``search_entry.changed``), and whoever
is not live in the scope any more is left out; so the answer is exact in each snapshot, whoever wrote, but for a space
that is being dropped, whose vectors stay in mind. Scopes with few
passages, and those that do not fit the budget, are compared by the server. The arithmetic is ``ranking``'s. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from muniment.ranking import GrowingMatrix, Kept, PassageMatrix, lengths_of
from muniment.ranking.meaning import Matrix
from muniment_storage_postgres.arrays import NUMBER, Numbers, elements
from muniment_storage_postgres.postings import Readable
from muniment_storage_postgres.records import Row

WORTH = 3_000
"""Passages of a scope from which on its vectors are kept; fewer are as soon compared by the server."""
_MOST = 500_000_000
"""Bytes that one answer of the server may bring; it cannot make one of more than 1 GB."""
_KNOWN_COUNTS = 10_000
"""Scopes of which the number of passages is kept in mind."""
_GONE_ROWS = 1_024
"""So many rows of what is gone are carried along before the matrix is made anew, and at most as many as are live."""
_CHANGED, _PASSAGES = -3, -4
"""Places of ``scores``."""

Key: TypeAlias = tuple[int, int]
"""The numbers of a scope and of a space."""


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

    def with_changes(self, seen: int, changed: Numbers, memories: Numbers, vectors: Matrix) -> Vectors:
        """As a later snapshot has it: of the ``changed`` memories there is what was read now, and nothing else."""
        if not len(changed):
            return replace(self, seen=seen)
        kept = np.where(np.isin(self.memories, changed), -1, self.memories)
        made = Vectors(
            seen,
            np.concatenate([kept, memories]),
            np.concatenate([self.lengths, lengths_of(vectors)]),
            self.matrix.with_rows(len(kept), vectors),
        )
        gone = int((made.memories < 0).sum())
        return made._compact() if gone > _GONE_ROWS and gone > len(made.memories) // 2 else made

    def among(self, scope: int, readable: Readable) -> PassageMatrix:
        """The passages of what is live in the scope, by the places of the readable memories."""
        places, there = readable.in_scope(self.memories, scope)
        owners = np.where(there, places, -1)
        return PassageMatrix(self.matrix.array[: len(owners)], self.lengths, owners, len(readable.numbers))

    def _compact(self) -> Vectors:
        live = np.flatnonzero(self.memories >= 0)
        return Vectors(self.seen, self.memories[live], self.lengths[live], GrowingMatrix(self.matrix.array[live]))


class KnownVectors:
    """What this process keeps of a database, up to a budget in bytes."""

    def __init__(self, budget: int) -> None:
        self._kept: Kept[Key, Vectors] = Kept(budget)
        self._counts: dict[Key, int] = {}

    def now(self) -> Mapping[Key, Vectors]:
        """What is kept before a snapshot is taken, and so is not ahead of it."""
        return self._kept.now()

    def to_read(self, keys: Sequence[Key], dimensions: int, *, beside: Sequence[Vectors]) -> list[Key]:
        """Which of these are to be kept from now on: they were compared by the server before, which is forgotten here,
        have many passages, and have room ``beside`` what the same search needs."""
        room = min(self._kept.budget // 2, _MOST) - sum(one.size for one in beside)
        chosen: list[Key] = []
        for key in keys:
            count = self._counts.get(key, 0)
            size = count * (4 * dimensions + 16)
            if count >= WORTH and size <= room:
                room -= size
                chosen.append(key)
                del self._counts[key]
        return chosen

    def note(self, counts: Mapping[Key, int]) -> None:
        """How many passages scopes have that the server compared."""
        if len(self._counts) + len(counts) > _KNOWN_COUNTS:
            self._counts.clear()
        self._counts.update(counts)

    def keep(self, key: Key, vectors: Vectors) -> None:
        """Keep this for later snapshots; what was not used for longest makes room."""
        self._kept.put(key, vectors)


def changed(answers: Sequence[Row]) -> Numbers:
    """Place -3 of ``scores``."""
    found = [elements(packed, NUMBER) for place, _, packed, _ in answers if place == _CHANGED]
    return np.concatenate(found).astype(np.int64) if found else np.zeros(0, dtype=np.int64)


def read(answers: Sequence[Row], scope: int, dimensions: int) -> tuple[Numbers, Matrix]:
    """Place -4 of ``scores`` and ``passages``: the memories of a scope's passages, and their vectors."""
    for place, of, packed, vectors in answers:
        if place == _PASSAGES and of == scope:
            sent = np.dtype([("head", ">i4"), ("values", ">f4", (dimensions,))])
            values = np.frombuffer(vectors, dtype=sent)["values"].astype(np.float32)
            return elements(packed, NUMBER).astype(np.int64), values
    return np.zeros(0, dtype=np.int64), np.zeros((0, dimensions), dtype=np.float32)
