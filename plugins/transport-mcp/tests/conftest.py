"""Clients for the tests: the SDK's own over stdio, and the bare process for what an SDK would not send."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

SERVING = Path(__file__).with_name("serving.py")

Connect = Callable[..., AbstractAsyncContextManager[Client]]
Spawn = Callable[..., AbstractAsyncContextManager[asyncio.subprocess.Process]]


@pytest.fixture
def connect(tmp_path: Path) -> Connect:
    """``connect(stage, mode, role)``: a client of a fresh server process, whose standard error is ``stderr.txt``."""

    @asynccontextmanager
    async def connected(stage: str = "plain", *, mode: str = "auto", role: str = "user") -> AsyncGenerator[Client]:
        server = StdioServerParameters(command=sys.executable, args=[str(SERVING), stage, "ada", role, "team"])
        with (tmp_path / "stderr.txt").open("w", encoding="utf-8") as errors:
            async with Client(stdio_client(server, errlog=errors), mode=mode) as client:
                yield client

    return connected


@pytest.fixture
def spawn(tmp_path: Path) -> Spawn:
    """``spawn(stage, spec)``: a fresh server process, tracing to ``trace.txt``; killed if it is still there."""

    @asynccontextmanager
    async def spawned(stage: str = "plain", spec: str = "mcp") -> AsyncGenerator[asyncio.subprocess.Process]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(SERVING),
            stage,
            "ada",
            "user",
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**os.environ, "SPEC": spec, "TRACE": str(tmp_path / "trace.txt")},
            limit=2**22,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    return spawned
