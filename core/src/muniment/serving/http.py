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

from muniment.serving.asgi import App

logger = logging.getLogger(__name__)

FINISH_SECONDS = 8
"""How long begun requests may take once the server is asked to end. What supervises servers commonly kills ten seconds
after asking; what is left of that is for closing the storage."""

LEAVE_SECONDS = 0.5
"""How long a request that was cancelled may take to notice, and its connection to go."""

IDLE_SECONDS = 10
"""How long a connection may be without a request, or with a part of its head."""

CONNECTIONS_MAX = 512
"""Connections at once; a request on any more is answered by 503."""


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
            app,
            interface="asgi3",
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
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
    """A connection that is closed where no request comes, also the first one, or its head does not end."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Go on waiting where that was not the end of a head."""
        super().data_received(data)
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            self._await_head()

    def _await_head(self) -> None:
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
