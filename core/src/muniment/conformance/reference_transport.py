"""The reference transport, JSON texts in this process, and its target, the pattern for a transport plugin's own.

A request is an object with ``operation`` and ``input``, a reply one with ``record`` or ``refusal``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel

from muniment.conformance.target import Refused, RemoteClient, Reply, Server, TransportTarget
from muniment.engine import Engine
from muniment.errors import Internal, MunimentError
from muniment.limits import BODY_MAX
from muniment.models import CallContext
from muniment.operations import OPERATIONS
from muniment.ports import Callers
from muniment.serving import bodies, incidents


class ReferenceTransport:
    """Serves one engine to one caller."""

    def __init__(self, engine: Engine, context: CallContext) -> None:
        self.engine = engine
        self.context = context

    async def hello(self) -> Sequence[str]:
        """The operations that the caller may call, which a client asks for first."""
        return [name for name, operation in OPERATIONS.items() if operation.serves(self.context.principal)]

    async def serve(self, pieces: AsyncIterator[bytes], announced: int | None) -> str:
        """The reply to one request, which comes in pieces. ``announced`` is its length, where that was said."""
        try:
            request = await self.received(pieces, announced)
            operation, sent = self.parsed(request)
            record = await self.called(operation, sent)
        except MunimentError as refusal:
            return self.refused(refusal)
        except Exception as error:
            return self.failed(error)
        return self.answered(record)

    async def identified(self, callers: Callers, authorization: str | None) -> CallContext:
        """Who sends a request over a network. Raises what the authenticator raises."""
        return await callers.context(authorization)

    async def received(self, pieces: AsyncIterator[bytes], announced: int | None) -> bytes:
        """The whole request. Raises PayloadTooLarge before the limit is passed by more than a piece."""
        return await bodies.bounded(pieces, announced, BODY_MAX)

    def parsed(self, request: bytes) -> tuple[str, Mapping[str, Any]]:
        """The operation and its input."""
        message = json.loads(request)
        return message["operation"], message["input"]

    async def called(self, operation: str, sent: Mapping[str, Any]) -> BaseModel:
        """The record of an operation. Raises what the engine raises."""
        return await self.engine.call(operation, sent, self.context)

    def answered(self, record: BaseModel) -> str:
        """The reply that carries a record; over a network it says no more of the server's parts than a refusal does."""
        return f'{{"record":{incidents.disclosed(record).model_dump_json()}}}'

    def refused(self, refusal: MunimentError) -> str:
        """The reply that carries a refusal; of what is the server's own it says no more than an id."""
        if refusal.code == Internal.code:
            return self.failed(refusal)
        return json.dumps({"refusal": incidents.shown(refusal, "a request").body()})

    def failed(self, error: Exception) -> str:
        """The reply where something failed inside; the log has the rest."""
        return json.dumps({"refusal": incidents.incident(error, "a request").body()})


class ReferenceClient:
    """A client of a reference transport."""

    def __init__(self, transport: ReferenceTransport) -> None:
        self._transport = transport

    async def call(self, operation: str, payload: Mapping[str, Any]) -> Reply:
        """Run an operation. Raises Refused."""
        request = _request(operation, payload)
        body = await self._transport.serve(Whole(request), len(request))
        return Reply(record_of(body), body)


class ReferenceServer:
    """The reference transport as over a network: each request has a header, and is of whom that proves."""

    def __init__(self, transport: type[ReferenceTransport], engine: Engine, callers: Callers) -> None:
        self._door = transport(engine, callers.local)
        self._transport = transport
        self._engine = engine
        self._callers = callers

    @asynccontextmanager
    async def connect(self, authorization: str | None) -> AsyncGenerator[RemoteClient]:
        """A client with this header."""
        yield _WithHeader(self, authorization)

    async def reply(self, authorization: str | None, request: bytes) -> str:
        """The reply to one request."""
        try:
            context = await self._door.identified(self._callers, authorization)
        except MunimentError as refusal:
            return self._door.refused(refusal)
        except Exception as error:
            return self._door.failed(error)
        return await self._transport(self._engine, context).serve(Whole(request), len(request))


class _WithHeader:
    def __init__(self, server: ReferenceServer, authorization: str | None) -> None:
        self._server = server
        self._authorization = authorization

    async def call(self, operation: str, payload: Mapping[str, Any]) -> Reply:
        """Run an operation. Raises Refused."""
        body = await self._server.reply(self._authorization, _request(operation, payload))
        return Reply(record_of(body), body)


class ReferenceTransportTarget(TransportTarget):
    """The reference transport, or a subclass of it."""

    name = "reference-transport"
    distribution = "muniment"
    real = False
    contract = "1.2"
    body_limit = BODY_MAX

    def __init__(self, transport: type[ReferenceTransport] = ReferenceTransport) -> None:
        self._transport = transport

    @asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[RemoteClient]:
        """A client that knows its operations."""
        transport = self._transport(engine, context)
        await transport.hello()
        yield ReferenceClient(transport)

    @asynccontextmanager
    async def server(self, engine: Engine, callers: Callers) -> AsyncGenerator[Server]:
        """One that knows nothing of sockets."""
        yield ReferenceServer(self._transport, engine, callers)

    def encoded(self, operation: str, payload: Mapping[str, Any]) -> bytes:
        """The request itself, which names its operation."""
        return _request(operation, payload)

    async def send(
        self,
        engine: Engine,
        context: CallContext,
        operation: str,
        pieces: AsyncIterator[bytes],
        announced: int | None,
    ) -> Reply:
        """The pieces as the request of a new connection."""
        body = await self._transport(engine, context).serve(pieces, announced)
        return Reply(record_of(body), body)


def _request(operation: str, payload: Mapping[str, Any]) -> bytes:
    return json.dumps({"operation": operation, "input": payload}).encode()


class Whole:
    """A request in one piece."""

    def __init__(self, request: bytes) -> None:
        self.pieces = [request]

    def __aiter__(self) -> Whole:
        return self

    async def __anext__(self) -> bytes:
        if not self.pieces:
            raise StopAsyncIteration
        return self.pieces.pop()


def record_of(body: str) -> dict[str, Any]:
    """What a reply carries. Raises Refused."""
    message = json.loads(body)
    if "refusal" in message:
        refusal = message["refusal"]
        raise Refused(refusal["code"], refusal["message"], refusal.get("details", {}))
    return message["record"]
