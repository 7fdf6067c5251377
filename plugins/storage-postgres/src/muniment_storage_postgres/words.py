"""The words and tags of scopes that are searched again and again, kept in mind by this process.

What is kept is what one snapshot held, and the oldest transaction that it may not have seen, as ``vectors`` has it. A
later snapshot reads anew the memories that were changed by that one or by a later one (``search_entry.changed``), and
how many memories are live. With what was kept and has not changed they are all that can be there, so if they are as
many, they are the same ones. A memory has a slot; one that has changed gets another, and its old one is nobody's.
No I/O, no formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from muniment.ranking import Postings
from muniment_storage_postgres.arrays import NUMBER, SMALL, Numbers, elements
from muniment_storage_postgres.keys import FREQUENCY, FREQUENCY_BITS, PACKED
from muniment_storage_postgres.postings import LENGTH, LENGTH_BITS
from muniment_storage_postgres.readable import Part

_SEGMENT = 1 << 18
"""Entries from which on a segment is left as it is; smaller ones are put together."""
_GONE_SLOTS = 1_024
"""So many slots of nobody are carried along before they are taken out, and at most as many as are somebody's."""
_NOBODY = -1

Slots = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Entries:
    """What memories are found by: each one's number and length, how many keys it has, and all of these as ``keys``
    packs them."""

    memories: Numbers
    lengths: Numbers
    counts: Numbers
    packed: Numbers

    @classmethod
    def of(cls, packed: bytes | None, counts: bytes | None, keys: bytes | None) -> Entries:
        """From an answer of ``words`` or ``changes``; None where there are no memories."""
        numbers = elements(packed or b"", NUMBER).astype(np.int64)
        return cls(
            memories=numbers >> LENGTH_BITS,
            lengths=numbers & LENGTH,
            counts=elements(counts or b"", SMALL).astype(np.int64),
            packed=np.frombuffer(keys or b"", dtype=PACKED).astype(np.int64),
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """Who holds each of some ``keys``, which ascend: ``slots`` and ``frequencies`` from its start to the next one's."""

    keys: Numbers
    starts: Numbers
    slots: Slots
    frequencies: NDArray[np.uint16]

    @classmethod
    def of(cls, keys: Numbers, slots: Slots, frequencies: NDArray[np.uint16], *, runs: bool = False) -> Segment:
        """Of entries in any order, or in a few ``runs`` that are in order, which are soon put together."""
        order = np.argsort(keys, kind="stable" if runs else None)
        held = keys[order]
        first = np.flatnonzero(np.diff(held, prepend=-1))
        return cls(held[first], np.append(first, len(held)), slots[order], frequencies[order])

    @property
    def entries(self) -> tuple[Numbers, Slots, NDArray[np.uint16]]:
        """What it was made of."""
        return np.repeat(self.keys, np.diff(self.starts)), self.slots, self.frequencies

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self.keys.nbytes + self.starts.nbytes + self.slots.nbytes + self.frequencies.nbytes

    def with_slots(self, slots: Slots) -> Segment:
        """The same with other slots in the places of its own, without the entries of nobody."""
        keys, old, frequencies = self.entries
        new = slots[old]
        kept = new != _NOBODY
        return Segment.of(keys[kept], new[kept], frequencies[kept], runs=True)

    def beside(self, other: Segment) -> Segment:
        """Both as one."""
        (keys, slots, frequencies), (more_keys, more_slots, more_frequencies) = self.entries, other.entries
        return Segment.of(
            np.concatenate([keys, more_keys]),
            np.concatenate([slots, more_slots]),
            np.concatenate([frequencies, more_frequencies]),
            runs=True,
        )

    def holders(self, keys: Numbers) -> list[slice]:
        """Where the holders of each key are."""
        if not len(self.keys):
            return [slice(0, 0)] * len(keys)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        there = self.keys[places] == keys
        starts = self.starts[places]
        ends = np.where(there, self.starts[places + 1], starts)
        return [slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


@dataclass(frozen=True)
class Content:
    """Of each slot the memory and its length, and who holds what."""

    memories: Numbers
    lengths: Numbers
    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        """Bytes, about."""
        return 6 * self.memories.nbytes + sum(one.size for one in self.segments)

    @cached_property
    def numbers(self) -> Numbers:
        """The memories that are there, ascending."""
        return self.memories[self._order]

    @cached_property
    def live_lengths(self) -> Numbers:
        """Their lengths."""
        return self.lengths[self._order]

    @cached_property
    def places(self) -> Numbers:
        """Where the memory of each slot is among them."""
        places = np.full(len(self.memories), _NOBODY, dtype=np.int64)
        places[self._order] = np.arange(len(self._order))
        return places

    @cached_property
    def _order(self) -> Numbers:
        slots = np.flatnonzero(self.memories != _NOBODY)
        return slots[np.argsort(self.memories[slots], kind="stable")]

    def with_changes(self, changed: Entries) -> Content:
        """With these memories as they are now."""
        count = len(self.memories)
        slots = np.arange(count, count + len(changed.memories), dtype=np.int32)
        segments = [*self.segments]
        ends = np.cumsum(changed.counts)
        for part in np.split(slots - count, 1 + np.flatnonzero(np.diff(ends // _SEGMENT))):
            counts = changed.counts[part]
            packed = changed.packed[ends[part[0]] - counts[0] : ends[part[-1]]]
            frequencies = (packed & FREQUENCY).astype(np.uint16)
            segments.append(Segment.of(packed >> FREQUENCY_BITS, np.repeat(slots[part], counts), frequencies))
        old = np.where(np.isin(self.memories, changed.memories), _NOBODY, self.memories)
        memories = np.concatenate([old, changed.memories])
        lengths = np.concatenate([self.lengths, changed.lengths])
        return Content(memories, lengths, _put_together(segments))._compact()

    def only(self, memories: Numbers) -> Content:
        """Without whoever is none of these."""
        kept = np.where(np.isin(self.memories, memories), self.memories, _NOBODY)
        return replace(self, memories=kept)._compact()

    def postings(self, keys: Numbers) -> list[Postings]:
        """Who holds each key, by the places of ``numbers``."""
        found = [segment.holders(keys) for segment in self.segments]
        held = [
            (one, of_key[number])
            for number in range(len(keys))
            for one, of_key in zip(self.segments, found, strict=True)
        ]
        if not held:
            return [_NOBODYS] * len(keys)
        places = self.places[np.concatenate([one.slots[where] for one, where in held])]
        frequencies = np.concatenate([one.frequencies[where] for one, where in held])
        there = places != _NOBODY
        sizes = [where.stop - where.start for _, where in held]
        before = np.append(0, np.cumsum(there))[np.append(0, np.cumsum(sizes))]
        starts = before[:: len(self.segments)].tolist()
        places, frequencies = places[there], frequencies[there].astype(np.int64)
        return [Postings(places[start:end], frequencies[start:end]) for start, end in pairwise(starts)]

    def _compact(self) -> Content:
        gone = len(self.memories) - len(self._order)
        if gone <= _GONE_SLOTS or gone <= len(self._order):
            return self
        slots = np.full(len(self.memories), _NOBODY, dtype=np.int32)
        slots[self._order] = np.arange(len(self._order), dtype=np.int32)
        segments = [one.with_slots(slots) for one in self.segments]
        return Content(self.numbers, self.live_lengths, _put_together(segments))


_NOBODYS = Postings(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
_NOTHING = Content(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), ())


@dataclass(frozen=True, slots=True)
class Words:
    """What the memories of a scope are found by, and the partition that says what has become of them.

    ``seen``: what older transactions changed is in it, and what this one or later ones changed may be. ``late`` are the
    memories that came or changed since all were read.
    """

    seen: int
    partition: int
    content: Content
    late: int = 0

    @classmethod
    def of(cls, seen: int, partition: int, entries: Entries) -> Words:
        """All that was read."""
        return cls(seen, partition, _NOTHING.with_changes(entries) if len(entries.memories) else _NOTHING)

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self.content.size

    @property
    def live(self) -> int:
        """How many memories there are."""
        return len(self.content.numbers)

    def with_changes(self, seen: int, changed: Entries) -> Words:
        """As a later snapshot has it, but for the memories that are gone."""
        count = len(changed.memories)
        content = self.content.with_changes(changed) if count else self.content
        return replace(self, seen=seen, content=content, late=self.late + count)

    def only(self, memories: Numbers) -> Words:
        """Without whoever is none of these."""
        return replace(self, content=self.content.only(memories))

    def part(self, scope: int, keys: Numbers) -> Part:
        """The memories of the scope, and who holds each key."""
        content = self.content
        scopes = np.full(len(content.numbers), scope)
        return Part(content.numbers, content.live_lengths, scopes, content.postings(keys))


def _put_together(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """As few segments as that many entries need, without making large ones anew for a few: a segment has half as many
    as the one before it at most, or is large."""
    made: list[Segment] = []
    for segment in segments:
        made.append(segment)
        while len(made) > 1 and len(made[-2].slots) < min(2 * len(made[-1].slots), _SEGMENT):
            last, before = made.pop(), made.pop()
            made.append(before.beside(last))
    return tuple(made)
