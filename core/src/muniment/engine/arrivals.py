"""What became claimable by this process: a place for each agent, which rises, and a wait for it to rise.

It forgets with the process, and knows nothing of what other processes enqueue or of leases that run out: for these
``lookout`` asks the storage, where that can tell.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from muniment.models import Agent

AGENTS_KEPT = 10_000
"""Agents whose place is known exactly; those that had nothing for longest share one that is no lower than theirs."""


class Arrivals:
    """The places, from 0."""

    def __init__(self) -> None:
        self._last = 0
        self._shared = 0
        self._places: OrderedDict[Agent, int] = OrderedDict()
        self._waiting: dict[Agent, set[asyncio.Event]] = {}

    def place(self, agent: Agent) -> int:
        """An agent's place; it is higher after each arrival."""
        return self._places.get(agent, self._shared)

    def note(self, agent: Agent) -> None:
        """Something became claimable for an agent."""
        self._last += 1
        self._places[agent] = self._last
        self._places.move_to_end(agent)
        if len(self._places) > AGENTS_KEPT:
            self._shared = self._places.popitem(last=False)[1]
        for waiting in self._waiting.get(agent, ()):
            waiting.set()

    def waited_for(self, agent: Agent) -> bool:
        """Whether somebody waits for an agent's."""
        return agent in self._waiting

    async def wait(self, agent: Agent, since: int) -> None:
        """Return once an agent's place is no longer ``since``."""
        arrived = asyncio.Event()
        self._waiting.setdefault(agent, set()).add(arrived)
        try:
            if self.place(agent) == since:
                await arrived.wait()
        finally:
            waiting = self._waiting[agent]
            waiting.discard(arrived)
            if not waiting:
                del self._waiting[agent]
