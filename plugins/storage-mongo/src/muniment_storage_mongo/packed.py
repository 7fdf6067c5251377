"""Batches of documents as columns: thousands of alike documents decoded at once instead of one by one.

Documents of a query mostly have one layout: the same fields with values of the same lengths. Then a batch is a few
tables of bytes with a fixed stride, and a column is a slice of each. A batch that has several layouts is decoded as
usual. BSON is specified at bsonspec.org. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import bson
import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]

_TEXT, _DOCUMENT, _ARRAY, _BINARY, _INT32, _INT64 = 0x02, 0x03, 0x04, 0x05, 0x10, 0x12
_SIZES: Mapping[int, int] = {0x01: 8, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, _INT32: 4, 0x11: 8, _INT64: 8}
"""Bytes of a value by its type, where it has always as many."""
_COLUMNS = frozenset({_TEXT, _BINARY, _INT32, _INT64})
"""Types that a column can have."""
_LENGTH = 4
_SUBTYPE = 1
_END = 1


@dataclass(frozen=True, slots=True)
class _Field:
    """Where a value stands in its document: its type, and its bytes."""

    kind: int
    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Documents by column: ``texts``, ``numbers`` or ``vectors``, whichever is asked for."""

    _tables: Sequence[Bytes]
    _fields: Sequence[_Field]
    _documents: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, documents: Sequence[Mapping[str, Any]]) -> Columns:
        """Documents that are decoded already."""
        return cls((), (), documents)

    def texts(self, name: str) -> list[str]:
        """A column of texts."""
        if not self._tables:
            return [one[name] for one in self._documents]
        field = self._field(name)
        size = field.stop - field.start
        whole = b"".join([table[:, field.start : field.stop].tobytes() for table in self._tables])
        if whole.isascii():
            text = whole.decode("ascii")
            return [text[start : start + size] for start in range(0, len(text), size)]
        return [whole[start : start + size].decode() for start in range(0, len(whole), size)]

    def only(self, name: str) -> str | None:
        """The text that every document has in a column; None where there are several."""
        if not self._tables:
            texts = {one[name] for one in self._documents}
            return texts.pop() if len(texts) == 1 else None
        column = self._cut(self._field(name))
        return column[0].tobytes().decode() if (column == column[0]).all() else None

    def numbers(self, name: str) -> NDArray[np.int64]:
        """A column of integers."""
        if not self._tables:
            return np.array([one[name] for one in self._documents], dtype=np.int64)
        field = self._field(name)
        kind = "<i4" if field.kind == _INT32 else "<i8"
        return self._cut(field).view(kind)[:, 0].astype(np.int64)

    def vectors(self, name: str) -> NDArray[np.float32]:
        """A column of packed float32 vectors of one length; shape ``(documents, dimensions)``."""
        if self._tables:
            return self._cut(self._field(name)).view("<f4").astype(np.float32, copy=False)
        packed = b"".join([one[name] for one in self._documents])
        return np.frombuffer(packed, dtype="<f4").reshape(len(self._documents), -1).astype(np.float32, copy=False)

    def _cut(self, field: _Field) -> Bytes:
        return np.concatenate([table[:, field.start : field.stop] for table in self._tables])

    def _field(self, name: str) -> _Field:
        return next(field for field in self._fields if field.name == name)


def reply(cursor: bytes | memoryview) -> tuple[Columns | None, int]:
    """The batch in the ``cursor`` of a server's reply, None where it is empty, and the cursor's id, 0 after the last.

    ``cursor`` is the document as BSON.
    """
    view = memoryview(cursor)
    found = {field.name: field for field in _elements(view)}
    batch, identity = found.get("firstBatch") or found["nextBatch"], found["id"]
    documents = view[batch.start : batch.stop]
    number = int.from_bytes(view[identity.start : identity.stop], "little", signed=True)
    return (_columns(documents) if len(documents) > _LENGTH + _END else None), number


def _columns(array: memoryview) -> Columns:
    """The documents of an array of at least one."""
    first = next(_elements(array))
    fields = _layout(array[first.start : first.stop])
    tables = _tables(array, first.stop - first.start) if fields else None
    if fields and tables and all(_is_alike(table, tables[0][0], fields) for table in tables):
        return Columns(tables, fields, ())
    documents: dict[str, Any] = bson.decode(bytes(array))  # pyright: ignore[reportUnknownMemberType]
    return Columns.of(list(documents.values()))


def _tables(array: memoryview, size: int) -> list[Bytes] | None:
    """The documents of an array, where each has ``size`` bytes; None where one has not.

    The elements of an array are named 0, 1, 2 and so on, so those with as many digits have one stride.
    """
    whole = np.frombuffer(array, dtype=np.uint8)
    place, end = _LENGTH, len(whole) - _END
    tables: list[Bytes] = []
    digits = 1
    while place < end:
        head = 1 + digits + 1
        stride = head + size
        count = min(10**digits - (10 ** (digits - 1) if digits > 1 else 0), (end - place) // stride)
        if not count:
            return None
        table = whole[place : place + count * stride].reshape(count, stride)
        sized = table[:, head : head + _LENGTH] == np.frombuffer(size.to_bytes(_LENGTH, "little"), dtype=np.uint8)
        if not ((table[:, 0] == _DOCUMENT).all() and (table[:, head - 1] == 0).all() and sized.all()):
            return None
        tables.append(table[:, head:])
        place += count * stride
        digits += 1
    return tables


def _is_alike(table: Bytes, first: Bytes, fields: Sequence[_Field]) -> bool:
    """Whether every document has the first one's bytes outside its values."""
    start = 0
    for field in fields:
        if not (table[:, start : field.start] == first[start : field.start]).all():
            return False
        start = field.stop
    return bool((table[:, start:] == first[start:]).all())


def _layout(document: memoryview) -> list[_Field] | None:
    """The fields of a document; None where one has a type that no column can have, or an empty value."""
    fields = list(_elements(document))
    return fields if all(field.kind in _COLUMNS and field.stop > field.start for field in fields) else None


def _elements(document: memoryview) -> Iterator[_Field]:
    """The fields of a document, up to the first one of a type whose size is not known, which is the last."""
    place, end = _LENGTH, int.from_bytes(document[:_LENGTH], "little") - _END
    while place < end:
        kind = document[place]
        name_end = place + 1
        while document[name_end]:
            name_end += 1
        name, place = bytes(document[place + 1 : name_end]).decode(), name_end + 1
        length = int.from_bytes(document[place : place + _LENGTH], "little")
        if kind == _TEXT:
            start, stop, place = place + _LENGTH, place + _LENGTH + length - _END, place + _LENGTH + length
        elif kind == _BINARY:
            start = place + _LENGTH + _SUBTYPE
            stop = place = start + length
        elif kind in (_DOCUMENT, _ARRAY):
            start, stop = place, place + length
            place = stop
        elif kind in _SIZES:
            start, stop = place, place + _SIZES[kind]
            place = stop
        else:
            yield _Field(0, name, place, end)
            return
        yield _Field(kind, name, start, stop)
