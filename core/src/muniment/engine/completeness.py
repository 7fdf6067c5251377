"""How much of the active space there is, for the searches that answer from it: known without asking, where it is whole.

The storage is asked when the space is entered, after a write that left passages without vectors, and every few seconds
while some lack them. Where nothing looks after the space in the background it is asked as often when none do.
"""

from __future__ import annotations

import asyncio
import logging

from muniment.engine.space_registry import share_of
from muniment.engine.spaces import registry_of
from muniment.ports import Progress, SpaceStorage, Storage

log = logging.getLogger(__name__)

REFRESH_SECONDS = 2.0
"""How long an answer is good while memories lack vectors."""


def notice(progress: Progress, aside: int = 0) -> str | None:
    """What a search says while memories lack vectors; None where none do but those that cannot have any."""
    if progress.memories - progress.complete <= aside:
        return None
    return f"reembedding {share_of(progress)}%"


class Completeness:
    """The progress of one space. ``looked_after`` says that whoever fills it in the background tells of changes."""

    def __init__(self, storage: Storage, *, looked_after: bool) -> None:
        self._registry: SpaceStorage | None = registry_of(storage)
        self._looked_after = looked_after
        self._known = Progress(0, 0)
        self._changes = 1
        self._changed_at = -REFRESH_SECONDS
        self._answered = 0
        """How many of the changes the known progress is after."""
        self._asked_at = 0.0
        self._asking: asyncio.Task[None] | None = None

    @property
    def whole(self) -> bool:
        """Whether no memory lacked vectors when the storage was asked last."""
        return self._known.complete >= self._known.memories

    def changed(self) -> None:
        """The space may have become incomplete, or complete; the next search asks, and waits for the answer."""
        self._changes += 1
        self._changed_at = asyncio.get_running_loop().time()

    async def notice(self, space: str, aside: int = 0) -> str | None:
        """What a search that answers from ``space`` says of it. Raises StorageUnavailable."""
        if self._registry is None:
            return None
        changes = self._changes
        while self._answered < changes:
            await asyncio.shield(self._question(self._registry, space))
        if self._is_stale():
            self._question(self._registry, space)
        return notice(self._known, aside)

    async def stop(self) -> None:
        """End a question that was put."""
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()
            await asyncio.wait([self._asking])

    def _is_stale(self) -> bool:
        # What was announced may not be committed yet, so that an answer which came shortly after is not the last.
        if self.whole and self._looked_after and self._asked_at - self._changed_at >= REFRESH_SECONDS:
            return False
        return asyncio.get_running_loop().time() - self._asked_at >= REFRESH_SECONDS

    def _question(self, registry: SpaceStorage, space: str) -> asyncio.Task[None]:
        """The one that is put, or is put now."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(registry, space), name="muniment-space-progress")
            self._asking.add_done_callback(_noted)
        return self._asking

    async def _ask(self, registry: SpaceStorage, space: str) -> None:
        changes, asked_at = self._changes, asyncio.get_running_loop().time()
        self._known = await registry.space_progress(space)
        self._answered, self._asked_at = changes, asked_at


def _noted(asking: asyncio.Task[None]) -> None:
    """A question that failed is put again; whoever waited for it has its error."""
    if not asking.cancelled() and (error := asking.exception()) is not None:
        log.debug("the progress of the active space is not known: %s", error)
