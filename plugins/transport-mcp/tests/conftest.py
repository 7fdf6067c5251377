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

from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.ports import Callers
from muniment.reference import HashEmbedder, ReferenceStorage
from muniment.serving.addresses import Address, listening
from muniment_transport_mcp.http import serve_on, url_of

SERVING = Path(__file__).with_name("serving.py")

Connect = Callable[..., AbstractAsyncContextManager[Client]]
Spawn = Callable[..., AbstractAsyncContextManager[asyncio.subprocess.Process]]
Served = Callable[..., AbstractAsyncContextManager[str]]


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


@pytest.fixture
def served() -> Served:
    """``served(engine)``: the address of an HTTP server in this process, for ada; what fails in it fails the test."""

    @asynccontextmanager
    async def serving_at(engine: Engine | None = None) -> AsyncGenerator[str]:
        local = CallContext(principal=Principal(user="ada"), surface="cli")
        ending = asyncio.Event()
        async with engine or Engine(ReferenceStorage(), HashEmbedder()) as opened:
            with listening(Address("127.0.0.1", 0)) as listener:
                serving = asyncio.create_task(serve_on(listener, opened, Callers(local), ending))
                try:
                    yield url_of(listener)
                finally:
                    ending.set()
                    await serving

    return serving_at
