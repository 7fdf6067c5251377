"""Streamable HTTP: any number of clients on this machine, each request on its own, for the configured caller.

Owns the address, the socket and the end. What a request must be before the SDK reads it is ``admission``'s; what it
means is ``server``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from muniment.errors import ConfigurationError
from muniment.models import CallContext
from muniment_transport_mcp.admission import BODY_MAX, PATH, Admission
from muniment_transport_mcp.server import build_server
from muniment_transport_mcp.signals import end_on_signals
from muniment_transport_mcp.transport import over_mcp

if TYPE_CHECKING:
    from muniment.engine import Engine

logger = logging.getLogger(__name__)

FINISH_SECONDS = 8
"""How long begun requests may take once the server is asked to end. What supervises servers commonly kills ten seconds
after asking; what is left of that is for closing the storage."""

LEAVE_SECONDS = 0.5
"""How long a request that was cancelled may take to notice."""

_EXAMPLE = "127.0.0.1:8765"


class HttpTransport:
    """The Model Context Protocol over streamable HTTP, on a loopback address. Port 0 is one that the system chooses."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @classmethod
    def at(cls, url: str) -> HttpTransport:
        """The transport for ``http://HOST:PORT``. Raises ConfigurationError, also for a host of other machines."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        shown = f"[{host}]" if host and ":" in host else host
        if not host or port is None or url.lower() != f"http://{shown}:{port}":
            raise ConfigurationError(f"{url!r} is no address to serve MCP at; write HOST:PORT, such as {_EXAMPLE}.")
        return cls(_loopback(host), port)

    async def serve(self, engine: Engine, local: CallContext) -> None:
        """Serve until SIGTERM or SIGINT arrives, or the task is cancelled; where it listens goes to standard error.

        New connections are refused from then on, and requests that came in by then are answered first, for at most
        ``FINISH_SECONDS``. Signals are as over stdio. Raises ConfigurationError where the port cannot be had.
        """
        with listening(self.host, self.port) as listener:
            sys.stderr.write(f"muniment: serving MCP at {address(listener)}\n")
            sys.stderr.flush()
            await serve_on(listener, engine, local)


@contextlib.contextmanager
def listening(host: str, port: int) -> Generator[socket.socket]:
    """A socket that listens. Raises ConfigurationError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named outright, since asyncio sends small packets at once only on what says that it is TCP.
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)) as listener:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()
        except OSError as error:
            raise ConfigurationError(
                f"MCP cannot be served at {host} port {port} ({error.strerror}); end what holds it, or choose another."
            ) from None
        yield listener


def address(listener: socket.socket) -> str:
    """The URL that clients use."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


async def serve_on(listener: socket.socket, engine: Engine, local: CallContext) -> None:
    """Serve on a socket that listens; see ``HttpTransport.serve``."""
    context = over_mcp(local)
    host, port = address(listener).removeprefix("http://").removesuffix(PATH).rsplit(":", 1)
    names = dict.fromkeys((host, "127.0.0.1", "localhost", "[::1]"))
    sessions = StreamableHTTPSessionManager(
        build_server(engine, lambda _request: context),
        json_response=True,
        stateless=True,
        max_request_body_size=BODY_MAX,
        # A page of a foreign site reaches this port under its own name, by rebinding that; or it says where it is from.
        security_settings=TransportSecuritySettings(
            allowed_hosts=[*names, *(f"{name}:*" for name in names)],
            allowed_origins=[f"http://{name}:{port}" for name in names],
        ),
    )
    server = _Server(Admission(sessions.handle_request))
    end_on_signals(server.end)
    async with sessions.run():
        serving = asyncio.create_task(server.serve([listener]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.end()
            await serving
            raise
        finally:
            await server.cancelled()


class _Server(uvicorn.Server):
    """The HTTP server; signals are left to the process."""

    def __init__(self, app: Admission) -> None:
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=FINISH_SECONDS,
        )
        super().__init__(config)

    def end(self) -> None:
        """Take no more connections, and leave once what was begun is answered."""
        self.should_exit = True

    async def cancelled(self) -> None:
        """Wait for the requests that were not answered in time and are cancelled."""
        if self.server_state.tasks:
            logger.warning("requests that did not end in time are cancelled")
            await asyncio.wait(self.server_state.tasks, timeout=LEAVE_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


def _loopback(host: str) -> str:
    """The address of a host of this machine. Raises ConfigurationError for all others."""
    if host == "localhost":
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return host
    raise ConfigurationError(
        f"MCP is not served at {host!r}: over HTTP nobody is asked for credentials yet, so whoever reached the port "
        f"would be the configured user. Serve this machine alone, such as {_EXAMPLE}, and reach it through a tunnel."
    )
