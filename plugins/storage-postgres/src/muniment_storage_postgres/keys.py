"""What words and tags are found by: a number for each, and how often a memory holds it.

A key is 47 bits of a SHA-256, so that postings are narrow rows of numbers. That any of a million different words in the
readable memories shares its key with a given word of a query, and is counted as that word, has a chance of 1 to 140
million. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

import numpy as np
from numpy.typing import NDArray

FREQUENCY_BITS = 16
"""The lower bits of an entry; 64,000 characters hold no word more often."""
FREQUENCY = (1 << FREQUENCY_BITS) - 1
_KNOWN = 100_000
"""Keys that are kept in mind, of some 200 bytes each."""

PACKED = np.dtype(">i8")
"""Entries and holders are kept as bytes, which the server hands out as they are."""

Numbers = NDArray[np.int64]


class _Keys(dict[str, int]):
    """Keys by name, made when first asked for; forgotten all at once when they are too many."""

    def __missing__(self, name: str) -> int:
        if len(self) >= _KNOWN:
            self.clear()
        self[name] = made = int.from_bytes(sha256(name.encode()).digest()[:6]) >> 1
        return made


_KEYS: Final = _Keys()


def key(name: str) -> int:
    """The key of a term."""
    return _KEYS[name]


def tag_key(tag: str) -> int:
    """The key of a tag, which is that of no term: terms hold no space. ``sql/mutations.sql`` makes the same one."""
    return key(f" {tag}")


def of_terms(frequencies: Mapping[str, int]) -> bytes:
    """An entry for each term, packed: its key in the upper bits, its frequency in the lower ones."""
    of_each = np.fromiter(map(key, frequencies), np.int64, len(frequencies))
    counts = np.fromiter(frequencies.values(), np.int64, len(frequencies))
    return (of_each << FREQUENCY_BITS | np.minimum(counts, FREQUENCY)).astype(PACKED).tobytes()


def entries(packed: Sequence[bytes]) -> tuple[Numbers, NDArray[np.intp]]:
    """What is packed in each, one after the other, and how many are in each."""
    counts = np.array([len(one) // PACKED.itemsize for one in packed], dtype=np.intp)
    return np.frombuffer(b"".join(packed), dtype=PACKED).astype(np.int64), counts


def inverted(memories: Numbers, packed: Sequence[bytes]) -> tuple[Numbers, Numbers, bytes]:
    """The postings of memories, of each of which the entries are ``packed``: the different keys, ascending; how many
    memories hold each; and, packed one after the other, who: a memory in the upper bits, the frequency in the lower
    ones."""
    found, counts = entries(packed)
    order = np.argsort(found >> FREQUENCY_BITS, kind="stable")
    holders = (np.repeat(memories, counts) << FREQUENCY_BITS | found & FREQUENCY)[order]
    different, held_by = np.unique(found >> FREQUENCY_BITS, return_counts=True)
    return different, held_by, holders.astype(PACKED).tobytes()
