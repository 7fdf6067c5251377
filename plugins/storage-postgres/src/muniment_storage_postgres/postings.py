"""Packed answers of a search: who is readable, and who holds a word or a tag.

Memories are places in arrays that are ordered by the memories' numbers. A memory's words are in the batch of postings
that its entry names, and nowhere else: what other batches say of it was true of an earlier text. No I/O, no formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muniment.ranking import Postings
from muniment_storage_postgres.arrays import DISTANCE, NUMBER, SMALL, Numbers, elements
from muniment_storage_postgres.keys import FREQUENCY, FREQUENCY_BITS, PACKED
from muniment_storage_postgres.records import Row

_LENGTH_BITS = 20
_LENGTH = (1 << _LENGTH_BITS) - 1
"""The lower bits of a packed number are a length or a count; 64,000 characters have at most some 200,000 words."""
_NOWHERE = 0
"""The batch of a memory that is in none."""
_NOTHING = np.zeros(0, dtype=np.int64)
_READABLE, _DISTANCES, _UNSETTLED = 0, -1, -2
"""Places of ``scores``; those above are of keys."""


@dataclass(frozen=True)
class Readable:
    """Every live memory of the readable scopes: number, length, scope, batch, and whether the selector takes it."""

    numbers: Numbers
    lengths: Numbers
    scopes: Numbers
    batches: Numbers
    selected: NDArray[np.bool_]

    def in_batches(self, numbers: Numbers, batches: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
        """Where memories are, and which of them are here and in these batches."""
        return self._where(numbers, self.batches, batches)

    def in_scope(self, numbers: Numbers, scope: int) -> tuple[Numbers, NDArray[np.bool_]]:
        """Where memories are, and which of them are here and in this scope."""
        return self._where(numbers, self.scopes, scope)

    def _where(self, numbers: Numbers, column: Numbers, wanted: Numbers | int) -> tuple[Numbers, NDArray[np.bool_]]:
        if not len(self.numbers):
            return np.zeros_like(numbers), np.zeros(len(numbers), dtype=np.bool_)
        places = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return places, (self.numbers[places] == numbers) & (column[places] == wanted)


def readable(answers: Sequence[Row], selected: Sequence[int]) -> Readable:
    """Place 0 of ``scores``; the selector takes the ``selected`` scopes."""
    rows = [(scope, packed, batches) for place, scope, packed, batches in answers if place == _READABLE]
    packed = _joined([elements(row[1], NUMBER) for row in rows])
    batches = [elements(row[2], SMALL) for row in rows]
    scopes = _joined([np.full(len(one), row[0]) for row, one in zip(rows, batches, strict=True)])
    order = np.argsort(packed)
    packed, scopes = packed[order], scopes[order]
    return Readable(
        numbers=packed >> _LENGTH_BITS,
        lengths=packed & _LENGTH,
        scopes=scopes,
        batches=_joined(batches)[order],
        selected=np.isin(scopes, selected),
    )


def by_key(answers: Sequence[Row], among: Readable, keys: Sequence[int]) -> list[Postings]:
    """The readable memories that hold each key: of batches from places 1 and on of ``scores``, of others from place
    -2."""
    settled = {row[0]: _parts([row]) for row in answers if row[0] > _READABLE}
    loose, memories = _parts([row for row in answers if row[0] == _UNSETTLED])
    loose_keys = loose >> FREQUENCY_BITS
    entries, numbers, batches = list[Numbers](), list[Numbers](), list[Numbers]()
    for place, key in enumerate(keys, start=1):
        held, of_batch = settled.get(place, (_NOTHING, _NOTHING))
        alone = np.flatnonzero(loose_keys == key)
        entries += held, loose[alone]
        numbers += held >> FREQUENCY_BITS, memories[alone]
        batches += of_batch, np.full(len(alone), _NOWHERE)
    places, there = among.in_batches(_joined(numbers), _joined(batches))
    frequencies = _joined(entries) & FREQUENCY
    ends = np.cumsum([len(one) for one in entries])[1::2].tolist()
    of_key = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    return [Postings(places[one][there[one]], frequencies[one][there[one]]) for one in of_key]


def _parts(rows: Sequence[Row]) -> tuple[Numbers, Numbers]:
    """All that is packed in rows of parts, and of each the number of the part that it is of."""
    packed = np.frombuffer(b"".join([row[2] for row in rows]), dtype=PACKED).astype(np.int64)
    parts = _joined([elements(row[3], NUMBER) for row in rows])
    return packed, np.repeat(parts >> _LENGTH_BITS, parts & _LENGTH)


def unsettled(answers: Sequence[Row], least: int) -> list[int]:
    """The scopes of which at least so many memories are in no batch."""
    rows = [row for row in answers if row[0] == _UNSETTLED]
    return [scope for _, scope, _, memories in rows if len(elements(memories, NUMBER)) >= least]


def passages(answers: Sequence[Row]) -> int:
    """How many passages there are at place -1."""
    return sum(len(elements(memories, NUMBER)) for place, _, memories, _ in answers if place == _DISTANCES)


def compared(answers: Sequence[Row], among: Readable) -> Mapping[int, int]:
    """How many passages of each scope there are at place -1."""
    numbers = _joined([elements(memories, NUMBER) for place, _, memories, _ in answers if place == _DISTANCES])
    if not len(numbers):
        return {}
    scopes, counts = np.unique(among.scopes[np.searchsorted(among.numbers, numbers)], return_counts=True)
    return dict(zip(scopes.tolist(), counts.tolist(), strict=True))


def nearest(answers: Sequence[Row], among: Readable) -> NDArray[np.float64]:
    """Place -1 of ``scores`` as each memory's best cosine, -inf where it has none."""
    best = np.full(len(among.numbers), -np.inf)
    for place, _, memories, distances in answers:
        if place != _DISTANCES:
            continue
        cosines = 1.0 - elements(distances, DISTANCE).astype(np.float64)
        places = np.searchsorted(among.numbers, elements(memories, NUMBER))
        comparable = ~np.isnan(cosines)
        np.maximum.at(best, places[comparable], cosines[comparable])
    return best


def holding_all(among: Readable, tags: Sequence[Postings]) -> NDArray[np.bool_]:
    """The selected memories that hold every one of these tags."""
    return among.selected & (counted(among, tags) == len(tags))


def counted(among: Readable, tags: Sequence[Postings]) -> Numbers:
    """How many of these tags each memory holds."""
    counts = np.zeros(len(among.numbers), dtype=np.int64)
    for one in tags:
        counts[one.places] += 1
    return counts


def _joined(parts: Sequence[NDArray[Any]]) -> Numbers:
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else _NOTHING
