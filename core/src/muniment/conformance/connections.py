"""A transport before an engine, called as the engine is: each principal has a connection, opened at its first call.

A connection is entered and left by one task of its own, whichever task calls through it, since a client's library may
ask for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from muniment.conformance.seams import StagedEngine
from muniment.conformance.target import RemoteClient, Reply, TransportTarget
from muniment.models import CallContext

LEAVE_SECONDS = 5.0
"""How long a caller that is cancelled waits for its call."""


class TransportClient:
    """The clients of a transport that serves one engine, by what is known of who calls."""

    def __init__(self, target: TransportTarget, engine: StagedEngine) -> None:
        self.target = target
        self.engine = engine
        self._connections: dict[CallContext, _Connection] = {}

    async def call(self, operation: str, payload: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Run an operation. Raises Refused."""
        return (await self._replied(operation, payload, context)).answer

    async def reply(self, operation: str, payload: Mapping[str, Any], context: CallContext) -> Reply:
        """The whole reply of an operation, its text too. Raises Refused."""
        return await self._replied(operation, payload, context)

    async def _replied(self, operation: str, payload: Mapping[str, Any], context: CallContext) -> Reply:
        """The reply of an operation. Raises Refused.

        A server goes on without a client that left. So a caller that is cancelled leaves once the call has ended.
        """
        calling = asyncio.ensure_future((await self.connected(context)).call(operation, payload))
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            await asyncio.wait({calling}, timeout=LEAVE_SECONDS)
            calling.cancel()
            raise

    async def connected(self, context: CallContext) -> RemoteClient:
        """The connection of ``context``, which has said hello."""
        if context not in self._connections:
            self._connections[context] = _Connection(self.target, self.engine, context)
        return await self._connections[context].client()

    async def send(
        self, context: CallContext, operation: str, pieces: AsyncIterator[bytes], announced: int | None
    ) -> Reply:
        """The reply to one request with the body ``pieces``; see ``TransportTarget.send``. Raises Refused."""
        return await self.target.send(self.engine, context, operation, pieces, announced)

    async def close(self) -> None:
        """Leave every connection. Raises what the first that failed raised."""
        closing = [connection.close() for connection in self._connections.values()]
        self._connections.clear()
        for ended in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended


class _Connection:
    """One connection, kept by a task until it is closed."""

    def __init__(self, target: TransportTarget, engine: StagedEngine, context: CallContext) -> None:
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[RemoteClient] = asyncio.get_running_loop().create_future()
        self._kept = asyncio.create_task(self._keep(target, engine, context))

    async def client(self) -> RemoteClient:
        """The client, once it is there. Raises what connecting raised."""
        await asyncio.wait({self._opened, self._kept}, return_when=asyncio.FIRST_COMPLETED)
        if not self._opened.done():
            await self._kept
        return self._opened.result()

    async def close(self) -> None:
        """Leave the connection. Raises what connecting or leaving raised."""
        self._closing.set()
        await self._kept

    async def _keep(self, target: TransportTarget, engine: StagedEngine, context: CallContext) -> None:
        async with target.connect(engine, context) as client:
            self._opened.set_result(client)
            await self._closing.wait()
