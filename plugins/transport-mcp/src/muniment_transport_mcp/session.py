"""One client's session over a wire: from its first line until all that it began is answered.

The SDK ends a session by cancelling what is in flight as soon as its input ends. Here the input is held open
until every request that came in has its answer, or ``FINISH_SECONDS`` are over.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest

from muniment_transport_mcp import frames, refusals
from muniment_transport_mcp.wire import Wire

logger = logging.getLogger(__name__)

FINISH_SECONDS = 2.0
"""How long begun requests may take once the client has left. Hosts send SIGTERM two seconds after closing the
input and SIGKILL two seconds later; what is left of that is for closing the storage."""

LEAVE_SECONDS = 0.5
"""How long the SDK may take to leave after its input ended; what still runs then is cancelled."""


class _Unanswered:
    """The requests that came in and have no answer yet."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._none = asyncio.Event()
        self._none.set()

    def begin(self, message: JSONRPCMessage) -> None:
        key = frames.request_key(message) if isinstance(message, JSONRPCRequest) else None
        if key is not None:
            self._keys.add(key)
            self._none.clear()
        # A cancelled request is never answered.
        self._settle(frames.cancelled_key(message))

    def answer(self, message: JSONRPCMessage) -> None:
        self._settle(frames.request_key(message))

    async def none(self) -> None:
        await self._none.wait()

    def _settle(self, key: str | None) -> None:
        if key is not None:
            self._keys.discard(key)
        if not self._keys:
            self._none.set()


async def converse(server: Server[Any], wire: Wire) -> None:
    """Serve the client on ``wire`` until it leaves, ``wire.end`` is called or this task is cancelled.

    Requests that came in by then are answered first, within ``FINISH_SECONDS``.
    """
    to_server, server_input = anyio.create_memory_object_stream[SessionMessage | Exception]()
    server_output, from_server = anyio.create_memory_object_stream[SessionMessage]()
    unanswered = _Unanswered()
    serving = asyncio.create_task(server.run(server_input, server_output, server.create_initialization_options()))
    reading = asyncio.create_task(_read(wire, to_server, unanswered))
    writing = asyncio.create_task(_write(wire, from_server, unanswered))
    try:
        await asyncio.wait({serving, reading}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        wire.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await asyncio.wait({reading})
                await unanswered.none()
        reading.cancel()
        await to_server.aclose()
        await _leave({serving, reading, writing})
        wire.close()
        for stream in (server_input, from_server):
            stream.close()
    if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
        logger.error("reading what the client sends has failed", exc_info=error)
    if serving.done() and not serving.cancelled():
        serving.result()


async def _leave(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for ``tasks`` to end by themselves, then by cancellation, each for ``LEAVE_SECONDS``."""
    _, late = await asyncio.wait(tasks, timeout=LEAVE_SECONDS)
    if late:
        logger.warning("requests that did not end in time are cancelled")
        for task in late:
            task.cancel()
        await asyncio.wait(late, timeout=LEAVE_SECONDS)


async def _read(
    wire: Wire, to_server: MemoryObjectSendStream[SessionMessage | Exception], unanswered: _Unanswered
) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while (line := await wire.receive()) is not None:
            try:
                message = frames.decode(line)
            except frames.BadFrame as bad:
                if bad.answer is not None:
                    await _send(wire, bad.answer)
                continue
            unanswered.begin(message)
            await to_server.send(SessionMessage(message))


async def _write(wire: Wire, from_server: MemoryObjectReceiveStream[SessionMessage], unanswered: _Unanswered) -> None:
    async for item in from_server:
        await _send(wire, _complete(item.message))
        unanswered.answer(item.message)


def _complete(message: JSONRPCMessage) -> JSONRPCMessage:
    """An error of the SDK's with a refusal in its data."""
    if not isinstance(message, JSONRPCError):
        return message
    return message.model_copy(update={"error": refusals.completed(message.error)})


async def _send(wire: Wire, message: JSONRPCMessage) -> None:
    """Write ``message``; a client that no longer reads has left, which ends the session and fails nothing."""
    try:
        await wire.send(frames.encode(message))
    except OSError:
        wire.end()
