"""``muniment serve`` as a process of its own, on an embedded database, and clients of it over either protocol."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2

from muniment.conformance.target import Refused, Reply
from muniment_transport_http.conformance_client import HttpClient
from muniment_transport_mcp.conformance_client import McpClient, OverHttp

REVISION = "2026-07-28"
START_SECONDS = 120
ANYBODY_IS_ANN = ("--user", "ann", "--no-auth")
_ADDRESS = re.compile(rb"serving \w+ at (\S+)")


class Client(Protocol):
    """A client of either protocol."""

    async def call(self, operation: str, payload: Mapping[str, Any]) -> Reply:
        """Call an operation. Raises Refused."""
        ...


class Server:
    """A server that can be killed and started again on the same data. ``callers`` are the flags that say who calls."""

    def __init__(self, transport: str, directory: Path, callers: Sequence[str] = ANYBODY_IS_ANN) -> None:
        self.transport = transport
        self.statuses: dict[int, int] = {}
        """How many responses had each status."""
        self.url = ""
        """Where it serves; another address after each start."""
        self._directory = directory
        self._callers = callers
        self._process: Process | None = None

    async def start(self) -> None:
        """Start, and wait until it serves."""
        flags = ("--embedder", "hash:", "--transport", self.transport, *self._callers)
        places = ("--data-dir", str(self._directory / "data"), "--http", "127.0.0.1:0")
        variables = {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}
        log = self._directory / "server.log"
        with log.open("ab") as said:
            begins = said.tell()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "muniment",
                "serve",
                *flags,
                *places,
                cwd=self._directory,
                env=variables,
                stderr=said,
            )
        async with asyncio.timeout(START_SECONDS):
            while not (found := _ADDRESS.search(log.read_bytes()[begins:])):
                assert self._process.returncode is None, log.read_text(encoding="utf-8")
                await asyncio.sleep(0.1)
        self.url = found[1].decode()

    async def kill(self) -> None:
        """As a power cut would."""
        await self._end(signal.SIGKILL)

    async def gone(self) -> None:
        """Once somebody else has killed it."""
        assert self._process is not None
        await self._process.wait()

    async def stop(self) -> None:
        """As an administrator would. It must leave with 0."""
        if self._process is not None and self._process.returncode is None:
            assert await self._end(signal.SIGTERM) == 0

    def resident(self) -> int:
        """Bytes of memory that the process has."""
        assert self._process is not None
        pages = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Client]:
        """A client with connections of its own."""
        async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
            http.event_hooks["response"] = [self._count]
            yield (
                HttpClient(http, self.url)
                if self.transport == "http"
                else McpClient(OverHttp(http, self.url, REVISION), REVISION)
            )

    async def _count(self, response: httpx2.Response) -> None:
        self.statuses[response.status_code] = self.statuses.get(response.status_code, 0) + 1

    async def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        return await self._process.wait()


async def answered(client: Client, operation: str, **payload: Any) -> Mapping[str, Any]:
    """The record or, by its ``code``, the refusal."""
    try:
        return (await client.call(operation, payload)).answer
    except Refused as refused:
        return {"code": refused.code, **refused.details}
