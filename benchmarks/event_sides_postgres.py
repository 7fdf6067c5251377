"""PostgreSQL for the benchmark of events: the bare driver, and the rows that the sides share."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from event_sides import CONNECTIONS, DRIVER, LEASE, PAYLOAD, Ground, Receipt, Side, beside, draft
from psycopg import AsyncConnection

from muniment import limits
from muniment.models import Agent
from muniment.ports import PluginContext
from muniment_storage_postgres.embedded import server
from muniment_storage_postgres.sql import STATEMENTS
from muniment_storage_postgres.storage import create

SCHEMA = "muniment"


class Raw:
    """psycopg alone: the storage's statements on its tables, prepared, from as many connections as its pool has."""

    name = DRIVER

    def __init__(self, connections: Sequence[AsyncConnection[Any]]) -> None:
        self._free: asyncio.Queue[AsyncConnection[Any]] = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)

    async def append(self, agent: Agent, key: str) -> None:
        """The JSON as a program would write it out."""
        drafted = draft(agent)
        entry = {
            "place": 0,
            "agent": agent.name,
            "instance": agent.instance,
            "kind": drafted.kind,
            "surface_pod_id": drafted.surface_pod_id,
            "surface_label": drafted.surface_label,
            "peers": drafted.peers,
            "takeaway": drafted.takeaway,
            "size": drafted.size,
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


class Rows(Ground):
    """What the sides share."""

    def __init__(
        self, sides: Sequence[Side], process: int, connection: AsyncConnection[Any], agents: Sequence[Agent]
    ) -> None:
        super().__init__(sides, process, agents)
        self._connection = connection

    async def revisions(self) -> int:
        """The sum of all envelopes' revisions."""
        return await self._one("SELECT sum(revision) FROM envelope")

    async def unsee(self, count: int) -> None:
        """Let each agent have seen all exchanges but the last ``count``."""
        await self._connection.execute("UPDATE envelope SET last_seen = revision - %s", (count,))

    async def enqueue(self, events: int) -> None:
        """Events in turn for every agent."""
        await self._connection.execute(
            "INSERT INTO event (agent_name, instance_id, id, payload, enqueued_at, acked, attempts) "
            "SELECT (%s::text[])[1 + i %% %s], '1', gen_random_uuid(), %s, now(), false, 0 "
            "FROM generate_series(0, %s - 1) i",
            ([one.name for one in self.agents], len(self.agents), PAYLOAD, events),
        )

    async def unfinished(self) -> int:
        """How many events are not acknowledged, or were claimed more than once."""
        return await self._one("SELECT count(*) FROM event WHERE NOT acked OR attempts <> 1")

    async def _one(self, statement: str) -> int:
        row = await (await self._connection.execute(statement.encode())).fetchone()
        return int((row or (0,))[0] or 0)


@asynccontextmanager
async def ground(agents: Sequence[Agent]) -> AsyncGenerator[Rows]:
    """A server of its own, and the sides on it."""
    directory = Path(tempfile.mkdtemp(prefix="muniment-bench-"))
    running = server(directory / "postgres")
    try:
        conninfo = running.start()
        storage = create(PluginContext("embedded:", directory, {"pool_size": CONNECTIONS}))
        async with AsyncExitStack() as stack:
            made = [await connected(conninfo) for _ in range(CONNECTIONS + 1)]
            for one in made:
                stack.push_async_callback(one.close)
            process = int((directory / "postgres" / "postmaster.pid").read_text().split()[0])
            sides = await stack.enter_async_context(beside(Raw(made[1:]), storage))
            yield Rows(sides, process, made[0], agents)
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


async def connected(conninfo: str, schema: str = SCHEMA) -> AsyncConnection[Any]:
    """A connection set as the storage sets its own."""
    settings = f"search_path={schema},public jit=off timezone=UTC max_parallel_workers_per_gather=0"
    options = " ".join(f"-c {one}" for one in settings.split())
    return await AsyncConnection.connect(conninfo, autocommit=True, options=options)
