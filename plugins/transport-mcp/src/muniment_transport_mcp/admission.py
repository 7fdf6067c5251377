"""What an HTTP request must be before the SDK reads it: a POST to the one path, and no larger than it may be.

Which host it is for and which page it is from is checked by the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError

from muniment.errors import Internal, InvalidInput, MunimentError, NotFound, PayloadTooLarge
from muniment_transport_mcp import frames

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATH = "/mcp"
"""Where clients send their requests."""

BODY_MAX = 16_000_000
"""Bytes of a request. The largest that an operation takes is a sync of all sections, each of a million bytes, and JSON
may say each character in twice as many."""

LINGER_SECONDS = 1.0
"""How long a client that was refused may go on sending before its connection is closed."""

_Headers = Iterable[tuple[bytes, bytes]]


class Admission:
    """An ASGI application that lets requests through to another one, each whole."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or let it through."""
        try:
            await self._admit(scope, receive, send)
        except asyncio.CancelledError:
            # Only the end of the server cancels a request: it took longer than what is begun is waited for.
            given_up = "The server is ending and has given this call up; look what it did before you repeat it."
            await _refuse(send, Internal(given_up), status=503)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            await _refuse(send, NotFound(f"There is nothing here; MCP is at {PATH}."))
        elif scope["method"] != "POST":
            refusal = InvalidInput("method", "every request is a POST of its own; nothing is streamed")
            await _refuse(send, refusal, status=405, headers=[(b"allow", b"POST")])
        else:
            await self._post(scope, receive, send)

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _whole(scope, receive)
        except PayloadTooLarge as refusal:
            await _refuse(send, refusal, headers=[(b"connection", b"close")], more_body=True)
            await _linger(receive)
            await send({"type": "http.response.body", "body": b""})
            return
        if body is not None:
            await self._app(scope, _replay(frames.repaired(body), receive), send)


async def _whole(scope: Scope, receive: Receive) -> bytes | None:
    """The body; None where the client left before its end. Raises PayloadTooLarge as soon as that is known."""
    if any(name == b"content-length" and int(value) > BODY_MAX for name, value in scope["headers"]):
        raise _too_large()
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if len(body) > BODY_MAX:
            raise _too_large()
        if not message.get("more_body", False):
            return bytes(body)
    return None


def _replay(body: bytes, receive: Receive) -> Receive:
    read = False

    async def replayed() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _too_large() -> PayloadTooLarge:
    return PayloadTooLarge(f"A request may have {BODY_MAX:,} bytes; send less at once.", limit=BODY_MAX)


async def _linger(receive: Receive) -> None:
    """Drop what still comes for a moment: a client whose connection is closed while it sends may lose the answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive())["type"] == "http.request":
                continue


async def _refuse(
    send: Send,
    refusal: MunimentError,
    *,
    status: int | None = None,
    headers: _Headers = (),
    more_body: bool = False,
) -> None:
    """A refusal as the protocol's error without an id, for a request that was not read."""
    error = ErrorData(code=INVALID_REQUEST, message=refusal.message, data=refusal.body())
    body = JSONRPCError(jsonrpc="2.0", id=None, error=error).model_dump_json(by_alias=True, exclude_unset=True).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status or refusal.http_status, "headers": fields})
    await send({"type": "http.response.body", "body": body, "more_body": more_body})
