"""What all parts of the reference storage share: the clock, and the moment in which others run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime


class Base:
    """``clock`` is the storage's: microseconds, UTC."""

    clock: Callable[[], datetime]

    async def pause(self) -> None:
        """Let others run, as any storage that waits for a server does."""
        await asyncio.sleep(0)
