"""The three ways to append, claim and acknowledge that are compared: the bare driver, the storage, the engine.

The bare driver runs the same statements on the same tables, prepared, from as many connections as the storage's pool.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from psycopg import AsyncConnection

from muniment import limits
from muniment.agent_models import AckOutcome, AckReceipt, DeliveryPage, ExchangeKind
from muniment.digests import entry_size
from muniment.engine import Engine
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Claim, ExchangeAppend, ExchangeDraft
from muniment_storage_postgres.sql import STATEMENTS
from muniment_storage_postgres.storage import PostgresStorage

LEASE = timedelta(seconds=60)
POD, LABEL, PEERS, TAKEAWAY = "pod-1", "a room", ("other/1",), "Write the report → https://example.org/pr/17"
SIZE = entry_size(ExchangeKind.TASK_COMPLETED, POD, LABEL, PEERS, TAKEAWAY)
Receipt = tuple[Agent, str, str]


class Side(Protocol):
    """One way of doing it."""

    name: str

    async def append(self, agent: Agent, key: str) -> None:
        """One exchange for one agent."""
        ...

    async def claim(self, agent: Agent, token: str) -> Sequence[Receipt]:
        """At most one event, with its token."""
        ...

    async def ack(self, receipt: Receipt) -> bool:
        """Whether it was the first time."""
        ...


class Raw:
    """psycopg alone."""

    name = "driver"

    def __init__(self, connections: Sequence[AsyncConnection[Any]]) -> None:
        self._free: asyncio.Queue[AsyncConnection[Any]] = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)

    async def append(self, agent: Agent, key: str) -> None:
        """The JSON as a program would write it out."""
        entry = {
            "place": 0,
            "agent": agent.name,
            "instance": agent.instance,
            "kind": "task-completed",
            "surface_pod_id": POD,
            "surface_label": LABEL,
            "peers": PEERS,
            "takeaway": TAKEAWAY,
            "size": SIZE,
        }
        parameters = {
            "entries": json.dumps([entry], ensure_ascii=False, separators=(",", ":")),
            "dedupe_key": key,
            "cap": limits.EXCHANGES_KEPT,
        }
        await self._run("append_exchange", parameters)

    async def claim(self, agent: Agent, token: str) -> Sequence[Receipt]:
        """Rows as they come."""
        parameters = {
            "agent": agent.name,
            "instance": agent.instance,
            "tokens": [token],
            "count": 1,
            "lease": LEASE,
            "attempts_max": limits.ATTEMPTS_MAX,
            "digest_bytes": limits.DIGEST_BYTES_MAX,
        }
        rows = await self._run("claim_events", parameters)
        return [(agent, row[4], row[5]) for row in rows if row[4] is not None]

    async def ack(self, receipt: Receipt) -> bool:
        """Whether a row came."""
        agent, event, token = receipt
        parameters = {"agent": agent.name, "instance": agent.instance, "id": event, "token": token}
        return bool(await self._run("ack_event", parameters))

    async def _run(self, statement: str, parameters: dict[str, Any]) -> list[Any]:
        connection = await self._free.get()
        try:
            cursor = await connection.execute(STATEMENTS[statement], parameters, prepare=True, binary=True)
            return await cursor.fetchall()
        finally:
            self._free.put_nowait(connection)


class Stored:
    """``AgentStorage``."""

    name = "storage"

    def __init__(self, storage: PostgresStorage) -> None:
        self._storage = storage

    async def append(self, agent: Agent, key: str) -> None:
        """One exchange."""
        draft = ExchangeDraft(agent, ExchangeKind.TASK_COMPLETED, POD, LABEL, PEERS, TAKEAWAY, SIZE)
        await self._storage.append_exchange(ExchangeAppend((draft,), key, limits.EXCHANGES_KEPT))

    async def claim(self, agent: Agent, token: str) -> Sequence[Receipt]:
        """At most one event."""
        claimed = await self._storage.claim(Claim(agent, [token], LEASE, limits.ATTEMPTS_MAX))
        return [(agent, event.id, event.token) for event in claimed.events]

    async def ack(self, receipt: Receipt) -> bool:
        """Whether it was the first time."""
        return await self._storage.ack(*receipt) is AckOutcome.ACKNOWLEDGED


class Whole:
    """The operations, with their checks and their receipts."""

    name = "engine"
    _platform = CallContext(principal=Principal(user="platform", platform=True))

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def append(self, agent: Agent, key: str) -> None:
        """A task is done."""
        payload = {
            "assignee": {"name": agent.name, "instance": agent.instance},
            "title": "Write the report",
            "result": "https://example.org/pr/17",
            "surface_pod_id": POD,
            "surface_label": LABEL,
            "peers": list(PEERS),
            "dedupe_key": key,
        }
        await self._engine.call("exchange.task_completed", payload, self._platform)

    async def claim(self, agent: Agent, token: str) -> Sequence[Receipt]:
        """The engine makes the token."""
        page = await self._engine.call("event.claim", {"limit": 1}, self._own(agent))
        assert isinstance(page, DeliveryPage)
        return [(agent, one.id, one.token) for one in page.items]

    async def ack(self, receipt: Receipt) -> bool:
        """Whether it was the first time."""
        agent, event, token = receipt
        done = await self._engine.call("event.ack", {"id": event, "token": token}, self._own(agent))
        assert isinstance(done, AckReceipt)
        return done.outcome is AckOutcome.ACKNOWLEDGED

    def _own(self, agent: Agent) -> CallContext:
        return CallContext(principal=Principal(user="owner", agent=agent))


async def connected(conninfo: str, schema: str) -> AsyncConnection[Any]:
    """A connection set as the storage sets its own."""
    settings = f"search_path={schema},public jit=off plan_cache_mode=force_generic_plan timezone=UTC"
    options = " ".join(f"-c {one}" for one in (*settings.split(), "max_parallel_workers_per_gather=0"))
    return await AsyncConnection.connect(conninfo, autocommit=True, options=options)
