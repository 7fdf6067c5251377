"""``muniment serve`` with several transports in one process: at one address, apart, and to their end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

SERVE = ("serve", "--storage", "memory:", "--embedder", "hash:", "--user", "alice", "--no-auth")
HERE = "127.0.0.1:0"


@asynccontextmanager
async def serving(cwd: Path, *arguments: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, dict[str, str]]]:
    """A server process, and the address of each protocol that it serves."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muniment", *SERVE, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=inherited,
    )
    try:
        found: dict[str, str] = {}
        async with asyncio.timeout(60):
            while len(found) < 2:
                assert process.stderr is not None
                line = (await process.stderr.readline()).decode()
                assert line, "the server left"
                found |= re.findall(r"serving (\w+) at (\S+)", line)
        yield process, found
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tool's answer or refusal, as data."""
    (block,) = (await client.call_tool(tool, arguments)).content
    return json.loads(getattr(block, "text", ""))


@pytest.mark.parametrize(
    ("arguments", "shared"),
    [
        (("--transport", "mcp", "--transport", "http", "--http", HERE), True),
        (("--transport", f"mcp:http://{HERE}", "--transport", f"http:http://{HERE}"), True),
        (("--transport", f"mcp:http://{HERE}", "--transport", "http:http://localhost:0"), True),
        (("--transport", f"mcp:http://{HERE}", "--transport", "http:http://[::1]:0"), False),
    ],
)
async def test_both_protocols_are_one_server(tmp_path: Path, arguments: tuple[str, ...], shared: bool) -> None:
    """What is written over the one is read over the other, at one address or two; each keeps its own rules."""
    async with serving(tmp_path, *arguments) as (process, at):
        async with httpx2.AsyncClient(base_url=at["HTTP"], trust_env=False) as http, Client(at["MCP"]) as mcp:
            written = (await http.post("/v1/memories", json={"content": "a note", "project": "acme/new"})).json()
            read = await call(mcp, "memory_get", id=written["id"])
            refused = await call(mcp, "memory_write", content="a note", project="acme/other")
            patched = await call(mcp, "memory_patch", id=written["id"], old_string="note", new_string="word")
            history = (await http.get(f"/v1/memories/{written['id']}/history")).json()["items"]
            health = await http.get("/livez")
        process.terminate()
        code = await asyncio.wait_for(process.wait(), 30)

    assert (at["MCP"].removesuffix("/mcp") == at["HTTP"]) == shared
    assert read["content"] == "a note"
    assert (refused["code"], patched["version"], health.status_code) == ("unknown_project", 2, 200)
    assert [entry["surface"] for entry in history] == ["mcp", "http"]
    assert code == 0


async def test_a_stream_does_not_hold_the_end_up(tmp_path: Path) -> None:
    """At a signal a stream that waits ends at once, and the process leaves with 0."""
    agent = ("--agent", "ada/1", "--transport", "mcp", "--transport", "http", "--http", HERE)
    async with (
        serving(tmp_path, *agent) as (process, at),
        httpx2.AsyncClient(base_url=at["HTTP"], timeout=60, trust_env=False) as http,
        http.stream("GET", "/v1/agent/events") as stream,
    ):
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith("retry: ")
        process.terminate()
        rest = [line async for line in lines]
        code = await asyncio.wait_for(process.wait(), 30)

    assert code == 0
    assert not [line for line in rest if line.startswith("event: ")]


async def test_a_port_that_is_taken_stops_all(tmp_path: Path) -> None:
    """One address that cannot be had is a refusal, and nothing is served at the other."""
    async with serving(tmp_path, "--transport", "mcp", "--transport", "http", "--http", HERE) as (_, at):
        taken = at["HTTP"].removeprefix("http://")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muniment", *SERVE),
            *("--transport", f"mcp:http://{HERE}", "--transport", f"http:http://{taken}"),
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )
        _, errors = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 2
    assert f"port {taken.partition(':')[2]}" in errors.decode()
