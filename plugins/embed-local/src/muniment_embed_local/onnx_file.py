"""What an ONNX file takes, gives and is made of, read without a library for it and without its weights.

Owns where a model's file lies and the few fields of the format (onnx.proto of the ONNX project) that say whether the
engine can use it. What these mean for a model's vectors is ``recipe``'s.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

PLACES: Final = ("onnx/model.onnx", "model.onnx")
"""Where a model's directory may have its file, by preference; the first is the model hub's layout."""
FLOAT: Final = 1
"""The element type of float32, as TensorProto.DataType numbers it."""

_DOUBLE, _INT32, _INT64, _BOOL = 11, 6, 7, 9
_WHOLE: Final = frozenset({FLOAT, _DOUBLE, _INT32, _INT64, _BOOL})
_MODEL_GRAPH: Final = 7
_INITIALIZER, _INPUT, _OUTPUT = 5, 11, 12
_TENSOR_TYPE, _TENSOR_NAME = 2, 8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Damaged(ValueError):
    """The bytes are no ONNX model, or end too early."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output: its element type as a number, and how many dimensions it has."""

    element: int
    rank: int


@dataclass(frozen=True, slots=True)
class Graph:
    """The graph of a file. ``reduced`` says that weights are kept in fewer bits than float32 has."""

    inputs: frozenset[str]
    outputs: dict[str, Output]
    reduced: bool


class Part(NamedTuple):
    """A message's bytes in the file, from ``start`` to before ``end``.

    Places and not a view of them: a view that an exception keeps alive would forbid closing the file's map.
    """

    data: mmap.mmap
    start: int
    end: int


def find(directory: Path) -> Path | None:
    """The ONNX file of a model's directory."""
    return next((file for place in PLACES if (file := directory / place).is_file()), None)


def read(file: Path) -> Graph:
    """The file's graph. Raises Damaged, OSError."""
    with file.open("rb") as opened:
        try:
            mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise Damaged("it is empty") from error
        with mapped:
            return _graph(Part(mapped, 0, len(mapped)))


def _graph(part: Part) -> Graph:
    inputs: set[str] = set()
    outputs: dict[str, Output] = {}
    weights: set[str] = set()
    elements: set[int] = set()
    for graph in _messages(part, _MODEL_GRAPH):
        for number, value in _fields(graph):
            if number == _INITIALIZER:
                name, element = _tensor(_message(value))
                weights.add(name)
                elements.add(element)
            elif number == _INPUT:
                inputs.add(_value(_message(value))[0])
            elif number == _OUTPUT:
                name, output = _value(_message(value))
                outputs[name] = output
    if not outputs:
        raise Damaged("it has no graph")
    return Graph(frozenset(inputs - weights), outputs, reduced=not elements <= _WHOLE)


def _tensor(part: Part) -> tuple[str, int]:
    """The name and the element type of a TensorProto."""
    name, element = "", FLOAT
    for number, value in _fields(part):
        if number == _TENSOR_NAME:
            name = _text(_message(value))
        elif number == _TENSOR_TYPE and isinstance(value, int):
            element = value
    return name, element


def _value(part: Part) -> tuple[str, Output]:
    """The name of a ValueInfoProto, and what it says of a tensor: ValueInfoProto.type.tensor_type."""
    name, element, rank = "", 0, 0
    for number, value in _fields(part):
        if number == 1:
            name = _text(_message(value))
        elif number == 2:
            for tensor in _messages(_message(value), 1):
                for field, inner in _fields(tensor):
                    if field == 1 and isinstance(inner, int):
                        element = inner
                    elif field == 2:
                        rank = sum(1 for _ in _messages(_message(inner), 1))
    return name, Output(element, rank)


def _messages(part: Part, wanted: int) -> Iterator[Part]:
    return (_message(value) for number, value in _fields(part) if number == wanted)


def _fields(part: Part) -> Iterator[tuple[int, int | Part]]:
    """The fields of a message in the wire format of protocol buffers: number, and value or bytes."""
    place = part.start
    while place < part.end:
        key, place = _varint(part, place)
        number, kind = key >> 3, key & 7
        if not number:
            raise Damaged("it is no ONNX model")
        if kind == _VARINT:
            value, place = _varint(part, place)
            yield number, value
            continue
        if kind == _BYTES:
            length, place = _varint(part, place)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise Damaged("it is no ONNX model")
        end = place + length
        if end > part.end:
            raise Damaged("it ends too early")
        yield number, Part(part.data, place, end)
        place = end


def _varint(part: Part, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= part.end:
            raise Damaged("it ends too early")
        byte = part.data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise Damaged("it is no ONNX model")


def _message(value: int | Part) -> Part:
    if isinstance(value, int):
        raise Damaged("it is no ONNX model")
    return value


def _text(part: Part) -> str:
    return part.data[part.start : part.end].decode("utf-8", "replace")
