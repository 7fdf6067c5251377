"""The server killed with -9 while many write: what was acknowledged is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from muniment.errors import StorageUnavailable
from muniment.ports import Audience, PluginContext, Space
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.storage import create

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
WRITES = 600
ANN = Audience("ann")


async def test_no_acknowledged_write_is_lost(started: Callable[..., ReplicaSet], writer: Any) -> None:
    """Of 600 writes at once, killed at about half: each acknowledged one is there, whole, and none is there by half."""
    with started() as replica_set:
        storage = create(PluginContext(replica_set.url(), Path("unused"), {"primary_timeout": 1}))
        await storage.open()
        await storage.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
        acknowledged: list[str] = []
        refused: list[str] = []

        async def write(memory_id: str) -> None:
            try:
                await storage.apply(writer.create(memory_id, f"text of {memory_id}", index=writer.index("text", ())))
            except StorageUnavailable:
                refused.append(memory_id)
                return
            acknowledged.append(memory_id)
            if len(acknowledged) == WRITES // 2:
                replica_set.nodes[0].kill()

        await asyncio.gather(*(write(f"m{number}") for number in range(WRITES)))
        assert refused, "the kill came too late to interrupt anything"
        await asyncio.to_thread(replica_set.start)
        for memory_id in acknowledged:
            facts = await storage.load(ANN, memory_id)
            assert facts is not None, f"{memory_id} was acknowledged and is gone"
            assert facts.memory.content == f"text of {memory_id}"
        for memory_id in (*acknowledged, *refused):
            facts = await storage.load(ANN, memory_id)
            entries = await storage.history(ANN, memory_id, before=None, limit=9)
            assert len(entries) == (1 if facts else 0)
        await storage.close()
