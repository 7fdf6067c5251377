"""Packed answers of a search: who is readable, and who holds a term or a tag.

Memories are places in arrays that are ordered by the memories' numbers. No I/O, and no formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muniment.ranking import Postings
from muniment_storage_postgres.records import Row

_BITS = 20
"""The lower bits of a packed number; a length and a frequency are at most a memory's 64,000 characters."""
_HEADER = 20
"""Bytes before the elements of a one-dimensional array in PostgreSQL's binary form; without elements it has fewer."""
_NUMBER = np.dtype([("size", ">i4"), ("value", ">i8")])
_DISTANCE = np.dtype([("size", ">i4"), ("value", ">f8")])

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Readable:
    """Every live memory of the readable scopes: number, length, and whether the selector takes its scope."""

    numbers: Numbers
    lengths: Numbers
    selected: NDArray[np.bool_]


def tag_key(tag: str) -> str:
    """The key of a tag's postings; terms hold no space."""
    return f" {tag}"


def readable(answers: Sequence[Row]) -> Readable:
    """Place 0 of ``scores``."""
    parts = [(selected, *_unpacked(packed)) for place, selected, packed, _ in answers if place == 0]
    numbers = _joined([part[1] for part in parts])
    order = np.argsort(numbers, kind="stable")
    return Readable(
        numbers=numbers[order],
        lengths=_joined([part[2] for part in parts])[order],
        selected=_joined([np.full(len(part[1]), part[0], dtype=np.int64) for part in parts])[order] > 0,
    )


def by_key(answers: Sequence[Row], among: Readable, keys: int) -> list[Postings]:
    """Places 1 and on of ``scores``, one of each key."""
    parts: list[list[tuple[Numbers, Numbers]]] = [[] for _ in range(keys)]
    for place, _, packed, _ in answers:
        if place > 0:
            parts[int(place) - 1].append(_unpacked(packed))
    return [
        Postings(
            places=np.searchsorted(among.numbers, _joined([numbers for numbers, _ in of_key])),
            frequencies=_joined([counts for _, counts in of_key]),
        )
        for of_key in parts
    ]


def passages(answers: Sequence[Row]) -> int:
    """How many passages there are at place -1."""
    return sum(len(_elements(memories, _NUMBER)) for place, _, memories, _ in answers if place < 0)


def nearest(answers: Sequence[Row], among: Readable) -> NDArray[np.float64]:
    """Place -1 of ``scores`` as each memory's best cosine, -inf where it has none."""
    best = np.full(len(among.numbers), -np.inf)
    for place, _, memories, distances in answers:
        if place >= 0:
            continue
        cosines = 1.0 - _elements(distances, _DISTANCE).astype(np.float64)
        places = np.searchsorted(among.numbers, _elements(memories, _NUMBER))
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


def _unpacked(packed: bytes) -> tuple[Numbers, Numbers]:
    """The upper and the lower parts of an array of bigint in binary form."""
    values = _elements(packed, _NUMBER).astype(np.int64)
    return values >> _BITS, values & ((1 << _BITS) - 1)


def _elements(packed: bytes, element: np.dtype[Any]) -> NDArray[Any]:
    """An array in PostgreSQL's binary form."""
    return np.frombuffer(packed, dtype=element, offset=min(_HEADER, len(packed)))["value"]


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
