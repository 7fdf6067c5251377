"""Who may use a connection now: so many at once, the others in a line, and what one leaves the next one takes over."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Turns of at most ``places`` callers at once; nobody waits longer than ``patience`` seconds.

    All wait equally long, so the first in line is the first to give up, and one timer serves them all. ``ended`` ends a
    turn whose caller was cancelled just when it was given one, with what was handed over.
    """

    def __init__(self, places: int, patience: float, ended: Callable[[T | None], Awaitable[None]]) -> None:
        self._places = places
        self._patience = patience
        self._ended = ended
        self._left: T | None = None
        self._line: deque[tuple[float, asyncio.Future[T | None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def take(self) -> T | None:
        """Wait for a turn; what was handed over with it or left for it, or None. Raises TimeoutError."""
        if self._places > 0:
            self._places -= 1
            return self.withdrawn()
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[T | None] = loop.create_future()
        self._line.append((loop.time() + self._patience, turn))
        if self._timer is None:
            self._timer = loop.call_later(self._patience, self._expire)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                await self._ended(turn.result())
            raise

    def hand_over(self, thing: T) -> bool:
        """End a turn by giving the next in line ``thing``; False where nobody waits, and the turn goes on."""
        return self._next(thing)

    def leave(self, thing: T) -> bool:
        """End a turn that nobody waits for, and leave ``thing`` for who comes next; False where something is left
        already, and the turn goes on."""
        if self._left is not None:
            return False
        self._left = thing
        self.end()
        return True

    def withdrawn(self) -> T | None:
        """What was left, which is nobody's then."""
        left, self._left = self._left, None
        return left

    def end(self) -> None:
        """End a turn; the next one begins with nothing."""
        if not self._next(None):
            self._places += 1

    def _next(self, thing: T | None) -> bool:
        while self._line:
            _, turn = self._line.popleft()
            if not turn.done():
                turn.set_result(thing)
                return True
        return False

    def _expire(self) -> None:
        """Refuse those whose patience is over, and come back for the one that is now first."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._line and (self._line[0][0] <= now or self._line[0][1].done()):
            _, turn = self._line.popleft()
            if not turn.done():
                turn.set_exception(TimeoutError())
        if self._line:
            self._timer = loop.call_at(self._line[0][0], self._expire)
