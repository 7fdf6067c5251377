"""The server killed with -9 while many write: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from muniment.errors import StorageUnavailable
from muniment.ports import Audience, PluginContext, Space
from muniment_storage_postgres.storage import create

WRITES = 1000
_WAITING = b"SELECT count(*) FROM pg_locks WHERE NOT granted"
SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)


async def test_no_acknowledged_write_is_lost(fresh_dir: Path, writer: Any) -> None:
    """Of 1,000 writes at once, killed at about half: each acknowledged one is there, whole, after the restart."""
    storage = create(PluginContext("embedded:", fresh_dir, {"partitions": 2}))
    await storage.open()
    acknowledged: list[str] = []
    refused: list[Exception] = []

    async def write(memory_id: str) -> None:
        try:
            await storage.apply(writer.create(memory_id, f"text of {memory_id}", index=writer.index("text", ())))
        except StorageUnavailable as error:
            refused.append(error)
            return
        acknowledged.append(memory_id)
        if len(acknowledged) == WRITES // 2:
            await kill_between(fresh_dir / "postgres")

    try:
        await storage.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
        await asyncio.gather(*(write(f"m{number}") for number in range(WRITES)))
        assert len(acknowledged) >= WRITES // 2
        assert refused, "nothing was interrupted"
        for memory_id in acknowledged:
            facts = await storage.load(Audience("ann"), memory_id)
            assert facts is not None, f"{memory_id} was acknowledged and is gone"
            assert facts.memory.content == f"text of {memory_id}"
            assert len(await storage.history(Audience("ann"), memory_id, before=None, limit=9)) == 1
    finally:
        await storage.close()


async def kill_between(place: Path) -> None:
    """Kill a server while it is at statements that it cannot finish."""
    with suppress(psycopg.OperationalError):
        async with await psycopg.AsyncConnection.connect(host=str(place), user="postgres", dbname="postgres") as raw:
            await raw.execute(b"LOCK TABLE muniment.memory")
            while await (await raw.execute(_WAITING)).fetchone() == (0,):
                pass  # each look lets the writers go on
            kill(int((place / "postmaster.pid").read_text().split()[0]))


def kill(postmaster: int) -> None:
    """End a server with -9, and its backends, which would finish the statements that they are at."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children")
    backends = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    for pid in (postmaster, *backends):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
