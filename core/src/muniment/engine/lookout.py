"""Whoever stands by for events is told of what this process did not see arrive: what another one enqueued, and what
can be claimed again since its lease ran out. One question to the storage about all of them, about once a second.

Those for whom something goes on waiting are told again, after pauses that double: they may have claimed all there was
through another process, and more may have come since, which two looks do not tell apart.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from muniment import limits
from muniment.engine.arrivals import Arrivals
from muniment.errors import MunimentError
from muniment.models import Agent
from muniment.ports import WaitingStorage

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""The time between two looks; whoever begins to stand by is looked for at once."""

PAUSE_SECONDS = 1.0
"""How long until somebody is told again at first."""

PAUSE_SECONDS_MAX = 30.0
"""And at last."""


@dataclass(slots=True)
class _Standing:
    """An agent that is stood by for: how often, its place as of the last look, and when it is to be told again."""

    count: int
    place: int
    again_at: float | None = None
    pause: float = PAUSE_SECONDS

    def rest(self) -> None:
        """What waits from now on is told at the next look."""
        self.again_at, self.pause = None, PAUSE_SECONDS


class Lookout:
    """The looks. ``storage`` may be of a plugin that is older than the question, which nobody is then asked.

    ``clock`` counts seconds and never goes back.
    """

    def __init__(self, storage: object, arrivals: Arrivals, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage if isinstance(storage, WaitingStorage) else None
        self._arrivals = arrivals
        self._clock = clock
        self._standing: dict[Agent, _Standing] = {}
        self._looking: asyncio.Task[None] | None = None
        self._somebody_came: asyncio.Event | None = None
        self._failing = False

    @property
    def exact(self) -> bool:
        """Whether whoever stands by is told of all that there is to claim, and need not look by itself."""
        return self._storage is not None

    @contextmanager
    def standing_by(self, agent: Agent) -> Generator[None]:
        """While entered, the agent's arrivals rise for whatever there is to claim."""
        standing = self._standing.setdefault(agent, _Standing(0, self._arrivals.place(agent)))
        standing.count += 1
        # Whoever comes has been told of nothing yet.
        standing.rest()
        self._begin()
        try:
            yield
        finally:
            standing.count -= 1
            if not standing.count:
                del self._standing[agent]

    def claimed(self, agent: Agent) -> None:
        """An agent has claimed: what waits now is news to it."""
        if agent in self._standing:
            self._standing[agent].rest()

    async def look(self) -> None:
        """Ask once, and tell whom it concerns. Raises StorageUnavailable."""
        agents = list(self._standing)
        if self._storage is None or not agents:
            return
        waiting = await self._storage.agents_waiting(agents, attempts_max=limits.ATTEMPTS_MAX)
        for agent in agents:
            # It may have left meanwhile.
            if (standing := self._standing.get(agent)) is not None:
                self._tell(agent, standing, waits=agent in waiting)

    async def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
        await self.ended()

    async def ended(self) -> None:
        """Return once nothing is looked for, as it is soon after the last who stood by left."""
        if self._looking is not None:
            await asyncio.wait({self._looking})

    def _tell(self, agent: Agent, standing: _Standing, *, waits: bool) -> None:
        place = self._arrivals.place(agent)
        was_told = place != standing.place
        standing.place = place
        if not waits:
            standing.rest()
        elif was_told:
            standing.again_at, standing.pause = self._clock() + PAUSE_SECONDS, PAUSE_SECONDS
        elif standing.again_at is None or self._clock() >= standing.again_at:
            self._arrivals.note(agent)
            standing.place = self._arrivals.place(agent)
            standing.again_at = self._clock() + standing.pause
            standing.pause = min(2 * standing.pause, PAUSE_SECONDS_MAX)

    def _begin(self) -> None:
        """Look at once, and from then on for as long as somebody stands by."""
        if self._storage is None:
            return
        if self._looking is None or self._looking.done():
            self._somebody_came = asyncio.Event()
            self._looking = asyncio.create_task(self._look_out(self._somebody_came))
        elif self._somebody_came is not None:
            self._somebody_came.set()

    async def _look_out(self, somebody_came: asyncio.Event) -> None:
        while self._standing:
            somebody_came.clear()
            await self._try()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await somebody_came.wait()
            except TimeoutError:
                continue

    async def _try(self) -> None:
        """Look; while the storage cannot be asked nothing can be claimed either, and the log says so once."""
        try:
            await self.look()
        except Exception as error:
            if not self._failing:
                code = error.code if isinstance(error, MunimentError) else type(error).__name__
                log.warning("whose events wait cannot be asked: %s; it is tried again", code)
            self._failing = True
        else:
            self._failing = False
