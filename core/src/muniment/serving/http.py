"""The HTTP server around an ASGI application: its limits, and how it ends. Needs uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from muniment.serving.asgi import App
from muniment.serving.messages import in_plain_form

logger = logging.getLogger(__name__)

FINISH_SECONDS = 8
"""How long begun requests may take once the server is asked to end. What supervises servers commonly kills ten seconds
after asking; what is left of that is for closing the storage."""

LEAVE_SECONDS = 0.5
"""How long a request that was cancelled may take to notice, and its connection to go."""

IDLE_SECONDS = 10
"""How long a connection may be without a request, or with a part of its head."""

CONNECTIONS_MAX = 768
"""Connections at once. For one more, that which has been without a request for longest is closed; where all have one,
the new one's is answered by 503. Requests that wait and streams have limits of their own, which together are lower for
two protocols at one address, so that a probe is answered when these are reached."""


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
        await asyncio.wait({serving})
        await server.cut()
        serving.result()


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
            timeout_graceful_shutdown=FINISH_SECONDS,
        )
        super().__init__(config)

    async def cut(self) -> None:
        """Wait for the requests that were not answered in time and are cancelled, and cut what does not go.

        A client that does not read keeps its request waiting whatever becomes of that, until its connection is lost.
        """
        if not self.server_state.tasks and not self.server_state.connections:
            return
        logger.warning("requests that did not end in time are cancelled")
        await self._left()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await self._left()

    async def _left(self) -> None:
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=LEAVE_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


class _Protocol(H11Protocol):
    """A connection that is closed where no request comes, also the first one, or its head does not end; sooner where
    its place is needed."""

    idle_since = 0.0

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
            self.app = service_unavailable

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: anybody can ask for another protocol, and is answered in this one."""

    def _await_head(self) -> None:
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
