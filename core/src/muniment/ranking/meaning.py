"""The meaning ranker: the cosine of a query with a memory's best passage, for what scores in the process.

A cosine is computed twice. An estimate in float32, one product over all passages, is off by less than ``margin``; what
could belong to the result within that is computed again in float64, row by row, so that equal vectors have equal
cosines to the last bit, wherever they stand and whatever stands beside them.

What has no direction has no score: a vector of zeros, or one with a number that is not finite, as a passage or as a
query. Its cosine is -inf, never NaN, so it decides no order and takes nothing from a memory's other passages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float32]
AnyFloats: TypeAlias = NDArray[np.floating[Any]]

_UNIT: Final = 2.0**-24
"""What float32 rounds by, relatively."""
_SHORTEST: Final = 1e-15
_LONGEST: Final = 1e15
"""Between these lengths a product in float32 neither vanishes nor overflows; what is beyond is not estimated."""


def margin(dimensions: int) -> float:
    """What an estimate is off by at most.

    A sum of n products in float32 is off by at most n units of the sum of their amounts, in whatever order they are
    added up (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1), which is no more than the
    product of the lengths. A length adds half of that, and rounding the query and the quotient a few units.
    """
    return 2.0 * _UNIT * (dimensions + 8)


def lengths_of(vectors: Matrix) -> Matrix:
    """The length of each row, as an estimate needs it; shape ``(passages,)``."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(np.einsum("ij,ij->i", vectors, vectors))


def cosines(vectors: AnyFloats, query: AnyFloats) -> Floats:
    """The exact cosine of each row with the query, -inf where there is none; shape ``(passages,)``.

    The sums run along the rows: a product of a matrix with a vector adds up its last rows in another order.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float64)
    wanted = np.asarray(query, dtype=np.float64)
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows)) * np.sqrt(np.einsum("j,j->", wanted, wanted))
        found = np.clip(np.einsum("ij,j->i", rows, wanted) / lengths, -1.0, 1.0)
    return np.where(np.isnan(found), -np.inf, found)


@dataclass(frozen=True, slots=True)
class PassageMatrix:
    """The passages of some memories: ``vectors`` has shape ``(passages, dimensions)``, ``lengths`` are ``lengths_of``
    them, and ``owners`` say whose each is, a place among ``memories`` memories, or -1 for nobody's."""

    vectors: Matrix
    lengths: Matrix
    owners: Numbers
    memories: int

    def compared(self, query: AnyFloats) -> Comparison:
        """All passages beside a query."""
        found = self._estimates(query)
        return Comparison(self, query, found, self.best(found, self.owners))

    def best(self, found: Floats, owners: Numbers) -> Floats:
        """The highest that was found for each memory, -inf where it has none; shape ``(memories,)``."""
        best = np.full(self.memories + 1, -np.inf)  # the last place is nobody's
        np.maximum.at(best, owners, found)
        return best[:-1]

    def _estimates(self, query: AnyFloats) -> Floats:
        if not len(self.owners):
            return np.zeros(0)
        wanted = np.asarray(query, dtype=np.float64)
        with np.errstate(all="ignore"):
            unit = (wanted / np.sqrt((wanted * wanted).sum())).astype(np.float32)
            # Not a product of BLAS, which has a thread on each core that waits for the next one by spinning.
            found = (np.einsum("ij,j->i", self.vectors, unit) / self.lengths).astype(np.float64)
        usual = (self.lengths > _SHORTEST) & (self.lengths < _LONGEST)
        if not usual.all():
            others = np.flatnonzero(~usual)
            found[others] = cosines(self.vectors[others], query)
        return np.where(np.isnan(found), -np.inf, found)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Passages beside a query: ``found`` is the cosine of each passage within ``margin``, shape ``(passages,)``, and
    ``estimates`` that of each memory's best one, -inf where there is none, shape ``(memories,)``."""

    matrix: PassageMatrix
    query: AnyFloats
    found: Floats
    estimates: Floats

    def exact(self, places: Numbers) -> Floats:
        """The exact cosine of the best passage of each memory at ``places``, -inf where it has none.

        A passage that is estimated below its memory's best by more than both may be off is not the best one.
        """
        least = np.full(self.matrix.memories + 1, np.inf)  # the last place is nobody's
        least[places] = self.estimates[places] - 2 * margin(len(self.query))
        rows = np.flatnonzero(self.found >= least[self.matrix.owners])
        owners = self.matrix.owners[rows]
        found = cosines(self.matrix.vectors[rows], self.query) if len(rows) else np.zeros(0)
        return self.matrix.best(found, owners)[places]
