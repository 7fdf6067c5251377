"""The transport's seat: what the configuration says of it, and serving the application at an address.

The socket, the HTTP server and its end are core's. Opening and closing the engine is the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from muniment.models import ProjectPolicy
from muniment.plugin_options import PluginOptions, parse
from muniment.ports import Callers, PluginContext, Transport
from muniment.serving import sites
from muniment.serving.addresses import EXAMPLE, Address, Names
from muniment.serving.asgi import App
from muniment.serving.monitoring import Monitored
from muniment.serving.origins import Origin
from muniment_transport_http import openapi
from muniment_transport_http.app import build
from muniment_transport_http.entrance import Entrance
from muniment_transport_http.pages import open_to
from muniment_transport_http.served import Served

if TYPE_CHECKING:
    from muniment.engine import Engine


class Options(PluginOptions):
    """The table ``[plugins.transport-http]``."""

    projects: ProjectPolicy = ProjectPolicy.CREATE_MISSING
    cors_origins: tuple[Origin, ...] = Field(default=(), description="origins whose pages may call")


class HttpTransport:
    """Every operation over HTTP. Port 0 is one that the system chooses."""

    title = "HTTP"
    paths = ()

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options

    async def serve(self, engine: Engine, callers: Callers) -> None:
        """Serve until SIGTERM or SIGINT arrives, or the task is cancelled; see ``serving.sites.serve``."""
        await sites.serve([self], engine, callers)

    @contextlib.asynccontextmanager
    async def app(
        self, engine: Engine, callers: Callers, address: Address, ending: asyncio.Event
    ) -> AsyncGenerator[App]:
        """The application, as it is called at an address; its streams end with ``ending``."""
        served = Served(engine, callers, callers.url or address.url, self.options.projects, ending)
        yield application(served, address, self.options)

    def openapi(self) -> Mapping[str, Any]:
        """The document of a server that asks for credentials."""
        return openapi.document(authenticated=True)


def application(served: Served, address: Address, options: Options) -> App:
    """The whole ASGI application as it is called at an address."""
    names = Names.of(address, served.callers.url)
    pages = frozenset(options.cors_origins)
    entrance = Entrance(build(served), replace(names, origins=names.origins | pages), served)
    return Monitored(
        open_to(pages, entrance) if pages else entrance,
        served.engine,
        served.callers,
        names=names,
        resource=served.resource,
        rendered=entrance.rendered,
    )


def create(context: PluginContext) -> Transport:
    """The transport for ``http`` or ``http:http://HOST:PORT``. Raises ConfigurationError."""
    _, _, url = context.spec.partition(":")
    return HttpTransport(Address.of(url or f"http://{EXAMPLE}"), parse(Options, "transport-http", context.options))
