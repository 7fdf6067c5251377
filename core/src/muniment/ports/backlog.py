"""How much waits in a storage, for whoever operates it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from muniment.models import Agent


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits, whoever's it is: events that a claim would get now, and live memories whose passages in a space are
    not complete, 0 without a space."""

    events_waiting: int
    embeddings_pending: int


@runtime_checkable
class BacklogStorage(Protocol):
    """Counts what waits, by its indexes: it is asked several times a minute."""

    async def backlog(self, space: str | None, *, attempts_max: int) -> Backlog:
        """The counts, which need not be of one moment. ``attempts_max`` is a claim's."""
        ...


@runtime_checkable
class WaitingStorage(Protocol):
    """Tells whose events wait, for those who stand by."""

    async def agents_waiting(self, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
        """Which of these agents would get an event by a claim now; one query for all, asked every second or so.

        ``attempts_max`` is a claim's.
        """
        ...
