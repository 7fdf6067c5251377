"""Raw batches of documents as columns: thousands of alike documents decoded at once instead of one by one.

Documents of a query mostly have one layout: the same fields with values of the same lengths. Then a batch is a table of
bytes with a fixed stride, and a column is a slice of it. A batch that has several layouts is decoded as usual. BSON is
specified at bsonspec.org. No I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import bson
import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]

_TEXT, _INT32, _INT64 = 0x02, 0x10, 0x12
_LENGTH = 4
_END = 1


@dataclass(frozen=True, slots=True)
class _Field:
    """Where a value stands in each document: its type, and its bytes."""

    kind: int
    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Documents by column: ``texts``, or ``numbers`` as int64, whichever is asked for."""

    _table: Bytes | None
    _fields: Sequence[_Field]
    _documents: Sequence[dict[str, Any]]

    def texts(self, name: str) -> list[str]:
        """A column of texts."""
        if self._table is None:
            return [one[name] for one in self._documents]
        field = self._field(name)
        size = field.stop - field.start
        whole = self._table[:, field.start : field.stop].tobytes()
        if whole.isascii():
            text = whole.decode("ascii")
            return [text[start : start + size] for start in range(0, len(text), size)]
        return [whole[start : start + size].decode() for start in range(0, len(whole), size)]

    def only(self, name: str) -> str | None:
        """The text that every document has in a column; None where there are several."""
        if self._table is None:
            texts = {one[name] for one in self._documents}
            return texts.pop() if len(texts) == 1 else None
        column = self._cut(self._field(name))
        return column[0].tobytes().decode() if (column == column[0]).all() else None

    def numbers(self, name: str) -> NDArray[np.int64]:
        """A column of integers."""
        if self._table is None:
            return np.array([one[name] for one in self._documents], dtype=np.int64)
        field = self._field(name)
        kind = "<i4" if field.kind == _INT32 else "<i8"
        return self._cut(field).view(kind)[:, 0].astype(np.int64)

    def _cut(self, field: _Field) -> Bytes:
        assert self._table is not None
        return np.ascontiguousarray(self._table[:, field.start : field.stop])

    def _field(self, name: str) -> _Field:
        return next(field for field in self._fields if field.name == name)


async def batches(cursor: AsyncIterator[Any]) -> AsyncIterator[Columns]:
    """The batches of a cursor of ``find_raw_batches``, whose type says that it gives documents.

    The next one is asked for before a batch is handed out, so the server works while the batch is decoded.
    """
    coming = asyncio.ensure_future(anext(cursor, None))
    try:
        while (batch := await coming) is not None:
            coming = asyncio.ensure_future(anext(cursor, None))
            await asyncio.sleep(0)  # the request goes out
            if batch:
                yield columns(batch)
    finally:
        coming.cancel()
        await asyncio.wait((coming,))


def columns(batch: bytes) -> Columns:
    """A batch of at least one document, one behind the other."""
    fields = _layout(batch)
    if fields is not None:
        size = int.from_bytes(batch[:_LENGTH], "little")
        if len(batch) % size == 0:
            table = np.frombuffer(batch, dtype=np.uint8).reshape(-1, size)
            if _is_alike(table, fields):
                return Columns(table, fields, ())
    documents: list[dict[str, Any]] = bson.decode_all(batch)  # pyright: ignore[reportUnknownMemberType]
    return Columns(None, (), documents)


def _is_alike(table: Bytes, fields: Sequence[_Field]) -> bool:
    """Whether every document has the first one's bytes outside its values."""
    start = 0
    for field in fields:
        if not (table[:, start : field.start] == table[0, start : field.start]).all():
            return False
        start = field.stop
    return bool((table[:, start:] == table[0, start:]).all())


def _layout(batch: bytes) -> list[_Field] | None:
    """The fields of the first document; None where one has a type that no column can have, or an empty text."""
    fields = list(_elements(batch))
    return fields if all(field.kind and field.stop > field.start for field in fields) else None


def _elements(document: bytes) -> Iterator[_Field]:
    place, end = _LENGTH, int.from_bytes(document[:_LENGTH], "little") - _END
    while place < end:
        kind = document[place]
        name_end = document.index(0, place + 1)
        name, place = document[place + 1 : name_end].decode(), name_end + 1
        length = int.from_bytes(document[place : place + _LENGTH], "little")
        match kind:
            case _ if kind == _TEXT:
                start, stop, place = place + _LENGTH, place + _LENGTH + length - _END, place + _LENGTH + length
            case _ if kind == _INT32:
                start, stop, place = place, place + 4, place + 4
            case _ if kind == _INT64:
                start, stop, place = place, place + 8, place + 8
            case _:
                yield _Field(0, name, place, place)
                return
        yield _Field(kind, name, start, stop)
