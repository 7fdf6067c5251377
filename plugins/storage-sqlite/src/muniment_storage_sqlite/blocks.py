"""What a search computes with, kept in memory: the memories and the vectors of each scope.

A block is what a scope holds at one generation. It is looked for by the generation that the search's own snapshot has,
so it cannot be stale, whichever process wrote. A new block takes over the vectors of the one before it, since a
passage's row never changes and its number is never used again; only what is new is read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from muniment_storage_sqlite.audiences import listed
from muniment_storage_sqlite.entries import STORED

KEPT: Final = 256_000_000
"""How many bytes of vectors are kept; those of the scopes that were searched longest ago go."""
_BATCH: Final = 500
"""How many vectors are read by one statement."""

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Memories:
    """A scope's live memories: their ascending numbers, and the ``lengths`` of their texts in words."""

    generation: int
    numbers: Numbers
    lengths: Numbers


@dataclass(frozen=True, slots=True)
class Vectors:
    """A scope's passages in one space by ascending number of their memory: ``matrix`` has shape
    ``(passages, dimensions)``, ``norms`` its rows' lengths."""

    generation: int
    passages: Numbers
    memories: Numbers
    matrix: NDArray[np.float32]
    norms: NDArray[np.float32]


class Blocks:
    """The blocks that searches of one storage share, from all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memories: dict[int, Memories] = {}
        self._vectors: OrderedDict[tuple[int, int], Vectors] = OrderedDict()

    def memories(self, connection: Connection, scope: int, generation: int) -> Memories:
        """A scope's live memories at ``generation``, which is the one of the connection's snapshot."""
        known = self._memories.get(scope)
        if known is None or known.generation != generation:
            numbers, words = fetch(
                connection, "SELECT number, words FROM memories WHERE scope = ? AND deleted = 0", (scope,)
            )
            order = np.argsort(numbers)
            known = Memories(generation, numbers[order], words[order])
            self._memories[scope] = known
        return known

    def vectors(self, connection: Connection, scope: int, generation: int, space: int, dimensions: int) -> Vectors:
        """A scope's passages in a space at ``generation``, which is the one of the connection's snapshot."""
        key = (scope, space)
        with self._lock:
            known = self._vectors.get(key)
            if known is not None:
                self._vectors.move_to_end(key)
        if known is None or known.generation != generation:
            known = _read(connection, scope, generation, space, dimensions, known)
            with self._lock:
                self._vectors[key] = known
                self._vectors.move_to_end(key)
                while len(self._vectors) > 1 and sum(one.matrix.nbytes for one in self._vectors.values()) > KEPT:
                    self._vectors.popitem(last=False)
        return known


def fetch(connection: Connection, select: str, parameters: Any) -> tuple[Numbers, Numbers]:
    """The two columns of a ``select`` of whole numbers, in any order of its rows.

    They come as two texts: parsing those costs a fraction of what a Python object for each number would.
    """
    row = connection.execute(
        f"WITH found (first, second) AS ({select}) SELECT group_concat(first), group_concat(second) FROM found",
        parameters,
    ).fetchone()
    first, second = (np.fromstring(text or "", dtype=np.int64, sep=",") for text in row)
    return first, second


def _read(
    connection: Connection, scope: int, generation: int, space: int, dimensions: int, before: Vectors | None
) -> Vectors:
    passages, memories = fetch(
        connection, "SELECT number, memory FROM passages WHERE scope = ? AND space = ?", (scope, space)
    )
    order = np.lexsort((passages, memories))
    passages, memories = passages[order], memories[order]
    matrix = np.empty((len(passages), dimensions), dtype=np.float32)
    missing = np.ones(len(passages), dtype=np.bool_)
    if before is not None:
        _, here, there = np.intersect1d(passages, before.passages, assume_unique=True, return_indices=True)
        matrix[here] = before.matrix[there]
        missing[here] = False
    places = {int(passages[place]): int(place) for place in np.flatnonzero(missing)}
    wanted = sorted(places)
    for start in range(0, len(wanted), _BATCH):
        for number, vector in connection.execute(
            "SELECT number, vector FROM passages WHERE number IN (SELECT value FROM json_each(?))",
            (listed(wanted[start : start + _BATCH]),),
        ):
            matrix[places[number]] = np.frombuffer(vector, dtype=STORED)
    norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
    return Vectors(generation, passages, memories, matrix, norms)
