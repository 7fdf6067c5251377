"""What is made good in the background: terms of an older analyser, and passages without their vectors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from muniment.engine.embeddings import Embeddings
from muniment.engine.terms import StoredTerms
from muniment.errors import MunimentError

log = logging.getLogger(__name__)

INTERVAL = 30.0
"""Seconds between looks for pending memories when nothing announced one."""


class Background:
    """One task that heals until nothing is left, and then waits for an announcement or the interval.

    Terms are healed once a start: two servers of different versions on one storage do not undo each other's for ever.
    """

    def __init__(self, terms: StoredTerms, embeddings: Embeddings) -> None:
        self._terms = terms
        self._embeddings = embeddings
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the task lives until ``stop``."""
        self._task = asyncio.create_task(self._run(), name="muniment-heal")

    async def stop(self) -> None:
        """End the task; what it had begun is whole or undone."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while await _healed(self._terms.heal):
            pass
        while True:
            self._embeddings.pending.clear()
            if not await _healed(self._embeddings.heal):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._embeddings.pending.wait(), INTERVAL)


async def _healed(step: Callable[[], Awaitable[int]]) -> int:
    """How many a step healed; a failure is logged and counts as none, so that it is tried again later."""
    try:
        return await step()
    except MunimentError as error:
        log.warning("healing in the background waits: %s", error)
    except Exception:
        log.exception("healing in the background failed")
    return 0
