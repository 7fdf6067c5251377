"""Events and their deliveries, from enqueueing to acknowledgement or death."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from sqlite3 import Connection, Row
from typing import Final

from muniment import acknowledgement
from muniment.agent_models import AckOutcome
from muniment.digests import choose
from muniment.models import Agent
from muniment.ports import Claim, Claimed, ClaimedEvent, LostEvent, NewEvent, Position
from muniment.ports.refusals import no_delivery
from muniment_storage_sqlite.audiences import listed
from muniment_storage_sqlite.envelopes import exchanges_of, key, numbers, raise_last_seen
from muniment_storage_sqlite.times import length, moment, now, stored
from muniment_storage_sqlite.trail import as_json, claim_key

_WAITS: Final = "(token IS NULL OR (lease_until <= :now AND attempts < :attempts_max))"
_CLAIMABLE: Final = f"""
    SELECT number, id, attempts, payload FROM events
    WHERE agent = :agent AND instance = :instance AND NOT acked AND {_WAITS}
    ORDER BY number LIMIT :limit
"""
_DEAD: Final = """
    agent = :agent AND instance = :instance AND NOT acked AND attempts >= :attempts_max AND lease_until <= :now
"""


def enqueue(connection: Connection, event: NewEvent) -> datetime:
    """Store an event; when. Raises ReceiptTaken."""
    at = now()
    claim_key(connection, event.claim, at)
    connection.execute(
        """
        INSERT INTO events (id, agent, instance, enqueued_at, acked, attempts, payload)
        VALUES (:id, :agent, :instance, :at, 0, 0, :payload)
        """,
        {**key(event.agent), "id": event.id, "at": at, "payload": as_json(dict(event.payload))},
    )
    return moment(at)


def nothing_to_claim(connection: Connection, claim: Claim) -> Claimed | None:
    """The answer where there is nothing to claim, found without the write lock; else None."""
    return None if _claimable(connection, claim, now()) else _delivered(connection, claim, ())


def claim(connection: Connection, claim: Claim) -> Claimed:
    """Deliver the oldest claimable events with one digest, and persist with each what it delivered."""
    at = now()
    lease_until = at + length(claim.lease)
    rows = _claimable(connection, claim, at)
    events = tuple(
        ClaimedEvent(row["id"], token, row["attempts"] + 1, moment(lease_until), json.loads(row["payload"]))
        for row, token in zip(rows, claim.tokens, strict=False)
    )
    claimed = _delivered(connection, claim, events)
    connection.executemany(
        "UPDATE events SET attempts = ?, token = ?, delivered = ?, lease_until = ? WHERE id = ?",
        ((one.attempts, one.token, claimed.digest.delivered, lease_until, one.id) for one in events),
    )
    return claimed


def extend(
    connection: Connection, agent: Agent, event_id: str, token: str, lease: timedelta
) -> tuple[AckOutcome, datetime]:
    """Let the lease of the latest delivery end ``lease`` from now. Raises NotFound."""
    row = _event(connection, agent, event_id)
    outcome = acknowledgement.outcome(latest=row["token"], shown=token, acked=bool(row["acked"]))
    if outcome is not AckOutcome.ACKNOWLEDGED:
        return outcome, moment(row["lease_until"])
    lease_until = now() + length(lease)
    connection.execute("UPDATE events SET lease_until = ? WHERE number = ?", (lease_until, row["number"]))
    return outcome, moment(lease_until)


def ack(connection: Connection, agent: Agent, event_id: str, token: str) -> AckOutcome:
    """Acknowledge an event; the first time also raises last seen to what was delivered. Raises NotFound."""
    row = _event(connection, agent, event_id)
    outcome = acknowledgement.outcome(latest=row["token"], shown=token, acked=bool(row["acked"]))
    if outcome is AckOutcome.ACKNOWLEDGED:
        connection.execute("UPDATE events SET acked = 1 WHERE number = ?", (row["number"],))
        _, last_seen = numbers(connection, agent)
        raise_last_seen(connection, agent, acknowledgement.raised(last_seen, row["delivered"]))
    return outcome


def dead(
    connection: Connection, agent: Agent, *, attempts_max: int, after: Position | None, limit: int
) -> Sequence[LostEvent]:
    """An agent's dead events, oldest first."""
    rows = connection.execute(
        f"""
        SELECT * FROM events WHERE {_DEAD} AND (:at IS NULL OR (enqueued_at, id) > (:at, :after))
        ORDER BY enqueued_at, id LIMIT :limit
        """,
        {
            **key(agent),
            "attempts_max": attempts_max,
            "now": now(),
            "at": stored(after.created_at) if after else None,
            "after": after.id if after else None,
            "limit": limit,
        },
    )
    return [
        LostEvent(
            id=row["id"],
            agent=agent,
            attempts=row["attempts"],
            enqueued_at=moment(row["enqueued_at"]),
            lease_until=moment(row["lease_until"]),
            payload=json.loads(row["payload"]),
        )
        for row in rows
    ]


def requeue(connection: Connection, agent: Agent, event_ids: Sequence[str], *, attempts_max: int) -> Sequence[str]:
    """Give dead events their attempts back; the ids that were dead."""
    rows = connection.execute(
        f"""
        UPDATE events SET attempts = 0 WHERE {_DEAD} AND id IN (SELECT value FROM json_each(:ids)) RETURNING id
        """,
        {**key(agent), "attempts_max": attempts_max, "now": now(), "ids": listed(event_ids)},
    )
    revived = {id_ for (id_,) in rows.fetchall()}
    return [event_id for event_id in event_ids if event_id in revived]


def waiting(connection: Connection, *, attempts_max: int) -> int:
    """How many events of all agents a claim would get."""
    counted = connection.execute(
        f"SELECT count(*) FROM events WHERE NOT acked AND {_WAITS}", {"now": now(), "attempts_max": attempts_max}
    )
    return counted.fetchone()[0]


def agents_waiting(connection: Connection, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
    """Those of the agents with an event that a claim would get."""
    rows = connection.execute(
        f"""
        SELECT asked.key FROM json_each(:agents) AS asked WHERE EXISTS (
            SELECT 1 FROM events
            WHERE agent = json_extract(asked.value, '$[0]') AND instance = json_extract(asked.value, '$[1]')
                AND NOT acked AND {_WAITS}
        )
        """,
        {
            "agents": as_json([(agent.name, agent.instance) for agent in agents]),
            "now": now(),
            "attempts_max": attempts_max,
        },
    )
    places: list[int] = [place for (place,) in rows]
    return frozenset(agents[place] for place in places)


def _claimable(connection: Connection, claim: Claim, at: int) -> list[Row]:
    asked = {**key(claim.agent), "now": at, "attempts_max": claim.attempts_max, "limit": len(claim.tokens)}
    return connection.execute(_CLAIMABLE, asked).fetchall()


def _delivered(connection: Connection, claim: Claim, events: tuple[ClaimedEvent, ...]) -> Claimed:
    revision, last_seen = numbers(connection, claim.agent)
    return Claimed(events, choose(revision, last_seen, exchanges_of(connection, claim.agent)))


def _event(connection: Connection, agent: Agent, event_id: str) -> Row:
    """An event of the agent's that was delivered. Raises NotFound."""
    row = connection.execute(
        """
        SELECT number, acked, token, delivered, lease_until FROM events
        WHERE id = :id AND agent = :agent AND instance = :instance AND token IS NOT NULL
        """,
        {**key(agent), "id": event_id},
    ).fetchone()
    if row is None:
        raise no_delivery(event_id)
    return row
