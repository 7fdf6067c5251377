"""The stream by which an agent learns that there is something to claim, as server-sent events.

It carries no event, and claims none: it says when to claim. ``claimable`` is said of whatever the agent could claim,
whichever process it came by, and of leases that ran out. A storage of contract 1.1 cannot tell these: then it is said
of what this process saw arrive, and ``check`` at the beginning and every ``CHECK_SECONDS``. The id is the agent's
place. Who comes back with that of now was told of all that arrived here: it is not told again at once, but when more
arrives, and after ``AGAIN_SECONDS`` of what still waits, since what others enqueued meanwhile is not told apart from
that. Who comes back with another, or with none, is told at once if something waits.
A stream is no way to keep what was revoked: every ``CHECK_SECONDS`` it ends unless the credentials still prove the
same.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Final

from muniment.engine.arrivals import Arrivals
from muniment.engine.lookout import PAUSE_SECONDS, Lookout
from muniment.models import Agent

MEDIA_TYPE = "text/event-stream"

HEADERS: Final[Mapping[str, str]] = {"Cache-Control": "private, no-cache", "X-Accel-Buffering": "no"}
"""By which what stands between neither keeps a stream nor holds its lines back; nginx listens to the latter."""

CHECK_SECONDS = 30.0
"""How often the credentials are looked at again, and the client hears something whatever arrives."""

STREAM_SECONDS = 300.0
"""How long one stream lasts; the client comes back."""

AGAIN_SECONDS = PAUSE_SECONDS
"""How long until who comes back is told again of what it was told of; as long as on a stream that goes on."""

RETRY_MILLISECONDS = 1_000
"""How long a client waits before it comes back."""

_STILL_HERE = b": nothing new\n\n"
"""A comment, which a client's library passes over, and by which a connection that is lost is found to be."""


class Places:
    """Places as event ids. Those of another process are of no use, so they begin with what is this one's own."""

    def __init__(self, arrivals: Arrivals, lookout: Lookout) -> None:
        self._arrivals = arrivals
        self._lookout = lookout
        self._run = secrets.token_hex(4)

    def id_of(self, place: int) -> str:
        """The event id of a place."""
        return f"{self._run}-{place}"

    async def stream(
        self, agent: Agent, last_id: str | None, ending: asyncio.Event, may_go_on: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[bytes]:
        """The lines of one stream, as long as it ``may_go_on``."""
        clock = asyncio.get_running_loop().time
        with ExitStack() as standing:
            place = self._arrivals.place(agent)
            was_told = last_id == self.id_of(place)
            yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
            if not was_told and not self._lookout.exact:
                yield self._said("check", place)
            ends, checks = clock() + STREAM_SECONDS, clock() + CHECK_SECONDS
            stands_by = clock() + AGAIN_SECONDS if was_told else clock()
            while not ending.is_set() and clock() < ends:
                if clock() >= stands_by:
                    standing.enter_context(self._lookout.standing_by(agent))
                    stands_by = math.inf
                arrived = await self._arrives(agent, place, min(ends, checks, stands_by) - clock(), ending)
                if ending.is_set():
                    return
                if not arrived and clock() < min(ends, checks):
                    continue
                if not arrived or clock() >= checks:
                    if not await may_go_on():
                        return
                    checks = clock() + CHECK_SECONDS
                if arrived and stands_by < math.inf:
                    stands_by = clock() + AGAIN_SECONDS
                place = self._arrivals.place(agent)
                yield self._said("claimable", place) if arrived else self._nothing_seen(place)

    async def _arrives(self, agent: Agent, place: int, seconds: float, ending: asyncio.Event) -> bool:
        """Whether something arrived before the end, and in time."""
        arriving = asyncio.ensure_future(self._arrivals.wait(agent, place))
        asked = asyncio.ensure_future(ending.wait())
        try:
            await asyncio.wait({arriving, asked}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return arriving.done()
        finally:
            arriving.cancel()
            asked.cancel()

    def _nothing_seen(self, place: int) -> bytes:
        return _STILL_HERE if self._lookout.exact else self._said("check", place)

    def _said(self, event: str, place: int) -> bytes:
        return f"event: {event}\nid: {self.id_of(place)}\ndata: {{}}\n\n".encode()
