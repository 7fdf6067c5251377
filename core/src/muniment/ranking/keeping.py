"""What a process keeps in mind to rank by: matrices that grow at their end, and values up to a budget in bytes.

A storage that scores vectors in the process keeps those of a scope, and adds what has changed since; whether what is
kept is what a snapshot holds is the storage's to know.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Generic, Protocol, TypeVar

import numpy as np

from muniment.ranking.meaning import Matrix

_SPARE = 1.25


class GrowingMatrix:
    """A matrix that grows at its end. Who holds the first ``used`` rows may add to them without copying."""

    def __init__(self, rows: Matrix) -> None:
        self.array = rows
        self.used = len(rows)

    def with_rows(self, count: int, rows: Matrix) -> GrowingMatrix:
        """A matrix that begins with the first ``count`` rows of this one and goes on with ``rows``."""
        if not len(rows):
            return self
        if not count:
            return GrowingMatrix(rows)
        wanted = count + len(rows)
        target = self
        if count != self.used or wanted > len(self.array):
            array = np.empty((int(wanted * _SPARE), self.array.shape[1]), dtype=np.float32)
            array[:count] = self.array[:count]
            target = GrowingMatrix(array)
        target.array[count:wanted] = rows
        target.used = wanted
        return target


class Sized(Protocol):
    """What takes room."""

    @property
    def size(self) -> int:
        """Bytes, about."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Sized)


class Kept(Generic[K, V]):
    """The values that were used last, up to a budget in bytes. One that is larger is not kept."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._used = 0
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """A value, which counts as used now."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def now(self) -> Mapping[K, V]:
        """What is kept at this moment; later changes are not in it."""
        return dict(self._values)

    def put(self, key: K, value: V) -> None:
        """Keep a value in the place of the one with its key; those that were not used for longest make room."""
        self.drop(key)
        if value.size > self.budget:
            return
        self._values[key] = value
        self._used += value.size
        while self._used > self.budget:
            _, oldest = self._values.popitem(last=False)
            self._used -= oldest.size

    def drop(self, key: K) -> None:
        """Forget a value."""
        known = self._values.pop(key, None)
        self._used -= known.size if known else 0
