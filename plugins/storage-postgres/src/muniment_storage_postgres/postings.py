"""The server's packed answers of a search: who is readable, who holds a word or a tag, and how near passages are.

A memory's words are in the batch of postings that its entry names, and nowhere else: what other batches say of it was
true of an earlier text. No I/O, no formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muniment.ranking import Postings
from muniment_storage_postgres.arrays import DISTANCE, NUMBER, SMALL, Numbers, elements
from muniment_storage_postgres.keys import FREQUENCY, FREQUENCY_BITS, PACKED
from muniment_storage_postgres.readable import Part, Readable, where
from muniment_storage_postgres.records import Row

LENGTH_BITS = 20
LENGTH = (1 << LENGTH_BITS) - 1
"""The lower bits of a packed number are a length or a count; 64,000 characters have at most some 200,000 words."""
_NOWHERE = 0
"""The batch of a memory that is in none."""
_NOTHING = np.zeros(0, dtype=np.int64)
_READABLE, _UNSETTLED = 0, -1
"""Places of ``holders``; those above are of keys."""


def part(answers: Sequence[Row], keys: Sequence[int]) -> Part:
    """The memories of the scopes that ``holders`` was asked for, and who holds each key."""
    rows = [row[1:] for row in answers if row[0] == _READABLE]
    packed = _joined([elements(row[1], NUMBER) for row in rows])
    batches = [elements(row[2], SMALL) for row in rows]
    scopes = _joined([np.full(len(one), row[0]) for row, one in zip(rows, batches, strict=True)])
    order = np.argsort(packed)
    numbers = packed[order] >> LENGTH_BITS
    postings = _by_key(answers, numbers, _joined(batches)[order], keys)
    return Part(numbers, packed[order] & LENGTH, scopes[order], postings)


def _by_key(answers: Sequence[Row], numbers: Numbers, batches: Numbers, keys: Sequence[int]) -> list[Postings]:
    """Of batches from places 1 and on of ``holders``, of others from place -1."""
    settled = {row[0]: _parts([row]) for row in answers if row[0] > _READABLE}
    loose, memories = _parts([row for row in answers if row[0] == _UNSETTLED])
    loose_keys = loose >> FREQUENCY_BITS
    entries, holders, of_batches = list[Numbers](), list[Numbers](), list[Numbers]()
    for place, key in enumerate(keys, start=1):
        held, of_batch = settled.get(place, (_NOTHING, _NOTHING))
        alone = np.flatnonzero(loose_keys == key)
        entries += held, loose[alone]
        holders += held >> FREQUENCY_BITS, memories[alone]
        of_batches += of_batch, np.full(len(alone), _NOWHERE)
    places, there = where(numbers, _joined(holders))
    there[there] = batches[places[there]] == _joined(of_batches)[there]
    frequencies = _joined(entries) & FREQUENCY
    ends = np.cumsum([len(one) for one in entries])[1::2].tolist()
    of_key = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    return [Postings(places[one][there[one]], frequencies[one][there[one]]) for one in of_key]


def _parts(rows: Sequence[Row]) -> tuple[Numbers, Numbers]:
    """All that is packed in rows of parts, and of each the number of the part that it is of."""
    packed = np.frombuffer(b"".join([row[2] for row in rows]), dtype=PACKED).astype(np.int64)
    parts = _joined([elements(row[3], NUMBER) for row in rows])
    return packed, np.repeat(parts >> LENGTH_BITS, parts & LENGTH)


def unsettled(answers: Sequence[Row], least: int) -> list[int]:
    """The scopes of which at least so many memories are in no batch."""
    rows = [row for row in answers if row[0] == _UNSETTLED]
    return [scope for _, scope, _, memories in rows if len(elements(memories, NUMBER)) >= least]


def passages(compared: Sequence[Row]) -> int:
    """How many passages were compared."""
    return sum(len(elements(memories, NUMBER)) for memories, _ in compared)


def counts(compared: Sequence[Row], among: Readable) -> Mapping[int, int]:
    """How many passages of each scope were compared."""
    numbers = _joined([elements(memories, NUMBER) for memories, _ in compared])
    if not len(numbers):
        return {}
    scopes, found = np.unique(among.scopes[np.searchsorted(among.numbers, numbers)], return_counts=True)
    return dict(zip(scopes.tolist(), found.tolist(), strict=True))


def nearest(compared: Sequence[Row], among: Readable) -> NDArray[np.float64]:
    """What was compared as each memory's best cosine, -inf where it has none."""
    best = np.full(len(among.numbers), -np.inf)
    for memories, distances in compared:
        cosines = 1.0 - elements(distances, DISTANCE).astype(np.float64)
        places = np.searchsorted(among.numbers, elements(memories, NUMBER))
        comparable = ~np.isnan(cosines)
        np.maximum.at(best, places[comparable], cosines[comparable])
    return best


def _joined(parts: Sequence[NDArray[Any]]) -> Numbers:
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else _NOTHING
