"""What is read, for whom, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from muniment.models import Access, MemoryRecord, Scope, Share
from muniment.ports.vectors import Vector
from muniment.ranking import Fusion, Ranked


@dataclass(frozen=True, slots=True)
class Audience:
    """For whom a read is done.

    Its scope keys are ``u:<user>`` and ``p:<id>`` of every project that ``user`` owns or that is shared with one
    of ``groups``; with ``need`` WRITE a share must be ``rw``. Names are compared whole, code point by code point.
    """

    user: str
    groups: frozenset[str] = frozenset()
    need: Access = Access.READ


@dataclass(frozen=True, slots=True)
class Selector:
    """Which of the audience's memories a list or a search covers; each part narrows.

    ``tags`` means all of these. ``deleted`` selects the deleted ones instead of the live ones.
    """

    scope_key: str | None = None
    scope: Scope | None = None
    tags: tuple[str, ...] = ()
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """The last item of a page, from which the next one continues: order is ``created_at`` descending, ``id``."""

    created_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """A project with what access is decided from: its owner, and the grants to the audience's groups.

    ``shares`` are all grants by group, present only where the audience's user is the owner.
    """

    id: str
    key: str
    owner: str
    version: int
    created_at: datetime
    updated_at: datetime
    grants: tuple[Share, ...] = ()
    shares: Mapping[str, Share] | None = None


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """A memory with what access and re-embedding are decided from.

    ``owner`` is its user or its project's owner, ``grants`` those of the audience's groups on its project.
    ``passages`` are the hashes stored in the space that was asked for; ``embedded`` says that they are complete.
    """

    memory: MemoryRecord
    scope_key: str
    owner: str
    grants: tuple[Share, ...]
    deleted: bool
    passages: frozenset[str] = frozenset()
    embedded: bool = False


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search, analysed. ``vector`` and ``space`` are both None when meaning is left out.

    ``terms`` map each query term to its weight; ``tags`` are the query's words that could be tags. ``offset`` and
    ``limit`` cut the fused order.
    """

    terms: Mapping[str, float]
    tags: frozenset[str]
    vector: Vector | None
    space: str | None
    fusion: Fusion
    min_score: float | None
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class Found:
    """One search result: the memory and its place in the fused order and in each ranker."""

    memory: MemoryRecord
    ranked: Ranked


@dataclass(frozen=True, slots=True)
class Outdated:
    """A live memory whose terms are of another analyser, at the version that was read."""

    memory_id: str
    version: int
    content: str
