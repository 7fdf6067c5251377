"""What an ONNX file takes, gives and is made of, read without a library for it and without its weights.

Owns where a model's file lies and the few fields of the format (onnx.proto of the ONNX project) that say whether the
engine can use it. What these mean for a model's vectors is ``recipe``'s.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
        with mapped, memoryview(mapped) as view:
            return _graph(view)


def _graph(view: memoryview) -> Graph:
    inputs: set[str] = set()
    outputs: dict[str, Output] = {}
    weights: set[str] = set()
    elements: set[int] = set()
    for part in _messages(view, _MODEL_GRAPH):
        for number, value in _fields(part):
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


def _tensor(view: memoryview) -> tuple[str, int]:
    """The name and the element type of a TensorProto."""
    name, element = "", FLOAT
    for number, value in _fields(view):
        if number == _TENSOR_NAME:
            name = _text(_message(value))
        elif number == _TENSOR_TYPE and isinstance(value, int):
            element = value
    return name, element


def _value(view: memoryview) -> tuple[str, Output]:
    """The name of a ValueInfoProto, and what it says of a tensor: ValueInfoProto.type.tensor_type."""
    name, element, rank = "", 0, 0
    for number, value in _fields(view):
        if number == 1:
            name = _text(_message(value))
        elif number == 2:
            for tensor in _messages(_message(value), 1):
                for part, inner in _fields(tensor):
                    if part == 1 and isinstance(inner, int):
                        element = inner
                    elif part == 2:
                        rank = sum(1 for _ in _messages(_message(inner), 1))
    return name, Output(element, rank)


def _messages(view: memoryview, wanted: int) -> Iterator[memoryview]:
    return (_message(value) for number, value in _fields(view) if number == wanted)


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message in the wire format of protocol buffers: number, and value or bytes."""
    place = 0
    while place < len(view):
        key, place = _varint(view, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(view, place)
            yield number, value
            continue
        if kind == _BYTES:
            length, place = _varint(view, place)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise Damaged("it is no ONNX model")
        end = place + length
        if end > len(view):
            raise Damaged("it ends too early")
        yield number, view[place:end]
        place = end


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(view):
            raise Damaged("it ends too early")
        byte = view[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise Damaged("it is no ONNX model")


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise Damaged("it is no ONNX model")
    return value


def _text(view: memoryview) -> str:
    return bytes(view).decode("utf-8", "replace")
