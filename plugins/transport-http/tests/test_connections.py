"""What is the HTTP server's own: how many connections there are, and what RFC 9112 asks of it whatever it serves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest

from muniment.engine import Engine
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Callers
from muniment.serving import doorway, http
from muniment.serving.addresses import Address, listening
from muniment_transport_http import open_streams

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

ADA = Agent(name="ada", instance="1")
STREAM = "GET /v1/agent/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
PROBE = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


@asynccontextmanager
async def connected(client: httpx2.AsyncClient) -> AsyncGenerator[Streams]:
    """A connection of its own to the client's server."""
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def begins(streams: Streams, request: str) -> tuple[str, dict[str, str]]:
    """The status and the headers of the answer to a request, of which no more is read."""
    reader, writer = streams
    writer.write(request.encode())
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().splitlines()
    return first.split()[1], dict(line.split(": ", 1) for line in lines if line)


async def test_idle_connections_make_room(connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the limit that which has been idle for longest is closed, and whoever comes is answered; one that has a
    request keeps its place."""
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 3)
    async with connect("keeper", agent=ADA) as client, AsyncExitStack() as stack, asyncio.timeout(30):
        busy = await stack.enter_async_context(connected(client))
        assert (await begins(busy, STREAM))[0] == "200"
        idle = [await stack.enter_async_context(connected(client)) for _ in range(6)]
        assert (await begins(idle[-1], PROBE))[0] == "200"
        ended = [await reader.read() for reader, _ in idle[:4]]
        assert (await begins(idle[-2], PROBE))[0] == "200"
        assert not busy[0].at_eof()

    assert ended == [b""] * 4


async def test_where_every_connection_has_a_request_one_more_is_refused(
    connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503, and nothing that is under way is ended for it."""
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    async with connect("keeper", agent=ADA) as client, AsyncExitStack() as stack, asyncio.timeout(30):
        busy = [await stack.enter_async_context(connected(client)) for _ in range(2)]
        for one in busy:
            assert (await begins(one, STREAM))[0] == "200"
        one_more = await stack.enter_async_context(connected(client))
        status, headers = await begins(one_more, PROBE)
        assert not any(reader.at_eof() for reader, _ in busy)

    assert (status, headers["connection"]) == ("503", "close")
    assert int(headers["retry-after"]) > 0


def test_a_probe_has_a_connection_when_all_else_is_full() -> None:
    """Streams, and the requests that wait at the doorways of two protocols at one address, leave some over."""
    assert open_streams.OWN_MAX < open_streams.ALL_MAX
    assert open_streams.ALL_MAX + 2 * doorway.REQUESTS_MAX < http.CONNECTIONS_MAX


async def test_probes_are_answered_when_no_more_requests_may_wait(
    engine: Engine, serve: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all streams open that there may be, and no room for requests."""
    monkeypatch.setattr(open_streams, "OWN_MAX", 2)
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 4)
    local = CallContext(principal=Principal(user="keeper", agent=ADA))
    async with serve(engine, Callers(local, anybody=True)) as client, AsyncExitStack() as stack, asyncio.timeout(30):
        statuses: list[str] = []
        for _ in range(5):
            one = await stack.enter_async_context(connected(client))
            statuses.append((await begins(one, STREAM))[0])
        monkeypatch.setattr(doorway, "REQUESTS_MAX", 0)
        refused = await client.get("/v1/memories")
        probes = [await client.get(path) for path in ("/livez", "/readyz")]

    assert statuses == ["200", "200", "429", "429", "429"]
    assert (refused.status_code, [probe.status_code for probe in probes]) == (429, [200, 200])


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/v1/projects?limit=1", "localhost", "200"),
        ("HTTP://localhost:1/v1/projects", "evil.example", "200"),
        ("http://localhost/livez", "localhost", "200"),
        ("http://localhost/v1/projects/a%2Fb/shares", "localhost", "404"),
        ("http://localhost", "localhost", "404"),
        ("http://evil.example/v1/projects", "localhost", "421"),
        ("ftp://localhost/v1/projects", "localhost", "404"),
    ],
)
async def test_a_target_may_be_a_whole_url(client: httpx2.AsyncClient, target: str, host: str, status: str) -> None:
    """It is taken as its path, and its host counts instead of ``Host`` (RFC 9112, section 3.2.2)."""
    async with connected(client) as streams, asyncio.timeout(30):
        seen, _ = await begins(streams, f"GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n")

    assert seen == status


@pytest.mark.parametrize("path", ["/v1/search", "/nothing", "/livez"])
async def test_a_body_whose_length_is_said_twice_ends_the_connection(client: httpx2.AsyncClient, path: str) -> None:
    """What comes after it on the connection is not answered (RFC 9112, section 6.1)."""
    body = '{"query": "q"}'
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\ntransfer-encoding: chunked\r\n\r\n"
    async with connected(client) as streams, asyncio.timeout(30):
        _, headers = await begins(streams, f"{head}{len(body):x}\r\n{body}\r\n0\r\n\r\n{PROBE}")
        rest = await streams[0].read()

    assert headers["connection"] == "close"
    assert b"HTTP/1.1" not in rest


@asynccontextmanager
async def answering(size: int) -> AsyncGenerator[tuple[socket.socket, asyncio.Event]]:
    """A socket that has asked for so many bytes and not begun to take them, and what is set once it has lost its
    connection. Neither end's system takes much in between."""
    lost = asyncio.Event()
    connection_lost = http._Protocol.connection_lost  # pyright: ignore[reportPrivateUsage]

    class Watched(http._Protocol):  # pyright: ignore[reportPrivateUsage]
        def connection_lost(self, exc: Exception | None) -> None:
            connection_lost(self, exc)
            lost.set()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b" " * size})

    ending = asyncio.Event()
    with (
        pytest.MonkeyPatch.context() as patched,
        listening(Address("127.0.0.1", 0)) as listener,
        socket.socket() as client,
    ):
        patched.setattr(http, "_Protocol", Watched)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.setblocking(False)
        serving = asyncio.create_task(http.serve_app(listener, app, ending))
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, listener.getsockname())
        await loop.sock_sendall(client, PROBE.encode())
        try:
            yield client, lost
        finally:
            ending.set()
            await serving


@pytest.mark.parametrize("size", [60_000, 10_000_000])
async def test_a_client_that_does_not_take_its_answer_is_cut_off(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the answer is being written, and also where all of it is and the connection would be closed."""
    monkeypatch.setattr(http, "TAKE_SECONDS", 0.1)
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.1)
    async with answering(size) as (_, lost), asyncio.timeout(30):
        await lost.wait()


async def test_a_client_that_takes_its_answer_slowly_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often is looked meanwhile."""
    monkeypatch.setattr(http, "TAKE_SECONDS", 0.02)
    monkeypatch.setattr(http, "TAKEN_LEAST", 1)
    size, taken = 2_000_000, b""
    async with answering(size) as (client, lost), asyncio.timeout(60):
        while len(taken.partition(b"\r\n\r\n")[2]) < size:
            part = await asyncio.get_running_loop().sock_recv(client, 65_536)
            assert part, "the connection ended before the answer did"
            taken += part
        assert not lost.is_set()
