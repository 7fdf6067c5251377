"""A client or the server killed with -9: nothing is lost or doubled, and nothing is seen that was not carried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient

from muniment.agent_models import AckOutcome
from muniment.conformance.target import StoredAgents
from muniment.errors import StorageUnavailable
from muniment.ports import Claim, NewEvent, PluginContext
from muniment_storage_mongo import agent_probe
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.storage import MongoStorage, create

WRITERS = 4
ROUNDS = 80
LEASE = 1.0
KEPT = 100_000
"""So that the cap takes nothing, and what is seen must have been carried."""


async def test_a_client_killed_between_claim_and_acknowledgement(
    storage: MongoStorage, raw: Any, calls: Any, processes: Any
) -> None:
    """Its event is offered again when the lease is over, with one more attempt; its token is stale."""
    await storage.enqueue(NewEvent("e1", calls.ann, {}))
    await storage.append_exchange(calls.append(calls.ann, key="k"))
    process = await processes()
    assert await calls.tell(process, "claim ann lost") == ["e1"]
    process.kill()
    await process.wait()
    assert await calls.take(storage, calls.ann, "early") == []
    await agent_probe.age(raw, 3600)
    claimed = await storage.claim(Claim(calls.ann, ["again"], calls.hour, 5))
    assert [(event.id, event.attempts) for event in claimed.events] == [("e1", 2)]
    assert [entry.revision for entry in claimed.digest.entries] == [1]
    assert await storage.ack(calls.ann, "e1", "lost") is AckOutcome.STALE_RECEIPT
    assert (await storage.load_envelope(calls.ann)).last_seen_revision == 0
    assert await storage.ack(calls.ann, "e1", "again") is AckOutcome.ACKNOWLEDGED
    assert (await storage.load_envelope(calls.ann)).last_seen_revision == 1


class Load:
    """Appends, events, claims and acknowledgements of two agents, with what each of them was told."""

    def __init__(self, storage: MongoStorage, calls: Any) -> None:
        self.storage = storage
        self.calls = calls
        self.appended: list[int] = []
        self.enqueued: set[str] = set()
        self.carried: dict[str, set[int]] = {}
        self.acknowledged: list[str] = []
        self.refused = asyncio.Event()
        self.writing = WRITERS
        self.due = asyncio.Event()

    async def write(self, writer: int) -> None:
        """Exchanges of both agents, and events for one of them."""
        for turn in range(ROUNDS):
            key = f"{writer}-{turn}"
            try:
                done = await self.storage.append_exchange(
                    self.calls.append(self.calls.ann, self.calls.bob, key=key, kept=KEPT)
                )
                assert done.revisions[0] == done.revisions[1]
                self.appended.append(done.revisions[0] or 0)
                await self.storage.enqueue(NewEvent(key, self.calls.ann, {}))
                self.enqueued.add(key)
            except StorageUnavailable:
                self.refused.set()
        self.writing -= 1

    async def work(self, worker: int, lease: timedelta) -> None:
        """Claim and acknowledge until everything is written; the kill is due when a quarter of it is."""
        turn = 0
        while self.writing:
            turn += 1
            try:
                await self.take_one(f"{worker}-{turn}", lease)
            except StorageUnavailable:
                self.refused.set()
            if len(self.appended) > ROUNDS and len(self.acknowledged) > ROUNDS // 8:
                self.due.set()
        self.due.set()

    async def take_one(self, token: str, lease: timedelta) -> bool:
        """Claim and acknowledge one event; whether there was one."""
        claimed = await self.storage.claim(Claim(self.calls.ann, [token], lease, 1_000))
        for event in claimed.events:
            self.carried[event.token] = {entry.revision for entry in claimed.digest.entries}
            if await self.storage.ack(self.calls.ann, event.id, event.token) is AckOutcome.ACKNOWLEDGED:
                self.acknowledged.append(event.id)
        return bool(claimed.events)


async def test_a_server_killed_under_load_loses_and_doubles_nothing(
    started: Callable[..., ReplicaSet], database_name: str, calls: Any
) -> None:
    """What was answered is there: revisions without a gap in both envelopes, each event acknowledged at most once, all
    of them in the end, and every exchange at or below last seen was carried by an acknowledged delivery."""
    with started() as replica_set:
        url = replica_set.url(database_name)
        storage = create(PluginContext(url, Path("unused"), {"primary_timeout": 1}))
        await storage.open()
        load = Load(storage, calls)

        async def kill() -> None:
            await load.due.wait()
            replica_set.nodes[0].kill()
            await load.refused.wait()
            await asyncio.to_thread(replica_set.start)

        workers = (load.work(worker, timedelta(seconds=LEASE)) for worker in range(4))
        async with asyncio.timeout(240):
            await asyncio.gather(kill(), *(load.write(writer) for writer in range(WRITERS)), *workers)
        await asyncio.sleep(LEASE + 0.1)
        last = 0
        while await load.take_one(f"last-{last}", calls.hour):
            last += 1
        await storage.close()
        async with AsyncMongoClient[dict[str, Any]](url, tz_aware=True) as client:
            settled(await agent_probe.stored(client[database_name]), load)


def settled(stored: StoredAgents, load: Load) -> None:
    """Compare what is stored with what the callers were told."""
    envelopes = {envelope.agent: envelope for envelope in stored.envelopes}
    for agent in (load.calls.ann, load.calls.bob):
        revisions = [entry.revision for entry in stored.exchanges if entry.agent == agent]
        assert sorted(revisions) == list(range(1, envelopes[agent].revision + 1))
        assert set(load.appended) <= set(revisions)
        assert len(set(load.appended)) == len(load.appended)
        keys = [key.revision for key in stored.dedupe_keys if key.agent == agent]
        assert sorted(keys) == sorted(revisions)
    events = {event.id: event for event in stored.events}
    assert load.enqueued <= events.keys()
    assert len(set(load.acknowledged)) == len(load.acknowledged)
    assert all(event.acked for event in events.values())
    last_seen = envelopes[load.calls.ann].last_seen_revision
    seen = set[int]().union(*(load.carried[event.token or ""] for event in events.values()))
    assert set(range(1, last_seen + 1)) <= seen
    assert last_seen > 0
