"""Streamable HTTP: any number of clients, each request on its own, for whoever sends it.

What a request must be before the SDK reads it, and who sends it, is ``admission``'s; what it means is ``server``'s. The
socket, the HTTP server and its end are core's.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from muniment.limits import BODY_MAX
from muniment.models import CallContext
from muniment.ports import METADATA_PATH, Callers
from muniment.serving import sites
from muniment.serving.addresses import Address, Names
from muniment.serving.asgi import App
from muniment.serving.monitoring import Monitored
from muniment_transport_mcp.admission import CALLER, PATH, Admission
from muniment_transport_mcp.server import Request, build_server

if TYPE_CHECKING:
    from muniment.engine import Engine


class HttpTransport:
    """The Model Context Protocol over streamable HTTP. Port 0 is one that the system chooses."""

    title = "MCP"
    paths = (PATH, METADATA_PATH + PATH)

    def __init__(self, address: Address) -> None:
        self.address = address

    @classmethod
    def at(cls, url: str) -> HttpTransport:
        """The transport for ``http://HOST:PORT``. Raises ConfigurationError."""
        return cls(Address.of(url))

    async def serve(self, engine: Engine, callers: Callers) -> None:
        """Serve until SIGTERM or SIGINT arrives, or the task is cancelled; see ``serving.sites.serve``."""
        await sites.serve([self], engine, callers)

    @contextlib.asynccontextmanager
    async def app(
        self, engine: Engine, callers: Callers, address: Address, ending: asyncio.Event
    ) -> AsyncGenerator[App]:
        """The application, as it is called at an address; it streams nothing."""
        sessions = StreamableHTTPSessionManager(
            build_server(engine, _caller),
            json_response=True,
            stateless=True,
            max_request_body_size=BODY_MAX,
        )
        names = Names.of(address, callers.url)
        resource = (callers.url or address.url) + PATH
        admission = Admission(sessions.handle_request, names, callers, resource)
        async with sessions.run():
            yield Monitored(admission, engine, callers, names=names, resource=resource, rendered=admission.rendered)


def url_of(listener: socket.socket) -> str:
    """The URL that clients use."""
    return Address.of_listener(listener).url + PATH


async def serve_on(listener: socket.socket, engine: Engine, callers: Callers, ending: asyncio.Event) -> None:
    """Serve on a socket that listens, until ``ending`` is set."""
    await sites.serve_at(listener, [HttpTransport(Address.of_listener(listener))], engine, callers, ending)


def _caller(request: Request) -> CallContext:
    """Who sends a request, as it was let in."""
    http: Any = request.request
    return http.scope[CALLER]
