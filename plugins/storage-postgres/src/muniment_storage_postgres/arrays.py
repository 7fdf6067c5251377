"""Arrays of numbers to and from PostgreSQL's binary form as a whole: the driver would take them one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format

Numbers = NDArray[np.int64]

NUMBER = np.dtype([("size", ">i4"), ("value", ">i8")])
SMALL = np.dtype([("size", ">i4"), ("value", ">i4")])
DISTANCE = np.dtype([("size", ">i4"), ("value", ">f8")])
HEADER = 20
"""Bytes before the elements of a one-dimensional array; without elements it has fewer."""
_HEADER = Struct(">iiIii")
_EMPTY = Struct(">iiI")
_ELEMENT = types["int8"]


@dataclass(frozen=True, slots=True)
class BigInts:
    """A parameter of type bigint[]; NumPy's own arrays are vectors here."""

    values: Numbers


def bigints(numbers: Sequence[int]) -> BigInts:
    """Numbers as a parameter."""
    return BigInts(np.array(numbers, dtype=np.int64))


class _Dumper(Dumper):
    format = Format.BINARY
    oid = _ELEMENT.array_oid

    def dump(self, obj: BigInts) -> bytes:
        """The array in binary form."""
        count = len(obj.values)
        if not count:
            return _EMPTY.pack(0, 0, _ELEMENT.oid)
        elements = np.empty(count, dtype=NUMBER)
        elements["size"] = 8
        elements["value"] = obj.values
        return _HEADER.pack(1, 0, _ELEMENT.oid, count, 1) + elements.tobytes()


def register(context: AdaptContext) -> None:
    """Let a connection take BigInts."""
    context.adapters.register_dumper(BigInts, _Dumper)  # pyright: ignore[reportOptionalMemberAccess]


def elements(packed: bytes, element: np.dtype[Any]) -> NDArray[Any]:
    """The elements of an array in binary form, as a view."""
    return np.frombuffer(packed, dtype=element, offset=min(HEADER, len(packed)))["value"]
