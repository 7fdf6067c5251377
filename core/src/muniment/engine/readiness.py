"""Whether an engine can serve: whether its storage answers, and how its embedder is.

Whoever asks may be anybody, and as often as they like: one look answers all who ask meanwhile and shortly after.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from muniment.engine.embeddings import EmbedderState, Embeddings
from muniment.ports import Storage

log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0
"""How long the storage may take to answer."""
KEPT_SECONDS = 1.0
"""How long an answer is good."""


class StorageState(StrEnum):
    """Whether a storage answers."""

    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Readiness:
    """What was found. ``facts`` are the storage's ``describe``, versions and the schema's among them."""

    storage: StorageState
    embedder: EmbedderState
    facts: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def ready(self) -> bool:
        """Whether calls can be served. Without its embedder an engine serves them all the same."""
        return self.storage is StorageState.REACHABLE


class Looks:
    """Looks at a storage and an embedder, one at a time."""

    def __init__(self, storage: Storage, embeddings: Embeddings) -> None:
        self._storage = storage
        self._embeddings = embeddings
        self._look: asyncio.Task[Readiness] | None = None
        self._asking: asyncio.Task[Mapping[str, str] | None] | None = None
        self._good_until = 0.0

    async def readiness(self) -> Readiness:
        """What the latest look found, or one that is begun for this."""
        now = asyncio.get_running_loop().time()
        if self._look is None or (self._look.done() and now >= self._good_until):
            self._look = asyncio.create_task(self._found(), name="muniment-readiness")
        return await asyncio.shield(self._look)

    async def stop(self) -> None:
        """End a look that was begun."""
        begun = [task for task in (self._look, self._asking) if task is not None]
        for task in begun:
            task.cancel()
        if begun:
            await asyncio.wait(begun, timeout=ANSWER_SECONDS)

    async def _found(self) -> Readiness:
        # To give a question up may take a storage that hangs longer than its answer may take, so that is not waited
        # for; until it has, no other is put.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._facts(), name="muniment-storage-answers")
        answered, _ = await asyncio.wait({self._asking}, timeout=ANSWER_SECONDS)
        facts = self._asking.result() if answered else None
        state = StorageState.UNREACHABLE if facts is None else StorageState.REACHABLE
        self._good_until = asyncio.get_running_loop().time() + KEPT_SECONDS
        return Readiness(state, self._embeddings.state, facts or {})

    async def _facts(self) -> Mapping[str, str] | None:
        """What the storage says of itself; None where it does not answer."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                # One indexed look-up of what is never there, by the oldest method of the port that does so.
                await self._storage.find_receipt("", "")
                return dict(await self._storage.describe())
        except Exception as error:
            log.warning("the storage does not answer: %s", type(error).__name__)
            return None
