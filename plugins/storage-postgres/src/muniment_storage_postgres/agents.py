"""``muniment.ports.AgentStorage`` on PostgreSQL: each method is one statement of ``agents.sql`` or ``events.sql``.

Owns what an answer without rows means, and which refused statement is tried again: one that a race undid as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import psycopg
from psycopg.errors import UniqueViolation

from muniment import acknowledgement
from muniment.agent_models import AckOutcome, SectionName
from muniment.errors import Internal, VersionConflict
from muniment.models import Agent
from muniment.ports import (
    Appended,
    Claim,
    Claimed,
    EnvelopeFacts,
    ExchangeAppend,
    LostEvent,
    NewEvent,
    Position,
    ReceiptTaken,
    SectionsWrite,
)
from muniment.ports.refusals import envelope_kept_changing, no_delivery
from muniment_storage_postgres import agent_records, records
from muniment_storage_postgres.database import Database
from muniment_storage_postgres.records import Parameters, Row

_ATTEMPTS = 8


class PostgresAgents:
    """The agents' half of the storage."""

    @property
    def _database(self) -> Database:
        raise NotImplementedError

    # ------------------------------------------------------------ envelopes

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        """Replace the agent's pods."""
        await self._database.change("register_agent", {**agent_records.of_agent(agent), "pods": sorted(pods)})

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        """The envelope, in one snapshot."""
        names = None if sections is None else [name.value for name in sections]
        parameters = {**agent_records.of_agent(agent), "sections": names, "exchanges": exchanges}
        return agent_records.envelope_facts(await self._database.rows("load_envelope", parameters))

    async def write_sections(self, write: SectionsWrite) -> datetime:
        """Compare-and-set on every section's version, all or none."""
        parameters = agent_records.of_sections(write)
        for _ in range(_ATTEMPTS):
            try:
                row = await self._database.change("write_sections", parameters)
            except psycopg.IntegrityError as error:
                if _constraint(error) != "section_pkey":
                    raise _broken(error) from error
                # Somebody else wrote a section for the first time.
                row = None
            if row is None:
                versions = dict(await self._database.rows("section_versions", parameters))
                current = agent_records.conflicting(write, versions)
            else:
                at, current = row
                if current is None:
                    return at
            if current is not None:
                raise VersionConflict(current)
        raise envelope_kept_changing(write.agent)

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """To every recipient or to none."""
        parameters = agent_records.of_append(append)
        statement = "append_exchange_once" if append.claim else "append_exchange"
        for _ in range(_ATTEMPTS):
            try:
                rows = await self._database.changes(statement, parameters)
            except psycopg.IntegrityError as error:
                if _constraint(error) == "receipt_pkey":
                    raise ReceiptTaken from error
                if _constraint(error) != "exchange_key_pkey":
                    raise _broken(error) from error
                # Somebody else used the dedupe key at the same moment; the next try finds it.
                continue
            if any(missed for *_, missed in rows):
                await self._database.change("trim_exchanges", parameters)
            _, deduped, at, _ = rows[0]
            return Appended(tuple(revision for revision, *_ in rows), deduped, at)
        raise envelope_kept_changing(append.entries[0].agent)

    async def raise_last_seen(self, agent: Agent, revision: int) -> int:
        """By max."""
        parameters = {**agent_records.of_agent(agent), "revision": revision}
        row = await self._database.change("raise_last_seen", parameters)
        return row[0] if row else revision

    # ------------------------------------------------------------ events

    async def enqueue(self, event: NewEvent) -> datetime:
        """At the end of the agent's queue."""
        parameters = {
            **agent_records.of_agent(event.agent),
            "id": event.id,
            "payload": agent_records.of_json(dict(event.payload)),
            **(records.of_claim(event.claim) if event.claim else {}),
        }
        statement = "enqueue_event_once" if event.claim else "enqueue_event"
        try:
            (row,) = await self._database.changes(statement, parameters)
        except psycopg.IntegrityError as error:
            if _constraint(error) == "receipt_pkey":
                raise ReceiptTaken from error
            raise _broken(error) from error
        return row[0]

    async def claim(self, claim: Claim) -> Claimed:
        """The oldest claimable events that nobody else is taking, and the digest of the statement's snapshot."""
        rows = await self._database.changes("claim_events", agent_records.of_delivery(claim))
        return agent_records.claimed(rows)

    async def extend(self, agent: Agent, event_id: str, token: str, lease: timedelta) -> tuple[AckOutcome, datetime]:
        """From now, for the latest token."""
        parameters = {**agent_records.of_agent(agent), "id": event_id, "token": token, "lease": lease}
        row = await self._database.change("extend_event", parameters)
        if row is not None:
            return AckOutcome.ACKNOWLEDGED, row[0]
        outcome, until = await self._delivery(parameters)
        return outcome, until

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        """Status and raise in one statement."""
        parameters = {**agent_records.of_agent(agent), "id": event_id, "token": token, "lease": None}
        row = await self._database.change("ack_event", parameters)
        if row is not None:
            return AckOutcome.ACKNOWLEDGED
        outcome, _ = await self._delivery(parameters)
        return outcome

    async def dead_events(
        self, agent: Agent, *, attempts_max: int, after: Position | None, limit: int
    ) -> Sequence[LostEvent]:
        """Oldest first."""
        parameters = {
            **agent_records.of_agent(agent),
            **records.of_position(after),
            "attempts_max": attempts_max,
            "limit": limit,
        }
        return [agent_records.lost_event(agent, row) for row in await self._database.rows("dead_events", parameters)]

    async def requeue(self, agent: Agent, event_ids: Sequence[str], *, attempts_max: int) -> Sequence[str]:
        """Claimable again, with all attempts."""
        parameters = {**agent_records.of_agent(agent), "ids": list(event_ids), "attempts_max": attempts_max}
        found = {row[0] for row in await self._database.changes("requeue_events", parameters)}
        return [event_id for event_id in event_ids if event_id in found]

    async def agents_waiting(self, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
        """Each asked for in the indexes that a claim uses."""
        parameters = {
            "agents": [agent.name for agent in agents],
            "instances": [agent.instance for agent in agents],
            "attempts_max": attempts_max,
        }
        found = await self._database.rows("agents_waiting", parameters)
        return frozenset(Agent(name=name, instance=instance) for name, instance in found)

    async def _delivery(self, parameters: Parameters) -> tuple[AckOutcome, datetime]:
        """What a token that changed nothing is worth, and when a lease would end. Raises NotFound.

        A token is never given twice and acknowledging is never undone, so this answer still holds for the moment at
        which nothing was changed.
        """
        row: Row = await self._database.row("delivery", parameters) or (None, False, None)
        latest, acked, until = row
        if latest is None:
            raise no_delivery(parameters["id"])
        return acknowledgement.outcome(latest=latest, shown=parameters["token"], acked=acked), until


def _constraint(error: psycopg.IntegrityError) -> str | None:
    return error.diag.constraint_name if isinstance(error, UniqueViolation) else None


def _broken(error: psycopg.IntegrityError) -> Internal:
    return Internal(f"A change of agent memory breaks the constraint {error.diag.constraint_name} of the schema.")
