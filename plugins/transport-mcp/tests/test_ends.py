"""How a server process ends, and what its standard output carries, seen from the bare process."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

Process = asyncio.subprocess.Process
Spawn = Callable[..., AbstractAsyncContextManager[Process]]

INITIALIZE = {
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


LIST = {"method": "tools/call", "params": {"name": "memory_list"}}


def write(content: str) -> dict[str, Any]:
    """A call of memory_write."""
    return {"method": "tools/call", "params": {"name": "memory_write", "arguments": {"content": content}}}


def send(process: Process, identifier: int, request: dict[str, Any]) -> None:
    """Send one request."""
    send_line(process, json.dumps({"jsonrpc": "2.0", "id": identifier, **request}).encode())


def send_line(process: Process, line: bytes) -> None:
    """Send one line as it is."""
    assert process.stdin is not None
    process.stdin.write(line + b"\n")


async def receive(process: Process) -> dict[str, Any]:
    """The next line, which must be a protocol message."""
    assert process.stdout is not None
    async with asyncio.timeout(20):
        message = json.loads(await process.stdout.readline())
    assert message["jsonrpc"] == "2.0"
    return message


async def handshake(process: Process) -> None:
    """Open the session."""
    send(process, 0, INITIALIZE)
    assert (await receive(process))["result"]["serverInfo"]["name"] == "muniment"
    send_line(process, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')


async def began(tmp_path: Path, event: str) -> None:
    """Wait until the server traced ``event``."""
    async with asyncio.timeout(10):
        while event not in trace(tmp_path):  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(0.02)


def trace(tmp_path: Path) -> list[str]:
    """What the server traced so far."""
    path = tmp_path / "trace.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def end(process: Process, how: str) -> None:
    """End the server by closing its input, or by a signal."""
    assert process.stdin is not None
    if how == "EOF":
        process.stdin.close()
    else:
        process.send_signal(signal.Signals[how])


async def left_cleanly(process: Process) -> None:
    """The process is gone by itself with exit code 0, and nothing but protocol or silence behind it."""
    assert process.stderr is not None
    async with asyncio.timeout(10):
        await process.wait()
        errors = (await process.stderr.read()).decode()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("how", ["EOF", "SIGTERM", "SIGINT"])
async def test_what_was_begun_is_finished(spawn: Spawn, tmp_path: Path, how: str) -> None:
    """At the end a call that runs is answered, the engine is closed, and the process leaves with 0."""
    async with spawn("slow") as process:
        await handshake(process)
        send(process, 1, write("begun before the end"))
        await began(tmp_path, "begin memory.write")
        end(process, how)
        answer = await receive(process)
        assert answer["id"] == 1
        assert not answer["result"].get("isError")
        await left_cleanly(process)
        assert trace(tmp_path) == ["begin memory.write", "end memory.write", "closed", "left"]


@pytest.mark.parametrize("how", ["EOF", "SIGTERM"])
async def test_what_does_not_end_is_given_up(spawn: Spawn, tmp_path: Path, how: str) -> None:
    """A call that never ends keeps the process for a few seconds only; its client is told."""
    async with spawn("stuck") as process:
        await handshake(process)
        send(process, 1, write("never written"))
        await began(tmp_path, "begin memory.write")
        end(process, how)
        assert "error" in await receive(process)
        await left_cleanly(process)
        assert trace(tmp_path) == ["begin memory.write", "closed", "left"]


def test_a_client_that_does_not_read_cannot_keep_the_process() -> None:
    """With a full pipe in front of it the server leaves all the same."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("serving.py")), "plain", "ada", "user"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        for number, request in enumerate([INITIALIZE, write("x" * 64_000), *[LIST] * 20]):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, **request}).encode() + b"\n")
        process.stdin.close()
        try:
            assert process.wait(timeout=15) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("how", ["EOF", "SIGTERM", "SIGINT"])
async def test_an_idle_server_leaves_at_once(spawn: Spawn, tmp_path: Path, how: str) -> None:
    """A server that waits for its client does not hang at the end, handshake or not."""
    async with spawn() as process:
        if how != "EOF":
            await handshake(process)
        end(process, how)
        await left_cleanly(process)
        assert trace(tmp_path) == ["closed", "left"]


async def test_signals_during_the_end_do_not_cut_it_short(spawn: Spawn, tmp_path: Path) -> None:
    """A host that closes the input and then sends SIGTERM, as hosts do, still gets a closed engine."""
    async with spawn("slow") as process:
        await handshake(process)
        send(process, 1, write("begun"))
        await began(tmp_path, "begin memory.write")
        end(process, "EOF")
        await asyncio.sleep(0.1)
        end(process, "SIGTERM")
        assert (await receive(process))["id"] == 1
        await left_cleanly(process)
        assert trace(tmp_path)[-2:] == ["closed", "left"]


async def test_a_cancelled_task_finishes_too(spawn: Spawn, tmp_path: Path) -> None:
    """Where the process handles SIGTERM itself, cancelling ``serve`` ends the session the same way."""
    async with spawn("handled") as process:
        await handshake(process)
        end(process, "SIGTERM")
        await left_cleanly(process)
        assert trace(tmp_path) == ["closed", "left"]


async def test_a_client_that_vanishes_leaves_nothing_running(spawn: Spawn, tmp_path: Path) -> None:
    """When nobody reads any more, what was begun is still finished and the process leaves."""
    async with spawn("slow") as process:
        await handshake(process)
        send(process, 1, write("nobody reads the answer"))
        await began(tmp_path, "begin memory.write")
        transport = getattr(process, "_transport")  # noqa: B009
        transport.get_pipe_transport(1).close()
        end(process, "EOF")
        await left_cleanly(process)
        assert trace(tmp_path) == ["begin memory.write", "end memory.write", "closed", "left"]


async def test_standard_output_carries_protocol_only(spawn: Spawn) -> None:
    """What libraries and child processes print goes to standard error, before and after the end."""
    async with spawn("noisy") as process:
        await handshake(process)
        for number in (1, 2):
            send(process, number, write(f"memory {number}"))
        assert {(await receive(process))["id"] for _ in range(2)} == {1, 2}
        end(process, "EOF")
        output, errors = await process.communicate()
        assert output == b""
        for printed in (b"printed by a library", b"written by a C library", b"printed by a child"):
            assert printed in errors


async def test_broken_lines_are_answered_and_survived(spawn: Spawn) -> None:
    """A line that is no message gets the protocol's error; text that UTF-8 cannot carry gets the engine's."""
    async with spawn() as process:
        await handshake(process)
        send_line(process, b"{not json")
        answer = await receive(process)
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)
        send_line(process, b'{"id":5,"method":"tools/list"}')
        answer = await receive(process)
        assert (answer["id"], answer["error"]["code"]) == (5, -32600)
        assert answer["error"]["data"]["details"] == {"field": "jsonrpc"}
        send_line(process, b'[{"jsonrpc":"2.0","id":5,"method":"tools/list"}]')
        answer = await receive(process)
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        assert "batch" in answer["error"]["data"]["message"]
        send_line(process, b"  ")
        for identifier, content in ((6, rb"lone \ud800 surrogate"), (7, b"stray \xff byte")):
            call = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"memory_write","arguments":'
            send_line(process, call % identifier + b'{"content":"' + content + b'"}}}')
            answer = await receive(process)
            assert answer["id"] == identifier
            body = json.loads(answer["result"]["content"][0]["text"])
            assert (body["code"], body["details"]) == ("invalid_input", {"field": "content"})
        send(process, 9, {"method": "tools/call", "params": {"name": "project_list", "arguments": None}})
        assert not (await receive(process))["result"].get("isError")
        send(process, 8, write("still here"))
        assert not (await receive(process))["result"].get("isError")
