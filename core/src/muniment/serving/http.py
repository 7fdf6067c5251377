"""The HTTP server around an ASGI application: its limits, and how it ends. Needs uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from muniment.serving.asgi import App, Receive, Scope, Send
from muniment.serving.doorway import UNAVAILABLE, UNAVAILABLE_SECONDS
from muniment.serving.messages import in_plain_form

logger = logging.getLogger(__name__)

FINISH_SECONDS = 8
"""How long begun requests may take once the server is asked to end. What supervises servers commonly kills ten seconds
after asking; what is left of that is for closing the storage."""

LEAVE_SECONDS = 0.5
"""How long a request that was cancelled may take to notice, and its connection to go."""

IDLE_SECONDS = 10
"""How long a connection may be without a request, or with a part of its head."""

TAKE_SECONDS = 30.0
TAKEN_LEAST = 32_768
"""In how long a client must take how many bytes of an answer that waits for it, or all that is left; one that takes
less has no use for it, and its connection is cut."""

CONNECTIONS_MAX = 768
"""Connections at once. For one more, that which has been without a request for longest is closed; where all have one,
the new one's is answered by 503. Requests that wait and streams have limits of their own, which together are lower for
two protocols at one address, so that a probe is answered when these are reached."""


_FULL = b"Every connection that there may be has a request; try again in a moment."


async def serve_app(listener: socket.socket, app: App, ending: asyncio.Event) -> None:
    """Serve ``app`` until ``ending`` is set, or this task is cancelled, which sets it.

    No connection is taken from then on, and requests that came in by then are answered first, for at most
    ``FINISH_SECONDS``; then they are cancelled, and connections that are still there are cut. Raises what the server
    raised.
    """
    server = _Server(app)
    serving = asyncio.create_task(server.serve([listener]))
    asked = asyncio.create_task(ending.wait())
    try:
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
        ending.set()
        server.should_exit = True
        await asyncio.wait({serving}, timeout=FINISH_SECONDS)
        await server.give_up()
        await asyncio.wait({serving})
        serving.result()


async def _full(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer a request on one connection too many."""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(_FULL)).encode()),
        (b"retry-after", str(UNAVAILABLE_SECONDS).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": UNAVAILABLE, "headers": headers})
    await send({"type": "http.response.body", "body": _FULL})


class _Server(uvicorn.Server):
    """The server; signals are left to the process."""

    def __init__(self, app: App) -> None:
        config = uvicorn.Config(
            in_plain_form(app),
            interface="asgi3",
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
        )
        super().__init__(config)

    async def give_up(self) -> None:
        """Cancel the requests that were not answered in time, and cut the connections that do not go.

        The library would do the former, and log an error for each answer that had begun, as that of a stream, or
        waits for a client that does not read: these are cut first, since nothing else can be said to them.
        """
        if not self.server_state.tasks and not self.server_state.connections:
            return
        logger.warning("requests that did not end in time are cancelled")
        connections = cast("set[_Protocol]", self.server_state.connections)
        for connection in [one for one in connections if one.is_answering or one.flow.write_paused]:
            connection.transport.abort()
        # Until then its request does not know that it is lost.
        await asyncio.sleep(0)
        for task in self.server_state.tasks:
            task.cancel()
        await self._left()
        for connection in list(connections):
            connection.transport.abort()
        await self._left()
        self.force_exit = True

    async def _left(self) -> None:
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=LEAVE_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


class _Protocol(H11Protocol):
    """A connection that is closed where no request comes, also the first one, or its head does not end; sooner where
    its place is needed. It is cut where its client does not take the answer."""

    idle_since = 0.0
    _look: asyncio.TimerHandle | None = None
    _left: int | None = None
    """Bytes that waited for the client at the last look, if none could be added since."""

    def connection_made(self, transport: Any) -> None:
        """Take a place, and begin to wait."""
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()
        self._await_head()

    def on_response_complete(self) -> None:
        """Begin to wait again."""
        self.idle_since = self.loop.time()
        super().on_response_complete()
        self._await_taking()

    def pause_writing(self) -> None:
        """Add nothing to what waits for the client, and look whether it takes that."""
        super().pause_writing()
        self._await_taking()

    def resume_writing(self) -> None:
        """Go on: what waits may be more at the next look."""
        super().resume_writing()
        self._left = None

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, once the client has taken what waits for it."""
        super().timeout_keep_alive_handler()
        self._await_taking()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and close likewise."""
        super().send_400_response(msg)
        self._await_taking()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on waiting where that was not the end of a head."""
        super().data_received(data)
        if self.is_idle:
            self._await_head()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    @property
    def is_answering(self) -> bool:
        """Whether an answer has begun and not ended."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and cycle.response_started and not cycle.response_complete

    def _make_room(self) -> None:
        """Close the connection that has been idle for longest; else requests on this one are refused."""
        others = cast("set[_Protocol]", self.connections) - {self}
        there = [one for one in others if not one.transport.is_closing()]
        if len(there) < CONNECTIONS_MAX:
            return
        idle = min((one for one in there if one.is_idle), key=lambda one: one.idle_since, default=None)
        if idle is not None:
            idle.timeout_keep_alive_handler()
        else:
            self.app = _full

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: anybody can ask for another protocol, and is answered in this one."""

    def _await_taking(self) -> None:
        """Look in a while what the client has taken, where something waits for it."""
        if self._look is None and self.transport.get_write_buffer_size():
            self._left = self._waiting()
            self._look = self.loop.call_later(TAKE_SECONDS, self._check_taking)

    def _check_taking(self) -> None:
        self._look = None
        before, now = self._left, self._waiting()
        if before is not None and now is not None and now > max(0, before - TAKEN_LEAST):
            logger.info("a client that does not take its answer is cut off")
            self.transport.abort()
        else:
            self._await_taking()

    def _waiting(self) -> int | None:
        """How many bytes wait for the client; None where more may be added by the next look."""
        fixed = self.flow.write_paused or self.transport.is_closing()
        return self.transport.get_write_buffer_size() if fixed else None

    def _await_head(self) -> None:
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
