"""What the callers of a soak were told: what must be there in the end, and nothing else."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from muniment import limits


@dataclass
class Memory:
    """A memory as its callers know it: its content, and what was done with it, which is also how often."""

    user: str
    id: str
    content: str
    word: str
    """Is in no other memory, and stays in this one."""
    actions: list[str] = field(default_factory=lambda: ["memory.write"])
    """By version, the first one first; all that is acknowledged, and nothing else."""
    marks: set[str] = field(default_factory=set[str])
    """The lines that were added by those who share it."""
    deleted: bool = False

    @property
    def version(self) -> int:
        """The number of the last change."""
        return len(self.actions)


@dataclass
class Notes:
    """What an agent wrote of itself."""

    long_term: str = ""
    saves: int = 0
    cycles: deque[str] = field(default_factory=lambda: deque[str](maxlen=limits.CYCLES_KEPT))
    logged: int = 0


@dataclass
class Told:
    """All of it. The platform's is by agent, ``NAME/INSTANCE``."""

    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])
    notes: dict[str, Notes] = field(default_factory=dict[str, Notes])
    revisions: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Of the exchanges of an agent, in the order of their receipts."""
    takeaways: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """The revision of an exchange, by agent and takeaway."""
    events: dict[str, str] = field(default_factory=dict[str, str])
    """The agent of every event that was enqueued."""
    keyed: int = 0
    """Requests with an idempotency key."""
    replayed: int = 0
    """Of those, how many were sent again after they were acknowledged."""
    found: int = 0
    """Searches that found what had been written."""


@dataclass
class Delivered:
    """What the workers noted, of all of them."""

    facts: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The facts of a kind."""
        return [fact for fact in self.facts if kind in fact]


def kept(revisions: list[int]) -> list[int]:
    """The revisions that the cap leaves, newest first."""
    return sorted(revisions, reverse=True)[: limits.EXCHANGES_KEPT]
