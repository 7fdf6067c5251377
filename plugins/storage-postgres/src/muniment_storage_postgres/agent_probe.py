"""What the conformance suite reads and breaks of agent memory, around the plugin."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, sql

from muniment.conformance.target import (
    AgentFaultPoint,
    StoredAgents,
    StoredDedupeKey,
    StoredEntry,
    StoredEnvelope,
    StoredEvent,
)
from muniment.models import Agent
from muniment_storage_postgres.agent_schema import envelope, event

_TABLE_OF = {AgentFaultPoint.ENVELOPE: envelope.name, AgentFaultPoint.EVENT: event.name}
_TRIGGER = """
CREATE FUNCTION fail_for_an_agent() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a fault of the conformance suite' USING ERRCODE = 'io_error'; END $$;
CREATE TRIGGER fail_for_an_agent BEFORE INSERT OR UPDATE ON {table}
FOR EACH ROW WHEN (NEW.agent_name = {name} AND NEW.instance_id = {instance}) EXECUTE FUNCTION fail_for_an_agent()
"""
_ENVELOPES = """
SELECT
    e.agent_name, e.instance_id, e.revision, e.last_seen, e.sync_key,
    (
        SELECT coalesce(json_object_agg(s.name, s.version), '{}') FROM section s
        WHERE s.agent_name = e.agent_name AND s.instance_id = e.instance_id
    )
FROM envelope e
"""
_EXCHANGES = "SELECT agent_name, instance_id, revision, kind, peers, takeaway, size FROM exchange"
_EVENTS = "SELECT agent_name, instance_id, id, acked, attempts, token, delivered FROM event"
_KEYS = "SELECT agent_name, instance_id, dedupe_key, revision FROM exchange_key"


async def stored(connection: AsyncConnection[Any]) -> StoredAgents:
    """Everything of agent memory, in the connection's snapshot."""

    async def rows(statement: str) -> list[tuple[Any, ...]]:
        found = await (await connection.execute(statement.encode())).fetchall()
        return [(Agent(name=name, instance=instance), *rest) for name, instance, *rest in found]

    return StoredAgents(
        envelopes=tuple(StoredEnvelope(*row) for row in await rows(_ENVELOPES)),
        exchanges=tuple(
            StoredEntry(agent, revision, kind, tuple(peers), takeaway, size)
            for agent, revision, kind, peers, takeaway, size in await rows(_EXCHANGES)
        ),
        events=tuple(
            StoredEvent(event_id, agent, acked, attempts, token, delivered)
            for agent, event_id, acked, attempts, token, delivered in await rows(_EVENTS)
        ),
        dedupe_keys=tuple(StoredDedupeKey(*row) for row in await rows(_KEYS)),
    )


async def fail(connection: AsyncConnection[Any], point: AgentFaultPoint, agent: Agent) -> None:
    """Let every change of the agent's rows of the point's table raise."""
    table = sql.Identifier(_TABLE_OF[point])
    await connection.execute(
        sql.SQL(_TRIGGER).format(table=table, name=sql.Literal(agent.name), instance=sql.Literal(agent.instance))
    )


async def mend(connection: AsyncConnection[Any]) -> None:
    """Undo ``fail``."""
    await connection.execute(b"DROP FUNCTION fail_for_an_agent CASCADE")


async def age(connection: AsyncConnection[Any], seconds: float) -> None:
    """Move the end of every lease that still runs back, of events and of memories that are being embedded."""
    for table, column in (("event", "lease_until"), ("embedding_lease", "until")):
        statement = sql.SQL("UPDATE {0} SET {1} = {1} - %s * interval '1 second' WHERE {1} > clock_timestamp()").format(
            sql.Identifier(table), sql.Identifier(column)
        )
        await connection.execute(statement, (seconds,))
