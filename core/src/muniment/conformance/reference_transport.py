"""The reference transport, JSON texts in this process, and its target, the pattern for a transport plugin's own.

A request is an object with ``operation`` and ``input``, a reply one with ``record`` or ``refusal``.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel

from muniment.conformance.target import Refused, RemoteClient, Reply, TransportTarget
from muniment.engine import Engine
from muniment.errors import Internal, MunimentError, PayloadTooLarge
from muniment.models import CallContext
from muniment.operations import OPERATIONS

log = logging.getLogger(__name__)

BODY_MAX = 8_000_000
"""The bytes that a request may have."""


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

    async def received(self, pieces: AsyncIterator[bytes], announced: int | None) -> bytes:
        """The whole request. Raises PayloadTooLarge before the limit is passed by more than a piece."""
        if announced is not None and announced > BODY_MAX:
            raise self.too_large()
        body = bytearray()
        async for piece in pieces:
            body += piece
            if len(body) > BODY_MAX:
                raise self.too_large()
        return bytes(body)

    def too_large(self) -> MunimentError:
        """The refusal of a request over the limit."""
        return PayloadTooLarge(f"A request may have {BODY_MAX} bytes; send less at once.", limit=BODY_MAX)

    def parsed(self, request: bytes) -> tuple[str, Mapping[str, Any]]:
        """The operation and its input."""
        message = json.loads(request)
        return message["operation"], message["input"]

    async def called(self, operation: str, sent: Mapping[str, Any]) -> BaseModel:
        """The record of an operation. Raises what the engine raises."""
        return await self.engine.call(operation, sent, self.context)

    def answered(self, record: BaseModel) -> str:
        """The reply that carries a record."""
        return f'{{"record":{record.model_dump_json()}}}'

    def refused(self, refusal: MunimentError) -> str:
        """The reply that carries a refusal."""
        if refusal.code == Internal.code:
            return self.failed(refusal)
        return json.dumps({"refusal": refusal.body()})

    def failed(self, error: Exception) -> str:
        """The reply where something failed inside; the log has the rest."""
        incident = secrets.token_hex(6)
        log.error("internal error %s", incident, exc_info=error)
        return json.dumps({"refusal": Internal(f"The id {incident} finds it in the log.", id=incident).body()})


class ReferenceClient:
    """A client of a reference transport."""

    def __init__(self, transport: ReferenceTransport) -> None:
        self._transport = transport

    async def call(self, operation: str, payload: Mapping[str, Any]) -> Reply:
        """Run an operation. Raises Refused."""
        request = json.dumps({"operation": operation, "input": payload}).encode()
        body = await self._transport.serve(_whole(request), len(request))
        return Reply(_record(body), body)


class ReferenceTransportTarget(TransportTarget):
    """The reference transport, or a subclass of it."""

    name = "reference-transport"
    distribution = "muniment"
    real = False
    body_limit = BODY_MAX

    def __init__(self, transport: type[ReferenceTransport] = ReferenceTransport) -> None:
        self._transport = transport

    @asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[RemoteClient]:
        """A client that knows its operations."""
        transport = self._transport(engine, context)
        await transport.hello()
        yield ReferenceClient(transport)

    async def send(
        self, engine: Engine, context: CallContext, pieces: AsyncIterator[bytes], announced: int | None
    ) -> Refused:
        """The pieces as the request of a new connection."""
        body = await self._transport(engine, context).serve(pieces, announced)
        try:
            raise AssertionError(f"it was answered with {_record(body)}")
        except Refused as refusal:
            return refusal


async def _whole(request: bytes) -> AsyncGenerator[bytes]:
    yield request


def _record(body: str) -> dict[str, Any]:
    """What a reply carries. Raises Refused."""
    message = json.loads(body)
    if "refusal" in message:
        refusal = message["refusal"]
        raise Refused(refusal["code"], refusal["message"], refusal.get("details", {}))
    return message["record"]
