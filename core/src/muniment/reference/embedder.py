"""A deterministic embedder without a model: each word is hashed to a direction, a text is the sum of its words.

Texts that share words are near; nothing else is. It is fast, needs no download, and gives the same vector on every
machine, which is what tests of everything but meaning want.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Self

import numpy as np

from muniment.errors import ConfigurationError
from muniment.ports import PluginContext, Space, Vector, Vectors

DIMENSIONS = 64
PASSAGE_TOKENS = 254

_BLOCK = 64
"""Bytes of one BLAKE2b hash."""
_BELOW_THE_MEAN = 112
"""What a byte of a hash is counted from: their mean is above it, so that no sum of words is zero."""
_WORD = re.compile(r"\w+|[^\w\s]")


class HashEmbedder:
    """Unit vectors of ``dimensions`` from hashed words; a token is a word or a punctuation mark."""

    def __init__(self, dimensions: int = DIMENSIONS, passage_tokens: int = PASSAGE_TOKENS) -> None:
        self._space = Space(
            id=f"hash:{dimensions}:{passage_tokens}",
            provider="hash",
            model=f"words-{dimensions}",
            dimensions=dimensions,
            pooling="sum",
            normalised=True,
            passage_tokens=passage_tokens,
        )

    @classmethod
    def named(cls, spec: str) -> Self:
        """The embedder of ``hash:`` or ``hash:DIMENSIONS``. Raises ConfigurationError."""
        wanted = spec.partition(":")[2]
        if not wanted:
            return cls()
        if not wanted.isascii() or not wanted.isdigit() or not 8 <= int(wanted) <= 4096:
            raise ConfigurationError(f"embedder {spec!r}: dimensions go from 8 to 4096; write hash: or hash:256.")
        return cls(int(wanted))

    @property
    def name(self) -> str:
        """``hash:`` and the dimensions."""
        return f"hash:{self._space.dimensions}"

    @property
    def dimensions(self) -> int:
        """The numbers of a vector."""
        return self._space.dimensions

    @property
    def ready(self) -> bool:
        """Always."""
        return True

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def space(self) -> Space:
        """The space of these dimensions."""
        return self._space

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Words and punctuation marks."""
        return [self.tokens(text) for text in texts]

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One unit vector a text, ``(len(texts), dimensions)``."""
        made = np.zeros((len(texts), self._space.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            made[row] = self.vector(text)
        return made

    async def embed_query(self, text: str) -> Vector:
        """The same as for a passage."""
        return self.vector(text)

    def tokens(self, text: str) -> int:
        """How many words and punctuation marks a text has."""
        return len(_WORD.findall(text))

    def vector(self, text: str) -> Vector:
        """The unit vector of a text; white space alone counts as a word."""
        words = _WORD.findall(text.casefold()) or [text]
        blocks = -(-self._space.dimensions // _BLOCK)
        hashes = np.frombuffer(b"".join([_hash(word, blocks) for word in words]), dtype=np.uint8)
        numbers = hashes.reshape(len(words), -1)[:, : self._space.dimensions]
        # Sums of bytes, exact in float32 and in any order up to 65,000 words.
        total = np.add.reduce(numbers.astype(np.float32)).astype(np.float64) - _BELOW_THE_MEAN * len(words)
        length = float(np.linalg.norm(total))
        return np.asarray(total / length, dtype=np.float32)


@lru_cache(maxsize=65_536)
def _hash(word: str, blocks: int) -> bytes:
    """The bytes that give a word its own direction."""
    encoded = word.encode("utf-8", "surrogatepass")
    return b"".join(hashlib.blake2b(encoded, salt=index.to_bytes(2, "big")).digest() for index in range(blocks))


def create(context: PluginContext) -> HashEmbedder:
    """The embedder of ``hash:`` or ``hash:DIMENSIONS``. Raises ConfigurationError."""
    return HashEmbedder.named(context.spec)
