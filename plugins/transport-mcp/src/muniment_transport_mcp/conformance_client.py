"""The suite's client: it sends what it is given, also what an SDK would refuse to send, and shows what came back.

It speaks either generation of the protocol: the revisions that begin by a handshake, and those whose requests are
complete in themselves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

import httpx2
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from muniment.conformance import raw_http
from muniment.conformance.target import Refused, Reply
from muniment_transport_mcp.tools import tool_name

Message = dict[str, Any]

_CLIENT = {"name": "muniment-conformance", "version": "1"}


class Carrier(Protocol):
    """One way for messages to the server and back."""

    async def ask(self, request: Message) -> str:
        """The text of the message that answers a request."""
        ...

    async def tell(self, notification: Message) -> None:
        """Send what nobody answers."""
        ...


class McpClient:
    """A client of one server."""

    def __init__(self, carrier: Carrier, revision: str) -> None:
        self._carrier = carrier
        self._revision = revision
        self._numbers = count()

    async def hello(self) -> None:
        """Begin: by the handshake where the revision has one, else by asking for the tools."""
        if self._revision in HANDSHAKE_PROTOCOL_VERSIONS:
            params: Message = {"protocolVersion": self._revision, "capabilities": {}, "clientInfo": _CLIENT}
            await self._request("initialize", params)
            await self._carrier.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        else:
            await self._request("tools/list", {})

    async def call(self, operation: str, payload: Mapping[str, Any]) -> Reply:
        """Call an operation's tool. Raises Refused, also for the protocol's own errors."""
        return reply_in(await self._carrier.ask(call_of(operation, payload, self._revision, next(self._numbers))))

    async def _request(self, method: str, params: Message) -> None:
        _result_in(await self._carrier.ask(_request(method, params, self._revision, next(self._numbers))))


def call_of(operation: str, payload: Mapping[str, Any], revision: str, number: int = 0) -> Message:
    """The request that calls an operation's tool."""
    params = {"name": tool_name(operation), "arguments": dict(payload)}
    return _request("tools/call", params, revision, number)


def reply_in(body: str) -> Reply:
    """The reply in the message that answers a call. Raises Refused, also for the protocol's own errors."""
    result = _result_in(body)
    said: Message = json.loads(result["content"][0]["text"])
    if result.get("isError"):
        raise Refused(said["code"], said["message"], said.get("details", {}))
    return Reply(said, body)


def _request(method: str, params: Message, revision: str, number: int) -> Message:
    if revision not in HANDSHAKE_PROTOCOL_VERSIONS:
        meta = {PROTOCOL_VERSION_META_KEY: revision, CLIENT_INFO_META_KEY: _CLIENT}
        params = {**params, "_meta": {**meta, CLIENT_CAPABILITIES_META_KEY: {}}}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _result_in(body: str) -> Message:
    """Raises Refused for the protocol's own error, whose code is a number where Muniment gave none."""
    answer: Message = json.loads(body)
    if "error" not in answer:
        return answer["result"]
    error: Message = answer["error"]
    data: Message = error.get("data") or {}
    raise Refused(str(data.get("code", error["code"])), error["message"], data.get("details", {}))


class OverLines:
    """A message a line; answers come in any order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked: dict[int, asyncio.Future[str]] = {}
        self._reading = asyncio.create_task(self._read())

    async def ask(self, request: Message) -> str:
        """The line that has the request's number. Raises ConnectionError where the server left."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[request["id"]] = answer
        await self.tell(request)
        await asyncio.wait({answer, self._reading}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ConnectionError("the server left without an answer")
        return await answer

    async def tell(self, notification: Message) -> None:
        """Write one line."""
        self._writer.write(json.dumps(notification).encode() + b"\n")
        await self._writer.drain()

    async def close(self) -> None:
        """Leave, once the server has."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.wait({self._reading})

    async def _read(self) -> None:
        with suppress(OSError):
            while line := await self._reader.readline():
                number = json.loads(line)["id"]
                # An error without a number is about a line that could not be read: any that waits.
                for asked in [number] if number is not None else list(self._asked):
                    self._asked.pop(asked).set_result(line.decode())


class OverHttp:
    """A message a request."""

    def __init__(self, http: httpx2.AsyncClient, url: str, revision: str) -> None:
        self._http = http
        self._url = url
        self._revision = revision

    async def ask(self, request: Message) -> str:
        """The body of the response."""
        response = await self._http.post(self._url, content=json.dumps(request), headers=self._headers(request))
        return response.text

    async def tell(self, notification: Message) -> None:
        """Send it, which is acknowledged by a status."""
        headers = self._headers(notification)
        (await self._http.post(self._url, content=json.dumps(notification), headers=headers)).raise_for_status()

    async def send(self, operation: str, pieces: AsyncIterator[bytes], announced: int | None) -> Reply:
        """The reply to a call whose body is sent until there is one; the library would send it to its end."""
        headers = self._headers(call_of(operation, {}, self._revision))
        _, body = await raw_http.ask("POST", self._url, headers, pieces, announced)
        return reply_in(body)

    def _headers(self, message: Message) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if message["method"] == "initialize":
            return headers
        headers["mcp-protocol-version"] = self._revision
        if self._revision not in HANDSHAKE_PROTOCOL_VERSIONS:
            headers["mcp-method"] = message["method"]
            if message["method"] == "tools/call":
                headers["mcp-name"] = message["params"]["name"]
        return headers
