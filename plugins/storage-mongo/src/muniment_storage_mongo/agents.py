"""``muniment.ports.AgentStorage`` on MongoDB: envelopes and their sections; the rest it hands on.

What changes one document is one update of it: sections are compared and set by its filter and its pipeline together, so
a race ends in a filter that matches nothing. Why it did is then asked in a transaction, which sees what the update saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError

from muniment.agent_models import AckOutcome, SectionName
from muniment.errors import VersionConflict
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
    SectionsWrite,
)
from muniment.ports.refusals import envelope_kept_changing
from muniment_storage_mongo import agent_events, agent_records
from muniment_storage_mongo.agent_acks import Acknowledgements
from muniment_storage_mongo.agent_appends import Appends
from muniment_storage_mongo.agent_claims import Claims
from muniment_storage_mongo.agent_records import EMPTY, NOW
from muniment_storage_mongo.agent_schema import ENVELOPES
from muniment_storage_mongo.agent_turns import Turns
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.records import literal

_ATTEMPTS = 8


class MongoAgents:
    """The agents' half of the storage."""

    def __init__(self) -> None:
        turns = Turns()
        self._appends = Appends(lambda: self._database, turns)
        self._claims = Claims(lambda: self._database)
        self._acknowledgements = Acknowledgements(lambda: self._database, turns)

    @property
    def _database(self) -> Database:
        raise NotImplementedError

    @property
    def _envelopes(self) -> AsyncCollection[Document]:
        return self._database.collection(ENVELOPES.name)

    # ------------------------------------------------------------ envelopes

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        """Replace the agent's pods."""
        key = {"_id": agent_records.key_of(agent)}
        change = [EMPTY, {"$set": {"pods": literal(sorted(pods))}}]
        await self._database.write(lambda: self._envelopes.update_one(key, change, upsert=True))

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        """The envelope, which is one document."""
        fields = agent_records.envelope_fields(sections, exchanges=exchanges)
        key = {"_id": agent_records.key_of(agent)}
        found = await self._database.read(lambda: self._envelopes.find_one(key, fields))
        if found is None:
            greeting = await self._database.command({"hello": 1})
            return agent_records.envelope_facts({}, greeting["localTime"].replace(tzinfo=UTC))
        return agent_records.envelope_facts(found, found["now"])

    async def write_sections(self, write: SectionsWrite) -> datetime:
        """Compare-and-set on every section's version, all or none."""
        for _ in range(_ATTEMPTS):
            at = await self._write(write)
            if at is not None:
                return at
            current = agent_records.conflicting(write, await self._versions(write))
            if current is not None:
                raise VersionConflict(current)
        raise envelope_kept_changing(write.agent)

    async def raise_last_seen(self, agent: Agent, revision: int) -> int:
        """By max."""
        key = {"_id": agent_records.key_of(agent)}
        change = [EMPTY, {"$set": {"last_seen": {"$max": ["$last_seen", revision]}}}]
        raised = await self._database.write(
            lambda: self._envelopes.find_one_and_update(
                key, change, {"last_seen": 1}, upsert=True, return_document=ReturnDocument.AFTER
            )
        )
        assert raised is not None
        return raised["last_seen"]

    async def _write(self, write: SectionsWrite) -> datetime | None:
        """The time of the write; None where a section is at another version. An envelope begins with first writes."""
        expected = agent_records.expecting(write)
        change = agent_records.writing(write)
        first = not any(one.expected_version for one in write.changes)
        try:
            written = await self._database.write(
                lambda: self._envelopes.find_one_and_update(
                    expected, change, {"at": NOW}, upsert=first, return_document=ReturnDocument.AFTER
                )
            )
        except DuplicateKeyError:
            return None
        return written["at"] if written else None

    async def _versions(self, write: SectionsWrite) -> Document:
        key = {"_id": agent_records.key_of(write.agent)}
        fields = {f"sections.{change.name.value}.version": 1 for change in write.changes}

        async def work(session: Session) -> Document:
            return await self._envelopes.find_one(key, fields, session=session) or {}

        return await self._database.transaction(work)

    # ------------------------------------------------------------ exchanges and events

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """To every recipient or to none."""
        return await self._appends.append(append)

    async def enqueue(self, event: NewEvent) -> datetime:
        """At the end of the agent's queue."""
        return await agent_events.enqueue(self._database, event)

    async def claim(self, claim: Claim) -> Claimed:
        """The oldest claimable events that nobody else is taking, and the digest of their snapshot."""
        return await self._claims.claim(claim)

    async def extend(self, agent: Agent, event_id: str, token: str, lease: timedelta) -> tuple[AckOutcome, datetime]:
        """From now, for the latest token."""
        return await self._acknowledgements.extend(agent, event_id, token, lease)

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        """Status and raise in one transaction."""
        return await self._acknowledgements.ack(agent, event_id, token)

    async def dead_events(
        self, agent: Agent, *, attempts_max: int, after: Position | None, limit: int
    ) -> Sequence[LostEvent]:
        """Oldest first."""
        return await agent_events.dead(self._database, agent, attempts_max, after, limit)

    async def requeue(self, agent: Agent, event_ids: Sequence[str], *, attempts_max: int) -> Sequence[str]:
        """Claimable again, with all attempts."""
        return await agent_events.requeue(self._database, agent, event_ids, attempts_max)
