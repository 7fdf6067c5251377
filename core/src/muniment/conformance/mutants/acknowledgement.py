"""Mutants made for ACK-01 to ACK-10: who gets an event, what a token is worth, and what counts as seen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from muniment import acknowledgement
from muniment.agent_models import AckOutcome
from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.mutant import Mutants
from muniment.engine import Engine
from muniment.models import Agent, CallContext
from muniment.ports import Claim, Claimed, ClaimedEvent
from muniment.reference import ReferenceStorage
from muniment.reference.agent_rows import EnvelopeRow, EventRow

MUTANTS = Mutants()


@MUTANTS("claim without a lock", made_for="ACK-01", fails="ACK-01")
class ClaimsWithoutLock(ReferenceStorage):
    """Events are read, then updated, and two claimers read the same."""

    async def claim(self, claim: Claim) -> Claimed:
        """What was claimable a moment ago."""
        now = self.clock()
        found = self.queued([row for row in self.events_of(claim.agent) if self.is_claimable(row, claim, now)])
        await self.pause()
        digest, until = self.digest(claim.agent), now + claim.lease
        rows = [
            replace(row, attempts=row.attempts + 1, token=token, lease_until=until, delivered=digest.delivered)
            for row, token in zip(found, claim.tokens, strict=False)
        ]
        self.store({}, rows)
        events = (ClaimedEvent(row.id, row.token or "", row.attempts, until, row.payload) for row in rows)
        return Claimed(tuple(events), digest)


@MUTANTS("events of the agent's name", made_for="ACK-01", fails="ACC-08 ACK-01 OPS-03")
class ClaimsByName(ReferenceStorage):
    """The queue belongs to the name, and any instance takes from it."""

    def events_of(self, agent: Agent) -> Sequence[EventRow]:
        """Of all instances."""
        queues = [queue for of, queue in self.agents.events.items() if of.name == agent.name]
        return [row for queue in queues for row in queue.values()]


@MUTANTS("claims of ten at most", made_for="ACK-01", fails="ACK-01")
class CapsClaims(ReferenceStorage):
    """A claim delivers ten events at most, whatever was asked for."""

    async def claim(self, claim: Claim) -> Claimed:
        """Ten."""
        return await super().claim(replace(claim, tokens=claim.tokens[:10]))


@MUTANTS("ack without status gate", made_for="ACK-02", fails="DIG-05 ACK-02 ACK-07 ACK-08")
class AcksAgain(ReferenceStorage):
    """Whether the event was acknowledged before is not asked."""

    def outcome(self, row: EventRow, token: str) -> AckOutcome:
        """As if it were the first."""
        return acknowledgement.outcome(latest=row.token, shown=token, acked=False)


@MUTANTS("status read before the ack", made_for="ACK-02", fails="ACK-02")
class AcksByReadingFirst(ReferenceStorage):
    """Two at once both find the event not acknowledged."""

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        """What it was a moment ago."""
        row = self.delivered_event(agent, event_id)
        await self.pause()
        await super().ack(agent, event_id, token)
        return self.outcome(row, token)


@MUTANTS("ack that lowers last seen", made_for="ACK-03", fails="DIG-05 ACK-03 ACK-08")
class LowersLastSeen(ReferenceStorage):
    """The latest acknowledgement wins, not the highest."""

    def seen_after_ack(self, envelope: EnvelopeRow, row: EventRow) -> int:
        """What this delivery carried."""
        return envelope.last_seen if row.delivered is None else row.delivered


@MUTANTS("registering replaces last seen", made_for="ACK-03", fails="ACK-03")
class RegisteringForgetsLastSeen(ReferenceStorage):
    """An agent that is registered again is inserted in place of its row."""

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        """With nothing seen."""
        await super().register_agent(agent, pods)
        self.store({agent: replace(self.envelope(agent), last_seen=0)})


@MUTANTS("ack without a digest marks all as seen", made_for="ACK-04", fails="DIG-05 ACK-04 ACK-08")
class SeesAllWithoutDigest(ReferenceStorage):
    """A delivery without a revision is taken as one of the present revision."""

    def seen_after_ack(self, envelope: EnvelopeRow, row: EventRow) -> int:
        """The envelope's revision where nothing was persisted."""
        return envelope.revision if row.delivered is None else super().seen_after_ack(envelope, row)


@MUTANTS("old token accepted", made_for="ACK-05", fails="DIG-05 ACK-05 ACK-07 ACK-08")
class TakesAnyToken(ReferenceStorage):
    """The event's id is enough."""

    def outcome(self, row: EventRow, token: str) -> AckOutcome:
        """As if it were the latest."""
        return super().outcome(row, row.token or token)


@MUTANTS("status looked at before the token", made_for="ACK-05", fails="DIG-05 ACK-05 ACK-08")
class LooksAtStatusFirst(ReferenceStorage):
    """Once the event was acknowledged, any token is told so."""

    def outcome(self, row: EventRow, token: str) -> AckOutcome:
        """The status, then the token."""
        return AckOutcome.ALREADY_ACKED if row.acked else super().outcome(row, token)


@MUTANTS("event by its id alone", made_for="ACK-05", fails="ACC-07 ACK-05 ACK-07")
class FindsAnybodysEvent(ReferenceStorage):
    """Whoever has the id and the token acknowledges."""

    def event(self, agent: Agent, event_id: str) -> EventRow | None:
        """Anybody's."""
        return next((queue[event_id] for queue in self.agents.events.values() if event_id in queue), None)


@MUTANTS("ack that trusts the client's revision", made_for="ACK-06", fails="ACK-06")
class TrustsTheClient(Core):
    """An acknowledgement may say up to which revision the agent has seen."""

    async def call(self, engine: Engine, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        """And raise to it."""
        agent, revision = context.principal.agent, payload.get("revision")
        if name != "event.ack" or not isinstance(revision, int) or agent is None:
            return await super().call(engine, name, payload, context)
        sent = {field: value for field, value in payload.items() if field != "revision"}
        answer = await super().call(engine, name, sent, context)
        await engine.storage.raise_last_seen(agent, revision)
        return answer


@MUTANTS("lease that never ends", made_for="ACK-07", fails="DIG-05 DIG-06 ACK-05 ACK-07 ACK-08 ACK-10 OPS-01 OPS-03")
class LeasesForEver(ReferenceStorage):
    """What was delivered once is never offered again."""

    def lease_is_over(self, row: EventRow, now: datetime) -> bool:
        """Never."""
        return False


@MUTANTS("attempts not counted", made_for="ACK-07", fails="DIG-05 ACK-05 ACK-07 ACK-08 ACK-10 OPS-01 OPS-03")
class CountsNoAttempts(ReferenceStorage):
    """Each delivery is the first."""

    def attempts_after(self, row: EventRow) -> int:
        """One."""
        return 1


@MUTANTS("dead events offered again", made_for="ACK-07", fails="DIG-05 ACK-07 ACK-08 OPS-01 OPS-03")
class OffersForEver(ReferenceStorage):
    """No maximum ends an event that nobody can work on."""

    def is_claimable(self, row: EventRow, claim: Claim, now: datetime) -> bool:
        """Whatever its attempts."""
        return super().is_claimable(row, replace(claim, attempts_max=10**9), now)


@MUTANTS("one token for all deliveries", made_for="ACK-07", fails="DIG-05 ACK-05 ACK-07 ACK-08")
class KeepsToken(ReferenceStorage):
    """The token is made with the event, so an earlier worker's is as good as the latest's."""

    def token_of(self, row: EventRow, token: str) -> str:
        """The first."""
        return row.token or token


@MUTANTS("dead events hidden", made_for="ACK-07", fails="DIG-05 ACK-07 ACK-08")
class HidesDead(ReferenceStorage):
    """What is no longer offered is not shown either."""

    def is_dead(self, row: EventRow, attempts_max: int, now: datetime) -> bool:
        """Nothing is."""
        return False


@MUTANTS("extension never shortens", made_for="ACK-07", fails="ACK-07")
class NeverShortens(ReferenceStorage):
    """A lease ends at the latest time that it was ever given."""

    async def extend(self, agent: Agent, event_id: str, token: str, lease: timedelta) -> tuple[AckOutcome, datetime]:
        """As it was, where that is later."""
        before = self.event(agent, event_id)
        answer = await super().extend(agent, event_id, token, lease)
        row = self.event(agent, event_id)
        if before and row and before.lease_until and row.lease_until and before.lease_until > row.lease_until:
            self.store({}, [replace(row, lease_until=before.lease_until)])
        return answer


@MUTANTS("requeue takes what is out", made_for="ACK-07", fails="ACK-07")
class RequeuesWhatIsOut(ReferenceStorage):
    """Attempts alone say that an event is dead, though its last worker may be at work."""

    async def requeue(self, agent: Agent, event_ids: Sequence[str], *, attempts_max: int) -> Sequence[str]:
        """Whatever its lease."""
        await self.pause()
        named = [row for event_id in event_ids if (row := self.event(agent, event_id)) is not None]
        spent = {row.id: row for row in named if not row.acked and row.attempts >= attempts_max}
        self.store({}, [self.requeued(row) for row in spent.values()])
        return list(spent)


@MUTANTS("requeue forgets the latest token", made_for="ACK-07", fails="DIG-05 ACK-07 ACK-08")
class RequeueForgetsToken(ReferenceStorage):
    """A worker that ends late, before anybody else began, is told that there is no such event."""

    def requeued(self, row: EventRow) -> EventRow:
        """As if it had never been delivered."""
        return replace(super().requeued(row), token=None, lease_until=None, delivered=None)


@MUTANTS("last seen raised before the status", made_for="ACK-08", fails="ACK-08")
class RaisesFirst(ReferenceStorage):
    """Two statements without a transaction: what is seen stays seen where the status cannot be stored."""

    def store(self, envelopes: Mapping[Agent, EnvelopeRow], events: Sequence[EventRow] = ()) -> None:
        """One, then the other."""
        super().store(envelopes)
        super().store({}, events)


@MUTANTS("status stored before last seen", made_for="ACK-08", fails="ACK-08")
class StoresStatusFirst(ReferenceStorage):
    """Two statements without a transaction: an acknowledged event leaves its entries unseen."""

    def store(self, envelopes: Mapping[Agent, EnvelopeRow], events: Sequence[EventRow] = ()) -> None:
        """The other, then the one."""
        super().store({}, events)
        super().store(envelopes)


@MUTANTS("reading the newest marks all as seen", made_for="ACK-09", fails="DIG-05 ACK-08 ACK-09")
class SeesUpToNewestRead(Core):
    """The highest revision of a reply counts, whatever is missing below it."""

    def seen_by_reading(self, last_seen: int, stored: Sequence[int], held: Collection[int]) -> int:
        """The highest."""
        return max((last_seen, *held))


@MUTANTS("reading marks nothing as seen", made_for="ACK-09", fails="SEC-06 DIG-05 ACK-08 ACK-09")
class SeesNothingByReading(Core):
    """Only acknowledgements count."""

    def seen_by_reading(self, last_seen: int, stored: Sequence[int], held: Collection[int]) -> int:
        """As before."""
        return last_seen


@MUTANTS("newest event first", made_for="ACK-10", fails="DIG-05 ACK-07 ACK-08 ACK-10")
class OffersNewestFirst(ReferenceStorage):
    """The queue is a stack."""

    def queued(self, rows: Sequence[EventRow]) -> list[EventRow]:
        """The other way round."""
        return list(reversed(super().queued(rows)))


@MUTANTS("events that come again go last", made_for="ACK-10", fails="DIG-05 ACK-08 ACK-10")
class OffersRetriesLast(ReferenceStorage):
    """The queue is ordered by the time of the last delivery."""

    def queued(self, rows: Sequence[EventRow]) -> list[EventRow]:
        """By attempts first."""
        return sorted(super().queued(rows), key=lambda row: row.attempts)
