"""Spaces, passages and their vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""One vector, shape ``(dimensions,)``."""
Vectors = NDArray[np.float32]
"""A batch of vectors, shape ``(texts, dimensions)``."""


@dataclass(frozen=True, slots=True)
class Space:
    """The identity of an embedder: every vector belongs to one.

    ``id`` is the whole identity as one readable string; ``passage_tokens`` is how many of the model's own tokens
    a passage may have. ``normalised`` promises unit length.
    """

    id: str
    provider: str
    model: str
    dimensions: int
    pooling: str
    normalised: bool
    passage_tokens: int


@dataclass(frozen=True, slots=True)
class PassageVector:
    """One passage's vector; ``hash`` is ``passages.digest`` of its text."""

    hash: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class Passages:
    """What a memory's passages in ``space`` are to be: exactly ``hashes``, of which ``vectors`` are the new ones.

    ``complete`` says that stored and new vectors together cover all ``hashes``.
    """

    space: str
    hashes: frozenset[str]
    vectors: tuple[PassageVector, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A live memory whose passages in a space are not complete, at the version that was read."""

    memory_id: str
    version: int
    content: str
    passages: frozenset[str]
