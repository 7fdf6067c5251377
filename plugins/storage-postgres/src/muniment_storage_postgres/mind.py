"""What this process keeps in mind of a database: the ids of memories, and words and vectors of scopes that are searched
again, up to a budget in bytes. No I/O."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from muniment import limits
from muniment.ranking import Kept
from muniment_storage_postgres.keys import PACKED
from muniment_storage_postgres.readable import Part
from muniment_storage_postgres.records import Row
from muniment_storage_postgres.vectors import Vectors
from muniment_storage_postgres.words import Words

WORTH = 500
"""Memories or passages of a scope from which on it is kept; for fewer the server answers as soon."""
_KNOWN_NAMES = 100_000
"""Ids that are kept in mind, of some 100 bytes each."""
_KNOWN_SIZES = 10_000
"""Scopes of which it is kept in mind how much there is to keep."""
_KNOWN_AUDIENCES = 10_000
"""Of so many it is kept in mind which of the kept scopes they reached."""
_MOST = 500_000_000
"""Bytes that one answer of the server may bring; it cannot make one of more than 1 GB."""

Key: TypeAlias = tuple[int, int | None]
"""The number of a scope, and that of a space for its vectors in it; None for its words."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The words of a scope, and its vectors in the space in which it was compared last."""

    words: Words
    space: int | None = None
    vectors: Vectors | None = None

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self.words.size + (0 if self.vectors is None else self.vectors.size)

    def vectors_in(self, space: int | None) -> Vectors | None:
        """The vectors, if they are of this space."""
        return self.vectors if space is not None and space == self.space else None


Snapshot: TypeAlias = Mapping[int, Scope]


def sizes(answered: Part | None, passages: Mapping[int, int], space: int | None, dimensions: int) -> Mapping[Key, int]:
    """Bytes, about, that there would be to keep of the scopes that are worth it: of which the server ``answered`` for
    the memories, or compared so many ``passages``. A word has a part or two."""
    found: dict[Key, int] = {
        (scope, space): count * (4 * dimensions + 16) for scope, count in passages.items() if count >= WORTH
    }
    if answered is None or (not found and len(answered.numbers) < WORTH):
        return found
    scopes, places, counts = np.unique(answered.scopes, return_inverse=True, return_counts=True)
    entries = np.bincount(places, weights=2 * answered.lengths + limits.TAGS_MAX)
    for scope, count, held in zip(scopes.tolist(), counts.tolist(), entries.tolist(), strict=True):
        if count >= WORTH or (scope, space) in found:
            found[scope, None] = int(held) * PACKED.itemsize
    return found


class Mind:
    """A search takes what it needs when it begins; what it still adds after all was forgotten is nobody's."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._file: int | None = None
        self.names = Names()
        self.scopes = Scopes(budget)

    def is_of(self, file: int) -> bool:
        """Whether what is kept is of the memories in this file; that of any other is forgotten."""
        known, self._file = self._file, file
        if known in (None, file):
            return True
        self.forget()
        return False

    def forget(self) -> None:
        """Begin anew."""
        self.names = Names()
        self.scopes = Scopes(self._budget)


class Names:
    """The ids of memories by their numbers. A number is given once and for ever, so what was read stays true."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def known(self, numbers: Iterable[int]) -> list[str | None]:
        """Each one's, None where it is not known."""
        return [*map(self._known.get, numbers)]

    def learn(self, names: Mapping[int, str]) -> None:
        """Keep these too."""
        if len(self._known) + len(names) > _KNOWN_NAMES:
            self._known.clear()
        self._known.update(names)


class Scopes:
    """What is kept of scopes, of those that were used last."""

    def __init__(self, budget: int) -> None:
        self._kept: Kept[int, Scope] = Kept(budget)
        self._sizes: dict[Key, int] = {}
        self._refused: dict[int, int] = {}
        self._reached: dict[Hashable, Sequence[Row]] = {}

    def now(self) -> Snapshot:
        """What is kept before a snapshot is taken, and so is not ahead of it."""
        return self._kept.now()

    def to_read(self, keys: Sequence[Key], *, beside: Sequence[Scope]) -> list[Key]:
        """Which of these are to be kept from now on: the server answered for them before, which is forgotten here, it
        was worth noting, and there is room for them ``beside`` what the same search needs."""
        room = min(self._kept.budget // 2, _MOST) - sum(one.size for one in beside)
        chosen: list[Key] = []
        for key in keys:
            size = self._sizes.get(key)
            if size is not None and size <= room:
                room -= size
                chosen.append(key)
                del self._sizes[key]
        return chosen

    def note(self, sizes: Mapping[Key, int]) -> None:
        """Bytes that there would be to keep, of what the server answered for and is worth it."""
        if len(self._sizes) + len(sizes) > _KNOWN_SIZES:
            self._sizes.clear()
        self._sizes.update({key: max(size, self._refused.get(key[0], 0)) for key, size in sizes.items()})

    def keep(self, number: int, scope: Scope) -> None:
        """Keep this for later snapshots; what was not used for longest makes room."""
        self._kept.put(number, scope)
        self._sizes.pop((number, None), None)
        if scope.vectors is not None:
            self._sizes.pop((number, scope.space), None)
        if scope.size > self._kept.budget:
            self._refused = {**self._refused, number: scope.size} if len(self._refused) < _KNOWN_SIZES else {}

    def reached(self, who: Hashable) -> Sequence[Row]:
        """The rows of ``scopes`` when the same was asked last, of those that are kept. They decide nothing: what has
        become of these is asked for together with which ones they are now."""
        return self._reached.get(who, ())

    def reach(self, who: Hashable, scopes: Sequence[Row]) -> None:
        """Remember these."""
        if len(self._reached) >= _KNOWN_AUDIENCES:
            self._reached.clear()
        if scopes:
            self._reached[who] = scopes
        else:
            self._reached.pop(who, None)

    def drop(self, who: Hashable) -> None:
        """Forget the scopes that were reached: something that was asked because of what is kept of them went wrong."""
        for number, *_ in self._reached.pop(who, ()):
            self._kept.drop(number)
