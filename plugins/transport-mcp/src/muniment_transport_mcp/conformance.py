"""The targets of ``muniment conform transport-mcp``: over stdio, and over streamable HTTP on a loopback socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import httpx2
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from muniment.conformance.target import Reply, TransportTarget
from muniment.engine import Engine
from muniment.errors import ConfigurationError
from muniment.limits import BODY_MAX
from muniment.models import CallContext
from muniment.ports import Callers
from muniment.serving.addresses import Address, listening
from muniment_transport_mcp.conformance_client import McpClient, OverHttp, OverLines, call_of
from muniment_transport_mcp.http import serve_on, url_of
from muniment_transport_mcp.server import build_server
from muniment_transport_mcp.session import converse
from muniment_transport_mcp.tools import tool_name
from muniment_transport_mcp.transport import POLICY, SURFACE, over_mcp
from muniment_transport_mcp.wire import Wire

_LINE_MAX = 2**26
_HOST = "127.0.0.1"


class McpTarget(TransportTarget):
    """What both carriers have in common; ``revision`` is the protocol's that the client speaks."""

    name = "transport-mcp"
    contract = "1.2"
    surface = SURFACE
    policy = POLICY
    carrier = ""

    def __init__(self, revision: str) -> None:
        self.revision = revision

    def describe(self) -> Mapping[str, str]:
        """The carrier and the revision."""
        return {"carrier": self.carrier, "revision": self.revision}

    def spelled(self, operation: str) -> str:
        """The tool's name."""
        return tool_name(operation)


class StdioTarget(McpTarget):
    """A session as over the standard streams, whose two ends are in this process."""

    carrier = "stdio"
    network = False

    @contextlib.asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[McpClient]:
        """A client at the other end of the lines."""
        ours, theirs = socket.socketpair()
        caller = over_mcp(context)
        with contextlib.closing(theirs):
            wire = Wire(theirs.fileno(), theirs.fileno())
            served = build_server(engine, lambda _request: caller, local=True)
            serving = asyncio.create_task(converse(served, wire))
            reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_MAX)
            lines = OverLines(reader, writer)
            try:
                client = McpClient(lines, self.revision)
                await client.hello()
                yield client
            finally:
                writer.write_eof()
                await serving
                await lines.close()


class HttpTarget(McpTarget):
    """A server of its own for each caller, on a port that the system chooses."""

    carrier = "http"
    body_limit = BODY_MAX

    @contextlib.asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[McpClient]:
        """A client that keeps its connections."""
        async with self._served(engine, context) as carrier:
            client = McpClient(carrier, self.revision)
            await client.hello()
            yield client

    def encoded(self, operation: str, payload: Mapping[str, Any]) -> bytes:
        """The message."""
        return json.dumps(call_of(operation, payload, self.revision)).encode()

    async def send(
        self,
        engine: Engine,
        context: CallContext,
        operation: str,
        pieces: AsyncIterator[bytes],
        announced: int | None,
    ) -> Reply:
        """The pieces as the body of a request."""
        async with self._served(engine, context) as carrier:
            return await carrier.send(operation, pieces, announced)

    @contextlib.asynccontextmanager
    async def server(self, engine: Engine, callers: Callers) -> AsyncGenerator[McpServer]:
        """A server for all callers."""
        ending = asyncio.Event()
        with listening(Address(_HOST, 0)) as listener:
            serving = asyncio.create_task(serve_on(listener, engine, callers, ending))
            try:
                yield McpServer(url_of(listener), self.revision)
            finally:
                ending.set()
                await serving

    @contextlib.asynccontextmanager
    async def _served(self, engine: Engine, context: CallContext) -> AsyncGenerator[OverHttp]:
        async with self.server(engine, Callers(context)) as server, server.carrier(None) as carrier:
            yield carrier


class McpServer:
    """A server at a URL. Over HTTP a call needs no hello, whatever the revision."""

    def __init__(self, url: str, revision: str) -> None:
        self.url = url
        self.revision = revision

    @contextlib.asynccontextmanager
    async def connect(self, authorization: str | None) -> AsyncGenerator[McpClient]:
        """A client with this header, or none."""
        async with self.carrier(authorization) as carrier:
            yield McpClient(carrier, self.revision)

    @contextlib.asynccontextmanager
    async def carrier(self, authorization: str | None) -> AsyncGenerator[OverHttp]:
        """The connections of such a client."""
        headers = {} if authorization is None else {"authorization": authorization}
        async with httpx2.AsyncClient(timeout=None, trust_env=False, headers=headers) as http:
            yield OverHttp(http, self.url, self.revision)


def target(url: str | None = None) -> McpTarget:
    """The target for ``stdio:`` (the default) or ``http:``, with a revision behind it if not the carrier's usual one.

    Over stdio clients begin by a handshake, over HTTP each request is complete in itself. Raises ConfigurationError.
    """
    carrier, _, revision = (url or "stdio:").partition(":")
    targets = {
        "stdio": (StdioTarget, HANDSHAKE_PROTOCOL_VERSIONS[-1]),
        "http": (HttpTarget, MODERN_PROTOCOL_VERSIONS[-1]),
    }
    known = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
    if carrier not in targets or (revision and revision not in known):
        raise ConfigurationError(
            f"transport-mcp is not judged over {url!r}; use 'stdio:' or 'http:', which may be followed by a revision "
            f"of the protocol, such as http:{HANDSHAKE_PROTOCOL_VERSIONS[-1]}."
        )
    kind, usual = targets[carrier]
    return kind(revision or usual)
