"""The registry of spaces, and how a space is filled, made the active one, and dropped.

A space that is being filled, one that serves and one that is kept to go back to differ only in what the registry says
of them: which embedder is used is decided by the configuration, and every vector names its space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from muniment.ports.vectors import Space, Unembedded


@dataclass(frozen=True, slots=True)
class RegisteredSpace:
    """A space as the registry has it. ``embedder`` is what the configuration called its embedder when it was activated.

    Of all spaces the one that was activated last is the active one; one without a time was never active.
    """

    space: Space
    embedder: str | None
    registered_at: datetime
    activated_at: datetime | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How many live memories there are, and how many of them have all their passages in a space."""

    complete: int
    memories: int


@runtime_checkable
class SpaceStorage(Protocol):
    """Keeps the registry of spaces. Times are the storage's clock."""

    async def list_spaces(self) -> Sequence[RegisteredSpace]:
        """Every registered space, by ``registered_at``, then ``id``."""
        ...

    async def activate_space(self, space: str, embedder: str) -> bool:
        """Make a registered space the active one, and note what the configuration calls its embedder.

        False where it is active already, which leaves its time as it is. Raises ConfigurationError for one that is not
        registered.
        """
        ...

    async def space_progress(self, space: str) -> Progress:
        """The counts, of one moment; of a space that is not registered none is complete."""
        ...

    async def lease_unembedded(
        self, space: str, *, after: str | None, limit: int, lease: timedelta
    ) -> Sequence[Unembedded]:
        """Live memories whose passages in a space are not complete and that nobody has a lease on, by id, above
        ``after``; whoever gets them has a lease on each.

        Of callers at one time each memory goes to one. A lease ends with ``store_passages`` of its memory, with its
        time, and with a mutation of the memory; no write waits for one. Raises ConfigurationError for a
        space that is not registered.
        """
        ...

    async def drop_space(self, space: str) -> bool:
        """Delete a space, its passages in whatever state, and its own indexes; False, and nothing is done, for the
        active one and for one that is not registered.

        Works in bounded steps, so that other calls go on. Interrupted, it leaves a space that is registered still and
        in which every memory that counts as complete is complete; called again, it ends the work.
        """
        ...


@runtime_checkable
class MaintainedStorage(Protocol):
    """Does what a grown storage needs now and then, online: reads and writes go on meanwhile."""

    async def optimize(self) -> Sequence[str]:
        """Build approximate indexes where a space has outgrown exact search, drop those that nothing needs any more,
        and put into order what searches read in order; what was done, a sentence each, nothing twice.

        Interrupted, it leaves nothing that a later call does not mend. From several processes at once, one does the
        work.
        """
        ...
