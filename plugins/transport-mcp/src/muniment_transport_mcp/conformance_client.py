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
from urllib.parse import urlsplit

import httpx2
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

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
        body, result = await self._request("tools/call", {"name": tool_name(operation), "arguments": dict(payload)})
        said: Message = json.loads(result["content"][0]["text"])
        if result.get("isError"):
            raise Refused(said["code"], said["message"], said.get("details", {}))
        return Reply(said, body)

    async def _request(self, method: str, params: Message) -> tuple[str, Message]:
        if self._revision not in HANDSHAKE_PROTOCOL_VERSIONS:
            meta = {PROTOCOL_VERSION_META_KEY: self._revision, CLIENT_INFO_META_KEY: _CLIENT}
            params = {**params, "_meta": {**meta, CLIENT_CAPABILITIES_META_KEY: {}}}
        body = await self._carrier.ask(
            {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        )
        answer: Message = json.loads(body)
        if "error" in answer:
            raise refused(answer["error"])
        return body, answer["result"]


def refused(error: Message) -> Refused:
    """The refusal in the protocol's own error, whose code is a number where Muniment gave none."""
    data: Message = error.get("data") or {}
    return Refused(str(data.get("code", error["code"])), error["message"], data.get("details", {}))


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

    async def send(self, pieces: AsyncIterator[bytes], announced: int | None) -> Refused:
        """The refusal of a body that is sent until there is one; the library would send it to its end."""
        url = urlsplit(self._url)
        chunked = announced is None
        length = {"transfer-encoding": "chunked"} if chunked else {"content-length": str(announced)}
        headers = {"host": url.netloc, **self._headers({"method": "tools/list"}), **length}
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        head = [f"POST {url.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(head).encode())
        sending = asyncio.create_task(_sent(writer, pieces, chunked=chunked))
        try:
            answered = await reader.readuntil(b"\r\n\r\n")
            size = next(line for line in answered.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = await reader.readexactly(int(size.partition(b":")[2]))
        finally:
            sending.cancel()
            await asyncio.wait({sending})
            writer.close()
        return refused(json.loads(body)["error"])

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


async def _sent(writer: asyncio.StreamWriter, pieces: AsyncIterator[bytes], *, chunked: bool) -> None:
    async for piece in pieces:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
