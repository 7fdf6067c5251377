"""What has begun is waited for: a call that was cancelled is over when CancelledError leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns. A caller that is cancelled waits for its end before CancelledError leaves."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await over(running)
        raise


async def over(running: asyncio.Future[Any]) -> None:
    """Wait until something has ended, whatever became of it, and however often the caller is cancelled meanwhile."""
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    if not running.cancelled():
        running.exception()  # nobody is left to be told
