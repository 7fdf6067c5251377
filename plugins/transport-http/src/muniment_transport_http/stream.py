"""The stream by which an agent learns that there is something to claim, as server-sent events.

It carries no event, and claims none: it says when to claim. ``claimable`` is said of what this process saw arrive, and
``check`` at the beginning and every ``CHECK_SECONDS``, since a lease may have run out, and another process may have
enqueued something. The id is the agent's place; whoever comes back with it is told at once only of what arrived since.
A stream is no way to keep what was revoked: at each ``check`` it ends unless the credentials still prove the same.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable

from muniment.engine.arrivals import Arrivals
from muniment.models import Agent

MEDIA_TYPE = "text/event-stream"

CHECK_SECONDS = 30.0
"""How often the client is told to look whatever arrives, and its credentials are looked at again."""

STREAM_SECONDS = 300.0
"""How long one stream lasts; the client comes back."""

RETRY_MILLISECONDS = 1_000
"""How long a client waits before it comes back."""


class Places:
    """Places as event ids. Those of another process are of no use, so they begin with what is this one's own."""

    def __init__(self, arrivals: Arrivals) -> None:
        self.arrivals = arrivals
        self._run = secrets.token_hex(4)

    def id_of(self, place: int) -> str:
        """The event id of a place."""
        return f"{self._run}-{place}"

    async def stream(
        self, agent: Agent, last_id: str | None, ending: asyncio.Event, may_go_on: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[bytes]:
        """The lines of one stream, as long as it ``may_go_on``."""
        clock = asyncio.get_running_loop().time
        place = self.arrivals.place(agent)
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        if last_id != self.id_of(place):
            yield self._said("check", place)
        ends, checks = clock() + STREAM_SECONDS, clock() + CHECK_SECONDS
        while not ending.is_set() and clock() < ends:
            arrived = await self._arrives(agent, place, min(ends, checks) - clock(), ending)
            if ending.is_set():
                return
            if not arrived or clock() >= checks:
                if not await may_go_on():
                    return
                checks = clock() + CHECK_SECONDS
            place = self.arrivals.place(agent)
            yield self._said("claimable" if arrived else "check", place)

    async def _arrives(self, agent: Agent, place: int, seconds: float, ending: asyncio.Event) -> bool:
        """Whether something arrived before the end, and in time."""
        arriving = asyncio.ensure_future(self.arrivals.wait(agent, place))
        asked = asyncio.ensure_future(ending.wait())
        try:
            await asyncio.wait({arriving, asked}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return arriving.done()
        finally:
            arriving.cancel()
            asked.cancel()

    def _said(self, event: str, place: int) -> bytes:
        return f"event: {event}\nid: {self.id_of(place)}\ndata: {{}}\n\n".encode()
