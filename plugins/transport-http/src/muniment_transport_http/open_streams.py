"""How many streams may be open: a few for each principal, and no more for all than leave room for requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import StreamingResponse

from muniment.errors import RateLimited
from muniment.models import Agent, Principal
from muniment.serving.asgi import Receive, Scope, Send

OWN_MAX = 8
"""Streams at once of one principal, which is a user, or one agent instance of a user's."""

ALL_MAX = 192
"""Streams at once of all. With the requests that may wait they are fewer than the server's connections."""

RETRY_SECONDS = 30
"""How long who has no place is told to wait."""


class OpenStreams:
    """The streams of one application."""

    def __init__(self) -> None:
        self._open: Counter[tuple[str, Agent | None]] = Counter()

    def admit(self, principal: Principal) -> Callable[[], None]:
        """Take a place; what is returned gives it back. Raises RateLimited."""
        owner = (principal.user, principal.agent)
        if self._open[owner] >= OWN_MAX:
            raise _none_left(f"You may have {OWN_MAX} streams open at once; close one", OWN_MAX)
        if self._open.total() >= ALL_MAX:
            raise _none_left(f"There are {ALL_MAX} streams open, and may be no more; claim without one", ALL_MAX)
        self._open[owner] += 1

        def give_back() -> None:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]

        return give_back


def _none_left(why: str, limit: int) -> RateLimited:
    message = f"{why}, or wait {RETRY_SECONDS} s and try again."
    return RateLimited(message, limit=limit, retry_after=RETRY_SECONDS)


class Held(StreamingResponse):
    """A stream that gives its place back however it ends, also before its first line."""

    def __init__(self, lines: Any, give_back: Callable[[], None], headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(lines, headers=headers, media_type=media_type)
        self._give_back = give_back

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._give_back()
