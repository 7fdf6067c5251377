"""What is made good in the background: terms of an older analyser, and passages without their vectors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from muniment.engine.embeddings import Embeddings
from muniment.engine.terms import StoredTerms
from muniment.errors import EmbedderMismatch, MunimentError

log = logging.getLogger(__name__)

INTERVAL = 30.0
"""Seconds between looks for pending memories when nothing announced one."""
SOON = 1.0
"""Seconds until another look after one that failed, or found nothing of what was announced, which is committed only
after its announcement."""
LATER = 10.0
"""Each of several failures in a row doubles that time, up to so many: calls count on the recovery being noticed."""


class Background:
    """One task that heals until nothing is left, and then waits for an announcement or the interval.

    The model is loaded meanwhile. Terms are healed once a start: two servers of different versions on one storage do
    not undo each other's for ever.
    """

    def __init__(self, terms: StoredTerms, embeddings: Embeddings) -> None:
        self._terms = terms
        self._embeddings = embeddings
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the task lives until ``stop``, or until the embedder is refused."""
        self._task = asyncio.create_task(self._run(), name="muniment-heal")

    async def stop(self) -> None:
        """End the task; what it had begun is whole or undone."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        self._embeddings.load()
        announced, pause, old_terms = False, SOON, True
        while True:
            self._embeddings.pending.clear()
            old_terms = old_terms and not await self._terms_healed()
            try:
                healed = await _healed(self._embeddings.heal)
            except EmbedderMismatch as mismatch:
                log.error("no vectors are made or searched: %s", mismatch)
                return
            if healed is None:
                # Each write that is left pending announces it, and an outage has many.
                await asyncio.sleep(pause)
                pause = min(LATER, 2 * pause)
                continue
            pause = SOON
            announced = await self._announced(SOON if announced and healed == 0 else INTERVAL)

    async def _terms_healed(self) -> bool:
        """Heal the terms; whether that came to its end."""
        while healed := await _healed(self._terms.heal):
            pass
        return healed is not None

    async def _announced(self, seconds: float) -> bool:
        """Whether a pending memory was announced; waits for that, but not for longer."""
        try:
            async with asyncio.timeout(seconds):  # `wait_for` may lose a cancellation before Python 3.12
                await self._embeddings.pending.wait()
        except TimeoutError:
            return False
        return True


async def _healed(step: Callable[[], Awaitable[int]]) -> int | None:
    """How many a step healed; None for a failure, which is logged, so that it is tried again later.

    Raises EmbedderMismatch, which no later try cures.
    """
    try:
        return await step()
    except EmbedderMismatch:
        raise
    except MunimentError as error:
        log.warning("healing in the background waits: %s", error)
    except Exception:
        log.exception("healing in the background failed")
    return None
