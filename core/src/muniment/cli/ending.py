"""How a command that holds something open ends at a signal: what runs is cancelled, and what was opened is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Self

from muniment.serving.signals import Caught

_log = logging.getLogger(__name__)


class Ending:
    """The first SIGTERM or SIGINT since it was made ends what ``completes`` runs; the third one kills the process.

    Made before anything is opened, so that no signal finds the process unprepared. ``signal`` is the one that came. As
    a context manager it gives the process its handlers back at the end.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._caught = Caught(self._on_first)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._caught.give_back()

    async def completes(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Run ``work``; False where a signal ended it, or came before it began. Raises what it raises."""
        if self.signal is not None:
            work.close()
            return False
        self._loop = asyncio.get_running_loop()
        self._task = task = asyncio.ensure_future(work)
        if self.signal is not None:
            self._cancel()
        try:
            await asyncio.wait([task])
        finally:
            self._cancel()
        return self._came_to_its_end(task)

    def _came_to_its_end(self, task: asyncio.Task[Any]) -> bool:
        cut_short = task.cancelled() or task.exception() is not None
        if cut_short and self.signal is not None:
            if not task.cancelled():
                _log.debug("what a signal ended failed", exc_info=task.exception())
            return False
        task.result()
        return True

    def _cancel(self) -> None:
        """Cancel what runs, once: a second time would cut short how it cleans up."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _on_first(self, number: int) -> None:
        self.signal = number
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)
