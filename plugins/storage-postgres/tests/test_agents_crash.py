"""The server killed with -9: nothing is lost or doubled, and nothing is seen that was not carried."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import psycopg

from muniment.conformance.agent_load import Load, settled
from muniment.ports import PluginContext
from muniment_storage_postgres import agent_probe
from muniment_storage_postgres.storage import create


async def test_a_server_killed_under_load_loses_and_doubles_nothing(fresh_dir: Path) -> None:
    """What was answered is there: revisions without a gap in both envelopes, each event acknowledged at most once, all
    of them in the end, and every exchange at or below last seen was carried by an acknowledged delivery."""
    storage = create(PluginContext("embedded:", fresh_dir, {"partitions": 2}))
    await storage.open()
    load = Load(storage)

    async def kill() -> None:
        # A kill between two calls interrupts none: the next one finds a server that was started again.
        for _ in range(10):
            with suppress(FileNotFoundError, ProcessLookupError, IndexError):
                os.kill(int((fresh_dir / "postgres" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await load.refused.wait()
                return

    try:
        await load.run(kill)
        url = f"postgresql://postgres@/postgres?host={fresh_dir / 'postgres'}"
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(b"SET search_path = muniment, public")
            settled(await agent_probe.stored(connection), load)
    finally:
        await storage.close()
