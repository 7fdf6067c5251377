"""What has begun is waited for: a call that was cancelled is over when CancelledError leaves it, and it does leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
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


async def heeded(work: Awaitable[T]) -> T:
    """What ``work`` returns; CancelledError where its caller was cancelled meanwhile and ``work`` went on regardless.

    Before Python 3.12 ``asyncio.wait_for``, which drivers use, loses a cancellation that comes just as what it waits
    for has ended.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    result = await work
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return result


async def over(running: asyncio.Future[Any]) -> None:
    """Wait until something has ended, whatever became of it, and however often the caller is cancelled meanwhile."""
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    if not running.cancelled():
        running.exception()  # nobody is left to be told
