"""Agent memory in memory: ``muniment.ports.AgentStorage``, each rule of it a method that a mutant can break.

Nothing is awaited between reading and storing, so each method is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from muniment import acknowledgement, digests
from muniment.agent_models import AckOutcome, Exchange, SectionName
from muniment.digests import Digest, StoredExchange
from muniment.errors import VersionConflict
from muniment.models import Agent
from muniment.ports import (
    Appended,
    Claim,
    Claimed,
    ClaimedEvent,
    EnvelopeFacts,
    ExchangeAppend,
    ExchangeDraft,
    LostEvent,
    NewEvent,
    Position,
    ReceiptClaim,
    SectionChange,
    SectionsWrite,
    StoredSection,
)
from muniment.ports.refusals import no_delivery
from muniment.reference.agent_rows import AgentData, EnvelopeRow, EventRow
from muniment.reference.base import Base


class ReferenceAgents(Base):
    """The agents' half of the reference storage."""

    agents: AgentData
    on_agent_write: Callable[[str, Agent], None]
    """Called with "envelope" or "event" and the agent, before a row of that kind is stored."""

    def take_receipt(self, claim: ReceiptClaim | None, now: datetime) -> None:
        """Store a claim, if there is one and its key is free. Raises ReceiptTaken."""
        raise NotImplementedError

    def envelope(self, agent: Agent) -> EnvelopeRow:
        """The agent's row; an envelope that does not exist is an empty one."""
        return self.agents.envelopes.get(agent, EnvelopeRow())

    def events_of(self, agent: Agent) -> Sequence[EventRow]:
        """The agent's events, in the order of their enqueuing."""
        return list(self.agents.events.get(agent, {}).values())

    def event(self, agent: Agent, event_id: str) -> EventRow | None:
        """The agent's event with this id."""
        return self.agents.events.get(agent, {}).get(event_id)

    def touch(self, envelopes: Mapping[Agent, EnvelopeRow], events: Sequence[EventRow]) -> None:
        """Pass the points of a write, before anything of it is stored."""
        for agent in envelopes:
            self.on_agent_write("envelope", agent)
        for row in events:
            self.on_agent_write("event", row.agent)

    def store(self, envelopes: Mapping[Agent, EnvelopeRow], events: Sequence[EventRow] = ()) -> None:
        """Commit all rows of one transaction, or none."""
        self.touch(envelopes, events)
        self.commit(envelopes, events)

    def commit(self, envelopes: Mapping[Agent, EnvelopeRow], events: Sequence[EventRow]) -> None:
        """Nothing here can fail."""
        self.agents.envelopes.update(envelopes)
        for row in events:
            self.agents.events.setdefault(row.agent, {})[row.id] = row

    # ------------------------------------------------------------ sections

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        """Replace the agent's pods."""
        await self.pause()
        self.store({agent: replace(self.envelope(agent), pods=pods)})

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        """The envelope, in one snapshot."""
        await self.pause()
        row = self.envelope(agent)
        return EnvelopeFacts(
            revision=row.revision,
            last_seen_revision=row.last_seen,
            sync_key=row.sync_key,
            pods=row.pods,
            sections={name: one for name, one in row.sections.items() if sections is None or name in sections},
            exchanges=row.exchanges if exchanges else (),
            now=self.clock(),
        )

    async def write_sections(self, write: SectionsWrite) -> datetime:
        """All changes or none, and the sync key with them."""
        await self.pause()
        row = self.envelope(write.agent)
        now = self.clock()
        written = {change.name: self.changed(row, change, now) for change in write.changes}
        sync_key = self.sync_key_after(row, write)
        self.store({write.agent: replace(row, sections={**row.sections, **written}, sync_key=sync_key)})
        return now

    def changed(self, row: EnvelopeRow, change: SectionChange, now: datetime) -> StoredSection:
        """A section after its change. Raises VersionConflict."""
        stored = row.sections.get(change.name)
        current = stored.version if stored else 0
        if current != change.expected_version:
            raise VersionConflict(current)
        return StoredSection(change.value, change.visibility, current + 1, change.byte_size, now)

    def sync_key_after(self, row: EnvelopeRow, write: SectionsWrite) -> str | None:
        """The envelope's sync key after a write."""
        return row.sync_key if write.keeps_sync_key else write.sync_key

    # ------------------------------------------------------------ exchanges

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """To every recipient or to none."""
        await self.pause()
        now = self.clock()
        if any(self.was_used(draft.agent, append.dedupe_key) for draft in append.entries):
            firsts = (self.envelope(draft.agent).dedupe.get(append.dedupe_key) for draft in append.entries)
            return Appended(tuple(firsts), deduped=True, at=now)
        rows = {draft.agent: self.appended(draft, append, now) for draft in self.recipients(append)}
        self.touch(rows, ())
        self.take_receipt(append.claim, now)
        self.commit(rows, ())
        return Appended(tuple(self.envelope(draft.agent).revision for draft in append.entries), deduped=False, at=now)

    def recipients(self, append: ExchangeAppend) -> Sequence[ExchangeDraft]:
        """The drafts that are stored: all of them."""
        return append.entries

    def was_used(self, agent: Agent, dedupe_key: str) -> bool:
        """Whether the agent has had this key before."""
        return dedupe_key in self.envelope(agent).dedupe

    def appended(self, draft: ExchangeDraft, append: ExchangeAppend, now: datetime) -> EnvelopeRow:
        """The recipient's envelope with the entry."""
        row = self.envelope(draft.agent)
        revision = self.next_revision(row)
        exchange = Exchange(
            revision=revision,
            ts=now,
            kind=draft.kind,
            surface_pod_id=draft.surface_pod_id,
            surface_label=draft.surface_label,
            peers=draft.peers,
            takeaway=draft.takeaway,
        )
        exchanges = self.trimmed((StoredExchange(exchange, draft.size), *row.exchanges), append.kept)
        dedupe = {**row.dedupe, append.dedupe_key: revision}
        return replace(row, revision=revision, exchanges=exchanges, dedupe=dedupe)

    def next_revision(self, row: EnvelopeRow) -> int:
        """One more."""
        return row.revision + 1

    def trimmed(self, exchanges: tuple[StoredExchange, ...], kept: int) -> tuple[StoredExchange, ...]:
        """The newest, at most ``kept``."""
        return exchanges[:kept]

    async def raise_last_seen(self, agent: Agent, revision: int) -> int:
        """By max."""
        await self.pause()
        row = self.envelope(agent)
        row = replace(row, last_seen=self.seen_after_reading(row, revision))
        self.store({agent: row})
        return row.last_seen

    def seen_after_reading(self, row: EnvelopeRow, revision: int) -> int:
        """The last seen revision after a reply that held all up to ``revision``."""
        return acknowledgement.raised(row.last_seen, revision)

    # ------------------------------------------------------------ events

    async def enqueue(self, event: NewEvent) -> datetime:
        """At the end of the queue."""
        await self.pause()
        now = self.clock()
        number = len(self.events_of(event.agent))
        row = EventRow(event.id, number, event.agent, event.payload, now)
        self.touch({}, [row])
        self.take_receipt(event.claim, now)
        self.commit({}, [row])
        return now

    async def claim(self, claim: Claim) -> Claimed:
        """The oldest claimable events, and the digest of this moment."""
        await self.pause()
        now = self.clock()
        found = [row for row in self.events_of(claim.agent) if self.is_claimable(row, claim, now)]
        taken = self.queued(found)[: len(claim.tokens)]
        digest = self.digest(claim.agent)
        until = now + claim.lease
        events = [
            replace(
                row,
                attempts=self.attempts_after(row),
                token=self.token_of(row, token),
                lease_until=until,
                delivered=self.delivered_revision(claim.agent, digest),
            )
            for row, token in zip(taken, claim.tokens, strict=False)
        ]
        self.store({}, events)
        return Claimed(
            tuple(ClaimedEvent(row.id, row.token or "", row.attempts, until, row.payload) for row in events), digest
        )

    def attempts_after(self, row: EventRow) -> int:
        """How often an event was delivered, this delivery included."""
        return row.attempts + 1

    def token_of(self, row: EventRow, token: str) -> str:
        """The token of a delivery: the new one."""
        return token

    def is_claimable(self, row: EventRow, claim: Claim, now: datetime) -> bool:
        """Whether an event waits, or its lease is over and an attempt is left."""
        if row.acked:
            return False
        return row.token is None or (self.lease_is_over(row, now) and row.attempts < claim.attempts_max)

    def lease_is_over(self, row: EventRow, now: datetime) -> bool:
        """By the storage's clock."""
        return row.lease_until is not None and row.lease_until <= now

    def queued(self, rows: Sequence[EventRow]) -> list[EventRow]:
        """Oldest first."""
        return sorted(rows, key=lambda row: row.number)

    def digest(self, agent: Agent) -> Digest:
        """The agent's digest, from one snapshot."""
        row = self.envelope(agent)
        return digests.choose(row.revision, row.last_seen, row.exchanges)

    def delivered_revision(self, agent: Agent, digest: Digest) -> int | None:
        """What is persisted with a delivery: the revision of the last entry that it carries."""
        return digest.delivered

    async def extend(self, agent: Agent, event_id: str, token: str, lease: timedelta) -> tuple[AckOutcome, datetime]:
        """From now, for the latest token."""
        await self.pause()
        row = self.delivered_event(agent, event_id)
        until = self.clock() + lease
        outcome = self.outcome(row, token)
        if outcome is AckOutcome.ACKNOWLEDGED:
            self.store({}, [replace(row, lease_until=until)])
        return outcome, until

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        """Status and raise in one transaction."""
        await self.pause()
        row = self.delivered_event(agent, event_id)
        outcome = self.outcome(row, token)
        if outcome is AckOutcome.ACKNOWLEDGED:
            envelope = self.envelope(agent)
            seen = replace(envelope, last_seen=self.seen_after_ack(envelope, row))
            self.store({agent: seen} if seen != envelope else {}, [replace(row, acked=True)])
        return outcome

    def delivered_event(self, agent: Agent, event_id: str) -> EventRow:
        """An event that was delivered to the agent. Raises NotFound."""
        row = self.event(agent, event_id)
        if row is None or row.token is None:
            raise no_delivery(event_id)
        return row

    def outcome(self, row: EventRow, token: str) -> AckOutcome:
        """What a token is worth."""
        return acknowledgement.outcome(latest=row.token, shown=token, acked=row.acked)

    def seen_after_ack(self, envelope: EnvelopeRow, row: EventRow) -> int:
        """The last seen revision after the first acknowledgement of a delivery."""
        return acknowledgement.raised(envelope.last_seen, row.delivered)

    async def dead_events(
        self, agent: Agent, *, attempts_max: int, after: Position | None, limit: int
    ) -> Sequence[LostEvent]:
        """Oldest first."""
        await self.pause()
        now = self.clock()
        rows = [row for row in self.events_of(agent) if self.is_dead(row, attempts_max, now)]
        rows.sort(key=lambda row: (row.enqueued_at, row.id))
        if after is not None:
            rows = [row for row in rows if (row.enqueued_at, row.id) > (after.created_at, after.id)]
        return [
            LostEvent(row.id, agent, row.attempts, row.enqueued_at, row.lease_until or now, row.payload)
            for row in rows[:limit]
        ]

    def is_dead(self, row: EventRow, attempts_max: int, now: datetime) -> bool:
        """Delivered as often as may be, not acknowledged, its last lease over."""
        return not row.acked and row.attempts >= attempts_max and self.lease_is_over(row, now)

    async def requeue(self, agent: Agent, event_ids: Sequence[str], *, attempts_max: int) -> Sequence[str]:
        """Claimable again, with all attempts; the latest token stays good until then."""
        await self.pause()
        now = self.clock()
        named = (self.event(agent, event_id) for event_id in event_ids)
        dead = [row for row in named if row is not None and self.is_dead(row, attempts_max, now)]
        self.store({}, [self.requeued(row) for row in dead])
        return [row.id for row in dead]

    def requeued(self, row: EventRow) -> EventRow:
        """A dead event as one that had no attempts."""
        return replace(row, attempts=0)
