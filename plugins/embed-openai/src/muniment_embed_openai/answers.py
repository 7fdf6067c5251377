"""An answer's vectors: checked one by one, brought into the order of the texts, and to unit length."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from muniment.ports import Vectors

_SHORTEST: Final = 1e-12


class BadAnswer(Exception):
    """What is wrong with an answer, in words that hold nothing of it."""


def vectors_in(response: Any, count: int) -> Vectors:
    """The unit vectors of an answer to ``count`` texts, ``(count, dimensions)`` float32, by their ``index``.

    A vector is a list of numbers or their little-endian float32 bytes in base64, whichever was asked for. Raises
    BadAnswer.
    """
    data = getattr(response, "data", None)
    if not isinstance(data, list):
        raise BadAnswer("answered with something else than embeddings")
    given = cast("list[Any]", data)
    if len(given) != count:
        raise BadAnswer(f"gave {len(given)} vectors for {count} texts")
    rows = [_numbers(getattr(each, "embedding", None)) for each in _in_order(given)]
    if len({len(row) for row in rows}) > 1:
        raise BadAnswer("gave vectors of different dimensions in one answer")
    return _unit(np.stack(rows))


def _in_order(data: Sequence[Any]) -> list[Any]:
    """The answer's elements by index. That of a single one is not looked at: some servers leave it out."""
    if len(data) == 1:
        return list(data)
    indices: list[Any] = [getattr(each, "index", None) for each in data]
    if {index for index in indices if isinstance(index, int)} != set(range(len(data))):
        raise BadAnswer("did not say which vector is which text's (with batch_texts = 1 it need not)")
    return [data[place] for place in sorted(range(len(data)), key=indices.__getitem__)]


def _numbers(embedding: object) -> NDArray[np.float64]:
    try:
        if isinstance(embedding, str):
            embedding = np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
        numbers = np.asarray(embedding, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        raise BadAnswer("gave a vector that does not consist of numbers") from None
    if numbers.ndim != 1 or not len(numbers):
        raise BadAnswer("gave a vector that is no list of numbers")
    if not np.isfinite(numbers).all():
        raise BadAnswer("gave a vector with NaN or infinity in it")
    return numbers


def _unit(rows: NDArray[np.float64]) -> Vectors:
    """Some models' shortened vectors are not of unit length, so all are brought to it."""
    # By the largest number first, whose square may be beyond what a float can say.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if (largest < _SHORTEST).any():
        raise BadAnswer("gave a vector of zeros, which says nothing about its text")
    scaled = rows / largest
    return np.ascontiguousarray(scaled / np.linalg.norm(scaled, axis=1, keepdims=True), dtype=np.float32)
