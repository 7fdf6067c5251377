"""Agent memory as only PostgreSQL can get it wrong: statements that trim by an old snapshot."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from muniment.conformance.agent_calls import ANN, HOUR, exchange
from muniment.models import Agent
from muniment.ports import Claim
from muniment_storage_postgres.storage import PostgresStorage


async def entries(raw: psycopg.AsyncConnection[Any], agent: Agent) -> list[int]:
    """The revisions of the stored rows."""
    cursor = await raw.execute("SELECT revision FROM exchange WHERE agent_name = %s ORDER BY 1", (agent.name,))
    return [row[0] for row in await cursor.fetchall()]


async def test_the_cap_holds_although_a_statement_trims_by_an_old_snapshot(
    storage: PostgresStorage, raw: Any, url: str, schema: str
) -> None:
    """Appends that waited for one another see none of each other's entries; still no more than the cap is kept."""
    await storage.append_exchange(exchange(ANN, key="first", kept=2))
    async with await psycopg.AsyncConnection.connect(url) as holder:
        await holder.execute(f"SET search_path = {schema}, public".encode())
        await holder.execute("SELECT FROM envelope FOR UPDATE")
        waiting = [storage.append_exchange(exchange(ANN, key=f"k{number}", kept=2)) for number in range(8)]
        tasks = [asyncio.ensure_future(one) for one in waiting]
        await asyncio.sleep(0.5)
        assert not any(task.done() for task in tasks)
        await holder.commit()
    assert sorted([(await task).revisions[0] or 0 for task in tasks]) == list(range(2, 10))
    facts = await storage.load_envelope(ANN, exchanges=True)
    assert [stored.exchange.revision for stored in facts.exchanges] == [9, 8]
    assert await entries(raw, ANN) == [8, 9]


async def test_what_the_cap_took_is_gone_though_its_row_is_there(storage: PostgresStorage, raw: Any) -> None:
    """Neither a read nor a digest shows a row that a trim has missed."""
    for number in range(3):
        await storage.append_exchange(exchange(ANN, key=f"k{number}", kept=2))
    await raw.execute(
        "INSERT INTO exchange SELECT agent_name, instance_id, 1, at, kind, surface_pod_id, surface_label,"
        " peers, takeaway, size FROM exchange WHERE revision = 2"
    )
    facts = await storage.load_envelope(ANN, exchanges=True)
    assert [stored.exchange.revision for stored in facts.exchanges] == [3, 2]
    digest = (await storage.claim(Claim(ANN, ["t"], HOUR, 5))).digest
    assert ([entry.revision for entry in digest.entries], digest.evicted) == ([2, 3], 1)
