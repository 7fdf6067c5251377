"""The server killed with -9 while many write: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from muniment.errors import StorageUnavailable
from muniment.ports import Audience, PluginContext, Space
from muniment_storage_postgres.storage import create

WRITES = 1000
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
            kill(int((fresh_dir / "postgres" / "postmaster.pid").read_text().split()[0]))

    try:
        await storage.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
        await asyncio.gather(*(write(f"m{number}") for number in range(WRITES)))
        assert len(acknowledged) >= WRITES // 2
        assert refused, "the kill came too late to interrupt anything"
        for memory_id in acknowledged:
            facts = await storage.load(Audience("ann"), memory_id)
            assert facts is not None, f"{memory_id} was acknowledged and is gone"
            assert facts.memory.content == f"text of {memory_id}"
            assert len(await storage.history(Audience("ann"), memory_id, before=None, limit=9)) == 1
    finally:
        await storage.close()


def kill(postmaster: int) -> None:
    """End a server with -9, and its backends, which would finish the statements that they are at."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children")
    backends = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    for pid in (postmaster, *backends):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
