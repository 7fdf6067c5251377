"""Agent memory as only PostgreSQL can get it wrong: statements that trim by an old snapshot."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from muniment.conformance.agent_calls import ANN, HOUR, exchange
from muniment.models import Agent
from muniment.ports import Claim, NewEvent
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


async def test_asking_whose_events_wait_costs_no_event_that_does_not(
    storage: PostgresStorage, raw: Any, looked_at: Any
) -> None:
    """Of 20,000 events that are acknowledged, others' or out, none is looked at."""
    await storage.enqueue(NewEvent("mine", ANN, {}))
    await raw.execute(
        "INSERT INTO event (agent_name, instance_id, id, payload, enqueued_at, acked, attempts, token, lease_until)"
        " SELECT CASE mod(n, 4) WHEN 0 THEN 'other' ELSE %s END, %s, n::text, '{}', now(), mod(n, 2) = 1, 1,"
        " CASE WHEN mod(n, 4) > 0 THEN 'token' END, now() + interval '1 hour' FROM generate_series(1, 20000) n",
        (ANN.name, ANN.instance),
    )
    await raw.execute("VACUUM ANALYZE event")
    nobody = Agent(name="nobody", instance="1")
    assert await storage.agents_waiting([ANN, nobody], attempts_max=3) == {ANN}
    parameters = {"agents": [ANN.name, nobody.name], "instances": [ANN.instance, nobody.instance], "attempts_max": 3}
    assert await looked_at("event", "agents_waiting", parameters) < 10


async def test_a_trail_costs_what_it_shows(storage: PostgresStorage, raw: Any, looked_at: Any) -> None:
    """Neither the histories of a scope's memories nor its earlier pages are looked at."""
    await raw.execute(
        "INSERT INTO audit (id, at, actor, surface, action, memory_id, version, changed, scope_key)"
        " SELECT n::text, now() - n * interval '1 second', 'ann', 'test', 'test',"
        " CASE WHEN mod(n, 10) > 0 THEN n::text END, 1, '{}', 'u:ann' FROM generate_series(1, 20000) n"
    )
    await raw.execute("VACUUM ANALYZE audit")
    first = await storage.trail("u:ann", after=None, limit=5)
    assert [entry.id for entry in first] == ["10", "20", "30", "40", "50"]
    parameters = {"scope_key": "u:ann", "after_at": first[-1].at, "after_id": first[-1].id, "limit": 5}
    assert await looked_at("audit", "scope_trail", parameters) < 10
