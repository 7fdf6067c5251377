"""The target of ``muniment conform transport-http``: a server on a loopback socket for each caller."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2

from muniment.conformance import raw_http
from muniment.conformance.target import Reply, TransportTarget
from muniment.engine import Engine
from muniment.errors import ConfigurationError
from muniment.limits import BODY_MAX
from muniment.models import CallContext, ProjectPolicy
from muniment.ports import Callers
from muniment.serving.addresses import Address, listening
from muniment.serving.http import serve_app
from muniment_transport_http.conformance_client import HttpClient, asked, replied
from muniment_transport_http.served import SURFACE, Served
from muniment_transport_http.transport import Options, application

_HOST = "127.0.0.1"


class HttpTarget(TransportTarget):
    """The application as it is served; what becomes of unknown projects is a setting, and the suite's to choose."""

    name = "transport-http"
    contract = "1.2"
    surface = SURFACE
    body_limit = BODY_MAX

    @contextlib.asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[HttpClient]:
        """A client that keeps its connections."""
        async with _served(engine, Callers(context), context.project_policy) as server, server.connect(None) as client:
            await client.hello()
            yield client

    def server(self, engine: Engine, callers: Callers) -> AbstractAsyncContextManager[HttpServer]:
        """The application with its default settings."""
        return _served(engine, callers, Options().projects)

    def encoded(self, operation: str, payload: Mapping[str, Any]) -> bytes:
        """The members of the body."""
        return json.dumps(asked(operation, payload).body).encode()

    async def send(
        self,
        engine: Engine,
        context: CallContext,
        operation: str,
        pieces: AsyncIterator[bytes],
        announced: int | None,
    ) -> Reply:
        """The pieces as the body of a request."""
        request = asked(operation, {})
        headers = {"content-type": "application/json"}
        async with _served(engine, Callers(context), context.project_policy) as server:
            answer = await raw_http.ask(request.route.method, server.url + request.path, headers, pieces, announced)
        return replied(*answer)


class HttpServer:
    """A server at a loopback address."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextlib.asynccontextmanager
    async def connect(self, authorization: str | None) -> AsyncGenerator[HttpClient]:
        """A client with this header, or none."""
        headers = {} if authorization is None else {"authorization": authorization}
        async with httpx2.AsyncClient(timeout=None, trust_env=False, headers=headers) as http:
            yield HttpClient(http, self.url)


@contextlib.asynccontextmanager
async def _served(engine: Engine, callers: Callers, projects: ProjectPolicy) -> AsyncGenerator[HttpServer]:
    ending = asyncio.Event()
    with listening(Address(_HOST, 0)) as listener:
        address = Address.of_listener(listener)
        served = Served(engine, callers, address.url, projects, ending)
        serving = asyncio.create_task(serve_app(listener, application(served, address, Options()), ending))
        try:
            yield HttpServer(address.url)
        finally:
            ending.set()
            await serving


def target(url: str | None = None) -> HttpTarget:
    """The one target. Raises ConfigurationError for a ``url``, since it starts what it judges."""
    if url is not None:
        raise ConfigurationError("transport-http is judged over a socket of its own; leave --url out.")
    return HttpTarget()
