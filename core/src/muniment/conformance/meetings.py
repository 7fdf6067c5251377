"""Two calls that meet before the storage's methods, one of which stands there before the other begins.

``World.race`` lets the last one that comes go on after the others. So who reads before a wait, and writes what it read
after it, is seen where it is the last one; each order is tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from muniment.conformance.invariant import NotExercised
from muniment.conformance.world import World

Calling = Callable[[], Awaitable[Any]]


async def in_either_order(world: World, methods: tuple[str, str], turn: int, one: Calling, other: Calling) -> None:
    """Let two calls meet before ``methods``, of which each reaches one: ``one`` comes first where ``turn`` is even."""
    first, last = (other, one) if turn % 2 else (one, other)
    async with world.race(2, *methods) as held:
        running = asyncio.ensure_future(first())
        begun = asyncio.ensure_future(held.begun.wait())
        await asyncio.wait({running, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if running.done():
            await running
            raise NotExercised(f"a call that was to be held never reached Storage.{' or '.join(methods)}")
        await asyncio.gather(running, last())
