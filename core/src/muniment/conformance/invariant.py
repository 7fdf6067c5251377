"""An invariant as data, and what a check may raise to say how it ended.

Owns the vocabulary of the suite. The invariants themselves are in ``invariants``, their order and selection
in ``registry``; what a check works with is ``world.World``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from muniment.conformance.target import EmbedderTarget, FailureKind, StorageTarget, Target, TransportTarget

if TYPE_CHECKING:
    from muniment.conformance.world import World


class Level(StrEnum):
    """Whether an invariant counts for conformance."""

    MUST = "MUST"
    SHOULD = "SHOULD"


class Seat(StrEnum):
    """Where the plugin that is judged sits: a storage or an embedder under the engine, a transport before it."""

    STORAGE = "S"
    EMBEDDER = "E"
    TRANSPORT = "T"


class Feature(StrEnum):
    """What a target can do beyond the least, or what its plugin is."""

    FAULT = "fault"
    LAYOUT = "layout"
    SEMANTIC = "semantic"
    PROVIDER = "provider"
    NETWORK = "network"


class Outcome(StrEnum):
    """How one invariant ended; see ``report`` for which of them are conformant."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    UNDECLARED = "undeclared"
    KNOWN_FAILURE = "known-failure"
    STALE_KNOWN_FAILURE = "stale-known-failure"
    NOT_EXERCISED = "not-exercised"

    @property
    def kept(self) -> bool:
        """Whether the invariant holds, or what it is about is rightly not there."""
        return self in (Outcome.PASS, Outcome.UNDECLARED)

    @property
    def judged(self) -> bool:
        """Whether the check came to a judgement; it neither crashed nor failed to bring its case about."""
        return self not in (Outcome.ERROR, Outcome.NOT_EXERCISED)


def family_of(invariant: str) -> str:
    """The part of an id before the dash."""
    return invariant.partition("-")[0]


class Broken(Exception):
    """A check saw something else than the invariant demands."""

    def __init__(self, what: str, *, expected: object, seen: object) -> None:
        self.what = what
        self.expected = str(expected)
        self.seen = str(seen)
        super().__init__(f"{what}: expected {self.expected}, seen {self.seen}")


class NotExercised(Exception):
    """A check could not bring about what it is to judge, such as a race; the message says what was missing."""


Check = Callable[["World"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """One rule that every plugin in one of ``seats`` keeps, and the check that shows it.

    ``since`` is the contract version that it came with; a plugin of an older one is not judged by it.
    ``capabilities`` are optional ones that a plugin may leave undeclared, ``features`` what the target must
    have. Without ``lenient_without`` the level is SHOULD.
    """

    id: str
    statement: str
    check: Check
    seats: frozenset[Seat]
    level: Level = Level.MUST
    since: str = "1.0"
    capabilities: frozenset[str] = frozenset()
    features: frozenset[Feature] = frozenset()
    lenient_without: Feature | None = None

    @property
    def family(self) -> str:
        """The family that it belongs to."""
        return family_of(self.id)

    @property
    def docs(self) -> str:
        """The page that explains it."""
        return f"docs/invariants.md#{self.id.lower()}"

    def level_for(self, features: frozenset[Feature]) -> Level:
        """The level that it has for a target with ``features``."""
        lenient = self.lenient_without is not None and self.lenient_without not in features
        return Level.SHOULD if lenient else self.level


def seat_of(target: Target) -> Seat:
    """The seat that a target's plugin fills."""
    if isinstance(target, TransportTarget):
        return Seat.TRANSPORT
    return Seat.EMBEDDER if isinstance(target, EmbedderTarget) else Seat.STORAGE


def features_of(target: Target) -> frozenset[Feature]:
    """What a target can do, or its plugin is."""
    found: set[Feature] = set()
    if isinstance(target, StorageTarget):
        if target.can_fault:
            found.add(Feature.FAULT)
        if target.can_layout:
            found.add(Feature.LAYOUT)
    if isinstance(target, EmbedderTarget):
        # What is under the engine is the reference storage, which has one.
        found.add(Feature.LAYOUT)
        if target.semantic:
            found.add(Feature.SEMANTIC)
        if target.remote or any(failing.kind is not FailureKind.UNKNOWN_MODEL for failing in target.fail()):
            found.add(Feature.PROVIDER)
    if isinstance(target, TransportTarget):
        # What is behind the transport is the reference storage, which injects faults.
        found.add(Feature.FAULT)
        if target.network:
            found.add(Feature.NETWORK)
    return frozenset(found)
