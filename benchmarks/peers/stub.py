"""The embedder that every side of the benchmark has: a unit vector drawn from a text's hash, so it costs next to
nothing and means nothing."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 384


def vector(text: str) -> NDArray[np.float32]:
    """The text's vector, shape ``(DIMENSIONS,)``."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    drawn = np.random.default_rng(seed).normal(size=DIMENSIONS).astype(np.float32)
    return (drawn / np.linalg.norm(drawn)).astype(np.float32)
