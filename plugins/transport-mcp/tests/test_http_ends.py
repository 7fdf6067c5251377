"""How an HTTP server ends: what was begun, what does not end, clients that do not read, and signals."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from muniment.conformance.invariant import Outcome
from muniment.conformance.runner import run
from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.ports import Callers
from muniment.reference import HashEmbedder, ReferenceStorage
from muniment.serving import http
from muniment.serving.addresses import Address, listening
from muniment_transport_mcp.conformance import target
from muniment_transport_mcp.http import HttpTransport

Spawn = Callable[..., AbstractAsyncContextManager[asyncio.subprocess.Process]]
Served = Callable[..., AbstractAsyncContextManager[str]]

ADA = CallContext(principal=Principal(user="ada"), surface="cli")
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
CALL: dict[str, Any] = {**LIST, "method": "tools/call", "params": {"name": "memory_list", "arguments": {}}}

MEMORY = ("--storage", "memory:", "--embedder", "hash:", "--user", "bea")


async def address_of(process: asyncio.subprocess.Process) -> str:
    """Where a server process says that it listens."""
    assert process.stderr is not None
    said: list[bytes] = []
    async with asyncio.timeout(60):
        while b"serving MCP at" not in (line := await process.stderr.readline()):
            assert line, f"it left: {said}"
            said.append(line)
    return line.decode().rpartition(" ")[2].strip()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_what_was_begun_is_finished(spawn: Spawn, tmp_path: Path, how: signal.Signals) -> None:
    """At a signal a call that runs is answered, new connections are refused, and the process leaves with 0."""
    async with spawn("slow", "mcp:http://127.0.0.1:0") as process:
        url = await address_of(process)
        trace = tmp_path / "trace.txt"
        async with httpx2.AsyncClient(trust_env=False, headers=JSON, timeout=20) as client:
            calling = asyncio.create_task(client.post(url, json=CALL))
            async with asyncio.timeout(10):
                while not trace.exists() or "begin" not in trace.read_text(encoding="utf-8"):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            process.send_signal(how)
            await asyncio.sleep(0.3)
            with pytest.raises(httpx2.ConnectError):
                await client.post(url, json=LIST)
            assert not (await calling).json()["result"].get("isError")
        async with asyncio.timeout(10):
            assert await process.wait() == 0
        assert trace.read_text(encoding="utf-8").split("\n") == [
            "begin memory.list",
            "end memory.list",
            "closed",
            "left",
            "",
        ]


class Stuck(Engine):
    """An engine whose calls never end."""

    async def call(self, name: str, payload: Any, context: CallContext) -> BaseModel:
        """Wait for ever."""
        await asyncio.Event().wait()
        raise AssertionError


async def test_what_does_not_end_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call that never ends, and a request that never comes whole, keep the server for its time only."""
    monkeypatch.setattr(http, "FINISH_SECONDS", 1)
    async with httpx2.AsyncClient(trust_env=False, headers=JSON, timeout=20) as client:
        async with asyncio.timeout(15):
            async with served(Stuck(ReferenceStorage(), HashEmbedder())) as url:
                calling = asyncio.create_task(client.post(url, json=CALL))
                at = httpx2.URL(url)
                reader, writer = await asyncio.open_connection(at.host, at.port)
                head = "".join(f"{name}: {value}\r\n" for name, value in JSON.items())
                writer.write(f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{head}content-length: 10\r\n\r\nhalf".encode())
                await asyncio.sleep(0.3)
            given_up = await calling
            assert (await reader.readline()).startswith(b"HTTP/1.1 503")
            writer.close()
    assert (given_up.status_code, given_up.json()["error"]["data"]["code"]) == (503, "shutting_down")
    assert [record.levelname for record in caplog.records if record.levelno >= logging.WARNING] == ["WARNING"]


@pytest.mark.parametrize("heeds", [True, False])
async def test_a_stream_that_is_open_ends_without_an_error(
    heeds: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that ends when it is asked leaves no line in the log; one that does not is cut off, with a warning alone."""
    monkeypatch.setattr(http, "FINISH_SECONDS", 0.5)
    ending = asyncio.Event()

    async def streaming(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        # As the doorway has it: what is cancelled once its answer has begun is not told anything.
        with suppress(asyncio.CancelledError):
            await (ending if heeds else asyncio.Event()).wait()
            await send({"type": "http.response.body", "body": b""})

    with listening(Address("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(http.serve_app(listener, streaming, ending))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await reader.readuntil(b"begun")
        ending.set()
        async with asyncio.timeout(10):
            await serving
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
    logged = [record.levelname for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged == ([] if heeds else ["WARNING"])


class Huge(Engine):
    """An engine whose records are larger than what a connection holds while nobody reads it."""

    def __init__(self) -> None:
        super().__init__(ReferenceStorage(), HashEmbedder())
        self.called = asyncio.Semaphore(0)

    async def call(self, name: str, payload: Any, context: CallContext) -> BaseModel:
        """A long one."""
        self.called.release()
        return Text(text="x" * 2**24)


class Text(BaseModel):
    """A record of one text."""

    text: str


async def test_a_client_that_does_not_read_is_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its request waits for the connection whatever becomes of it, so nothing but the connection's end lets it go."""
    monkeypatch.setattr(http, "FINISH_SECONDS", 1)
    before = asyncio.all_tasks()
    with ExitStack() as stays:
        engine = Huge()
        async with served(engine) as url:
            at = httpx2.URL(url)
            body = json.dumps(CALL).encode()
            head = f"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in JSON.items()) + "\r\n"
            silent = stays.enter_context(socket.create_connection((at.host, at.port)))
            # The second answer waits until the first one is read.
            silent.sendall(2 * (head.encode() + body))
            for _ in range(2):
                await engine.called.acquire()
        assert asyncio.all_tasks() == before
    assert all(record.levelno < logging.ERROR for record in caplog.records)


async def test_connections_without_a_request_are_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One on which nothing comes, one whose head does not end, and one that has had its answer."""
    monkeypatch.setattr(http, "IDLE_SECONDS", 1)
    async with served() as url, asyncio.timeout(30):
        at = httpx2.URL(url)
        for sent in (b"", b"POST /mcp HTTP/1.1\r\nhost: local", b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n"):
            reader, writer = await asyncio.open_connection(at.host, at.port)
            writer.write(sent)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 405") == sent.startswith(b"GET")
            writer.close()


@pytest.mark.parametrize("how", ["signal", "cancelled"])
async def test_no_handler_is_left_behind(how: str) -> None:
    """A process that goes on afterwards gets its signals as before, however serving ended."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    async with Engine(ReferenceStorage(), HashEmbedder()) as engine, asyncio.timeout(20):
        transport = HttpTransport.at("http://127.0.0.1:0")
        serving = asyncio.create_task(transport.serve(engine, Callers(ADA, anybody=True)))
        while [signal.getsignal(number) for number in numbers] == before:  # noqa: ASYNC110 - it says so to nobody
            await asyncio.sleep(0.02)
        if how == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            serving.cancel()
        await asyncio.wait({serving})
        assert serving.cancelled() == (how == "cancelled")
    assert [signal.getsignal(number) for number in numbers] == before


async def fails(*_: object) -> bool:
    """What the server does by itself."""
    raise RuntimeError("the server's own")


async def test_what_fails_in_the_server_fails_who_serves(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the server itself comes out of ``serve``."""
    monkeypatch.setattr("muniment.serving.http._Server.on_tick", fails)
    with pytest.raises(RuntimeError, match="the server's own"):
        async with served():
            await asyncio.sleep(0.1)


async def test_what_fails_in_the_server_fails_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although every call of a check was answered."""
    monkeypatch.setattr("muniment.serving.http._Server.on_tick", fails)
    (result,) = (await run(target("http:"), only=["TRA-04"], seed=7)).results
    assert result.outcome is Outcome.ERROR
    assert "the server's own" in result.detail


async def test_the_command_serves_a_client_until_sigterm(tmp_path: Path) -> None:
    """``muniment serve --http``: it says its address, the SDK's client writes and reads, and SIGTERM ends it with 0."""
    options = ["--http", "127.0.0.1:0", "--no-auth", *MEMORY]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muniment", "serve", *options),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")},
    )
    try:
        async with asyncio.timeout(60):
            async with Client(await address_of(process), mode="auto") as client:
                result = await client.call_tool("memory_write", {"content": "Deploys are frozen."})
                assert isinstance(result, CallToolResult)
                (block,) = result.content
                assert isinstance(block, TextContent)
                assert json.loads(block.text)["version"] == 1
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors
    assert b"Traceback" not in errors


@pytest.mark.parametrize("why", ["another machine's address", "a port that is taken", "an issuer's other audience"])
def test_a_start_that_is_refused_says_nothing_else(why: str, tmp_path: Path) -> None:
    """What whoever serves nobody is warned of would only hide the cause."""
    configuration = ""
    with listening(Address("127.0.0.1", 0)) as taken:
        address, options = f"127.0.0.1:{taken.getsockname()[1]}", ["--no-auth"]
        if why == "another machine's address":
            address = "0.0.0.0:0"
        elif why == "an issuer's other audience":
            issuer = '[auth.issuers.corp]\nissuer = "https://login.example.com"\naudience = "other"\n'
            configuration, options = f"[auth]\n{issuer}", []
        (tmp_path / "muniment.toml").write_text(configuration, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "muniment", "serve", "--http", address, *options, *MEMORY],
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("muniment: Nothing ")
