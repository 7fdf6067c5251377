"""The server killed with -9: nothing is lost or doubled, and nothing is seen that was not carried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient

from muniment.conformance.agent_load import Load, settled
from muniment.ports import PluginContext
from muniment_storage_mongo import agent_probe
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.storage import create


async def test_a_server_killed_under_load_loses_and_doubles_nothing(
    started: Callable[..., ReplicaSet], database_name: str
) -> None:
    """What was answered is there: revisions without a gap in both envelopes, each event acknowledged at most once, all
    of them in the end, and every exchange at or below last seen was carried by an acknowledged delivery."""
    with started() as replica_set:
        url = replica_set.url(database_name)
        storage = create(PluginContext(url, Path("unused"), {"primary_timeout": 1}))
        await storage.open()
        load = Load(storage)

        async def kill() -> None:
            replica_set.nodes[0].kill()
            await load.refused.wait()
            await asyncio.to_thread(replica_set.start)

        async with asyncio.timeout(240):
            await load.run(kill)
        await storage.close()
        async with AsyncMongoClient[dict[str, Any]](url, tz_aware=True) as client:
            settled(await agent_probe.stored(client[database_name]), load)
