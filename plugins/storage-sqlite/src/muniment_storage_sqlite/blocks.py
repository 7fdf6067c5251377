"""What a search computes with, kept in memory: the memories and the vectors of each scope.

A block is what a scope holds at one generation. It is looked for by the generation that the search's own snapshot has,
so it cannot be stale, whichever process wrote. A new block takes over the vectors of the one before it, since a
passage's row never changes and its number is never used again; only what is new is read. One search makes a block, and
whoever needs the same one waits for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from muniment.ranking import PassageMatrix, lengths_of
from muniment_storage_sqlite.audiences import listed
from muniment_storage_sqlite.entries import STORED

KEPT: Final = 256_000_000
"""How many bytes of blocks are kept; those of the scopes that were searched longest ago go. The last one always stays,
since a scope that is larger would else be read anew by each search."""
_OBJECTS: Final = 1_000
"""What a block takes in bytes besides its numbers."""
_BATCH: Final = 500
"""How many vectors are read by one statement."""

Numbers = NDArray[np.int64]
Key = tuple[int, int | None]
"""The numbers of a scope and of a space; no space where the memories themselves are meant."""


@dataclass(frozen=True, slots=True)
class Memories:
    """A scope's live memories: their ascending numbers, and the ``lengths`` of their texts in words."""

    generation: int
    numbers: Numbers
    lengths: Numbers

    @property
    def size(self) -> int:
        """Bytes, about."""
        return _OBJECTS + self.numbers.nbytes + self.lengths.nbytes

    def places(self, numbers: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
        """The places of the live memories among ``numbers``, and which of them these are."""
        return places(self.numbers, numbers)


@dataclass(frozen=True, slots=True)
class Vectors:
    """A scope's passages in one space, by ascending numbers; their owners are places among its live memories."""

    generation: int
    numbers: Numbers
    passages: PassageMatrix

    @property
    def size(self) -> int:
        """Bytes, about."""
        rows = (self.numbers, self.passages.vectors, self.passages.lengths, self.passages.owners)
        return _OBJECTS + sum(one.nbytes for one in rows)


Block = TypeVar("Block", Memories, Vectors)


class Blocks:
    """The blocks that searches of one storage share, from all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._kept: OrderedDict[Key, Memories | Vectors] = OrderedDict()
        self._bytes = 0

    def memories(self, connection: Connection, scope: int, generation: int) -> Memories:
        """A scope's live memories at ``generation``, which is the one of the connection's snapshot."""

        def made(_before: Memories | None) -> Memories:
            numbers, words = fetch(
                connection, "SELECT number, words FROM memories WHERE scope = ? AND deleted = 0", (scope,)
            )
            order = np.argsort(numbers)
            return Memories(generation, numbers[order], words[order])

        return self._block((scope, None), generation, Memories, made)

    def vectors(self, connection: Connection, scope: int, memories: Memories, space: int, dimensions: int) -> Vectors:
        """The passages in a space of a scope whose live memories, in the connection's snapshot, are ``memories``."""

        def made(before: Vectors | None) -> Vectors:
            return _read(connection, scope, memories, space, dimensions, before)

        return self._block((scope, space), memories.generation, Vectors, made)

    def _block(self, key: Key, generation: int, kind: type[Block], make: Callable[[Block | None], Block]) -> Block:
        """The block that is kept, or one that is made of the one before it by one thread at a time."""
        known = self._kept_as(key, kind)
        if known is not None and known.generation == generation:
            return known
        with self._making:
            known = self._kept_as(key, kind)
            if known is not None and known.generation == generation:
                return known
            return self._put(key, make(known))

    def _kept_as(self, key: Key, kind: type[Block]) -> Block | None:
        with self._lock:
            known = self._kept.get(key)
            if not isinstance(known, kind):
                return None
            self._kept.move_to_end(key)
            return known

    def _put(self, key: Key, block: Block) -> Block:
        with self._lock:
            replaced = self._kept.get(key)
            if replaced is not None and replaced.generation > block.generation:
                return block  # of a search whose snapshot is older
            self._kept[key] = block
            self._kept.move_to_end(key)
            self._bytes += block.size - (replaced.size if replaced else 0)
            while self._bytes > KEPT and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.size
        return block


def places(ascending: Numbers, numbers: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    """Where those of ``numbers`` are that are among ``ascending`` ones, and which these are."""
    at = np.searchsorted(ascending, numbers)
    there = at < len(ascending)
    there[there] = ascending[at[there]] == numbers[there]
    return at[there], there


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
    connection: Connection, scope: int, memories: Memories, space: int, dimensions: int, before: Vectors | None
) -> Vectors:
    numbers, of_memories = fetch(
        connection, "SELECT number, memory FROM passages WHERE scope = ? AND space = ?", (scope, space)
    )
    order = np.argsort(numbers)
    numbers, of_memories = numbers[order], of_memories[order]
    vectors = np.empty((len(numbers), dimensions), dtype=np.float32)
    missing = np.ones(len(numbers), dtype=np.bool_)
    if before is not None:
        _, here, there = np.intersect1d(numbers, before.numbers, assume_unique=True, return_indices=True)
        vectors[here] = before.passages.vectors[there]
        missing[here] = False
    places = {int(numbers[place]): int(place) for place in np.flatnonzero(missing)}
    wanted = sorted(places)
    for start in range(0, len(wanted), _BATCH):
        for number, vector in connection.execute(
            "SELECT number, vector FROM passages WHERE number IN (SELECT value FROM json_each(?))",
            (listed(wanted[start : start + _BATCH]),),
        ):
            vectors[places[number]] = np.frombuffer(vector, dtype=STORED)
    owners = np.full(len(numbers), -1, dtype=np.int64)
    found, live = memories.places(of_memories)
    owners[live] = found
    passages = PassageMatrix(vectors, lengths_of(vectors), owners, len(memories.numbers))
    return Vectors(memories.generation, numbers, passages)
