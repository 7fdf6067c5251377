"""A small pure model of one agent's memory, and the random steps that it is compared over.

Owns what must be true after any sequence of steps; running them against a subject is ``walk``'s. The model has no
storage, no clock and no code of the product's: leases are lost when a step says so, and what fits in a digest is
measured on its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from muniment import limits
from muniment.conformance.agents_estate import Entry, compact, entry_of

KEYS = ("memoryRevision", "memoryDigest", "memoryDigestPending", "memoryDigestEvicted")
"""What a delivery adds to a payload."""


class Step(NamedTuple):
    """One step: what is done, with two numbers that are read modulo what there is, so that any part of a list of
    steps is a list of steps."""

    name: str
    first: int = 0
    second: int = 0


STEPS = {
    "append": 6,
    "enqueue": 3,
    "claim": 6,
    "ack": 6,
    "old": 2,
    "extend": 1,
    "lose": 3,
    "exhaust": 1,
    "read": 1,
    "requeue": 1,
}
"""What a sequence is made of, by weight. ``old`` acknowledges with an earlier delivery's token."""


def steps(random: Random, length: int, extra: dict[str, int]) -> list[Step]:
    """A sequence; ``extra`` are further steps by weight."""
    weights = {**STEPS, **extra}
    names = random.choices(list(weights), list(weights.values()), k=length)
    return [Step(name, random.randrange(1 << 16), random.randrange(1 << 16)) for name in names]


def fitting(entries: Sequence[Entry]) -> int:
    """How many entries, from the first on, fit in a digest: their JSON, the brackets and the commas between."""
    size = len(compact([]))
    for count, entry in enumerate(entries):
        size += len(compact({name: entry[name] for name in entry if name != "revision"})) + (count > 0)
        if size > limits.DIGEST_BYTES_MAX:
            return count
    return len(entries)


def expected(entries: Sequence[Entry], revision: int, last_seen: int) -> dict[str, Any]:
    """What a payload must say, the times left out: ``entries`` are all that are stored, oldest first."""
    unseen = [entry for entry in entries if entry["revision"] > last_seen]
    count = fitting(unseen)
    said: dict[str, Any] = {"memoryRevision": revision}
    if unseen:
        said["memoryDigest"] = [entry_of(entry) for entry in unseen[:count]]
    if len(unseen) > count:
        said["memoryDigestPending"] = len(unseen) - count
    if revision - last_seen > len(unseen):
        said["memoryDigestEvicted"] = revision - last_seen - len(unseen)
    return said


def said_of_memory(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What a delivered payload says, the times left out."""
    said = {key: payload[key] for key in KEYS if key in payload}
    if "memoryDigest" in said:
        said["memoryDigest"] = [entry_of(entry) for entry in said["memoryDigest"]]
    return said


@dataclass
class ModelEvent:
    """An event: its deliveries' tokens, oldest first, and what the latest delivery may mark as seen."""

    id: str
    tokens: list[str] = field(default_factory=list[str])
    acked: bool = False
    leased: bool = False
    attempts: int = 0
    delivered: int = 0

    @property
    def claimable(self) -> bool:
        """Whether a claim may get it."""
        return not self.acked and not self.leased and self.attempts < limits.ATTEMPTS_MAX

    @property
    def dead(self) -> bool:
        """Whether its attempts are used up."""
        return not self.acked and not self.leased and self.attempts >= limits.ATTEMPTS_MAX


@dataclass
class Model:
    """One agent's memory; ``entries`` are all that were ever appended."""

    entries: list[Entry] = field(default_factory=list[Entry])
    last_seen: int = 0
    events: list[ModelEvent] = field(default_factory=list[ModelEvent])

    @property
    def revision(self) -> int:
        """The envelope's."""
        return len(self.entries)

    @property
    def stored(self) -> list[Entry]:
        """What the cap leaves, oldest first."""
        return self.entries[-limits.EXCHANGES_KEPT :]

    def digest(self) -> tuple[dict[str, Any], list[Entry]]:
        """What a delivery must say now, the times left out, and the entries that it carries."""
        unseen = [entry for entry in self.stored if entry["revision"] > self.last_seen]
        return expected(self.stored, self.revision, self.last_seen), unseen[: fitting(unseen)]

    def claim(self, limit: int) -> list[ModelEvent]:
        """The events that a claim must get, oldest first, delivered once more; their tokens are the subject's."""
        got = [event for event in self.events if event.claimable][:limit]
        carried = self.digest()[1]
        for event in got:
            event.attempts += 1
            event.leased = True
            event.delivered = carried[-1]["revision"] if carried else 0
        return got

    def ack(self, event: ModelEvent, token: str) -> str:
        """The outcome of an acknowledgement."""
        if token != event.tokens[-1]:
            return "stale_receipt"
        if event.acked:
            return "already_acked"
        event.acked = True
        self._saw(event.delivered)
        return "acknowledged"

    def read(self, count: int) -> None:
        """A reply that holds the newest ``count`` of the exchanges."""
        held = {entry["revision"] for entry in self.stored[-count:]}
        seen = self.last_seen
        for entry in self.stored:
            if entry["revision"] > self.last_seen:
                if entry["revision"] not in held:
                    break
                seen = entry["revision"]
        self._saw(seen)

    def lose(self) -> None:
        """Every lease runs out."""
        for event in self.events:
            event.leased = False

    def requeue(self) -> list[str]:
        """The ids that were dead, claimable again."""
        dead = [event for event in self.events if event.dead]
        for event in dead:
            event.attempts = 0
        return [event.id for event in dead]

    def unexplained(self, last_seen: int, carried_and_acked: set[int], read: set[int]) -> list[int]:
        """The revisions at or below ``last_seen`` that were neither carried by an acknowledged delivery, nor read, nor
        taken by the cap."""
        evicted = self.revision - len(self.stored)
        known = carried_and_acked | read
        return [revision for revision in range(evicted + 1, last_seen + 1) if revision not in known]

    def _saw(self, revision: int) -> None:
        self.last_seen = max(self.last_seen, revision)
