"""Short lists of texts and of vectors as parameters, packed as a whole: the driver looks at each element by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format
from psycopg.types import TypeInfo

from muniment.ports import Vector

_HEADER = Struct(">iiIii")
_EMPTY = Struct(">iiI")
_SIZE = Struct(">i")
_VECTOR = Struct(">iHH")
_TEXT = types["text"]


@dataclass(frozen=True, slots=True)
class Texts:
    """A parameter of type text[], of ASCII alone, which is the same in every encoding of a client."""

    values: Sequence[str]


@dataclass(frozen=True, slots=True)
class VectorList:
    """A parameter of type vector[]."""

    values: Sequence[Vector]


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = _TEXT.array_oid

    def dump(self, obj: Texts) -> bytes:
        """The array in binary form."""
        parts = [_head(len(obj.values), _TEXT.oid)]
        for value in obj.values:
            encoded = value.encode("ascii")
            parts += (_SIZE.pack(len(encoded)), encoded)
        return b"".join(parts)


class _VectorListDumper(Dumper):
    format = Format.BINARY
    element = 0

    def dump(self, obj: VectorList) -> bytes:
        """The array in binary form; each vector as pgvector has it, its dimensions and a zero before the numbers."""
        parts = [_head(len(obj.values), self.element)]
        for value in obj.values:
            parts += (_VECTOR.pack(4 + 4 * len(value), len(value), 0), value.astype(">f4").tobytes())
        return b"".join(parts)


def register(context: AdaptContext, vector: TypeInfo) -> None:
    """Let a connection take both; ``vector`` is the type of its database."""
    numbered = type("", (_VectorListDumper,), {"oid": vector.array_oid, "element": vector.oid})
    context.adapters.register_dumper(Texts, _TextsDumper)  # pyright: ignore[reportOptionalMemberAccess]
    context.adapters.register_dumper(VectorList, numbered)  # pyright: ignore[reportOptionalMemberAccess]


def _head(count: int, element: int) -> bytes:
    return _HEADER.pack(1, 0, element, count, 1) if count else _EMPTY.pack(0, 0, element)
