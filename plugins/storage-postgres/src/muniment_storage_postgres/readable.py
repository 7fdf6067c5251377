"""Every live memory that a search can read, as places in arrays that ascend by the memories' numbers.

The server's answer is one part of it, and each scope that is kept in mind another. No I/O, no formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muniment.ranking import Postings
from muniment_storage_postgres.arrays import Numbers


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the memories, ascending by number, and of each key who of them holds it, by their places here."""

    numbers: Numbers
    lengths: Numbers
    scopes: Numbers
    postings: Sequence[Postings]


@dataclass(frozen=True, slots=True)
class Readable:
    """All of the memories: number, length and scope of each."""

    numbers: Numbers
    lengths: Numbers
    scopes: Numbers

    def in_scope(self, numbers: Numbers, scope: int) -> tuple[Numbers, NDArray[np.bool_]]:
        """Where memories are, and which of them are here and in this scope."""
        places, there = where(self.numbers, numbers)
        return places, there & (self.scopes[places] == scope) if len(self.numbers) else there

    def counted(self, tags: Sequence[Postings]) -> Numbers:
        """How many of these tags each memory holds."""
        counts = np.zeros(len(self.numbers), dtype=np.int64)
        for one in tags:
            counts[one.places] += 1
        return counts


def where(ascending: Numbers, numbers: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
    """The place of each number, and which of them are there."""
    if not len(ascending):
        return np.zeros_like(numbers), np.zeros(len(numbers), dtype=np.bool_)
    places = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
    return places, ascending[places] == numbers


def whole(parts: Sequence[Part]) -> tuple[Readable, Sequence[Postings]]:
    """All parts as one; at least one."""
    if len(parts) == 1:
        (only,) = parts
        return Readable(only.numbers, only.lengths, only.scopes), only.postings
    numbers = np.concatenate([one.numbers for one in parts])
    order = np.argsort(numbers)
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    sizes = [len(one.numbers) for one in parts]
    starts = np.cumsum(sizes) - sizes
    postings = [
        Postings(
            np.concatenate([places[start + one.places] for start, one in zip(starts, of_key, strict=True)]),
            np.concatenate([one.frequencies for one in of_key]),
        )
        for of_key in zip(*(one.postings for one in parts), strict=True)
    ]
    lengths = np.concatenate([one.lengths for one in parts])
    scopes = np.concatenate([one.scopes for one in parts])
    return Readable(numbers[order], lengths[order], scopes[order]), postings
