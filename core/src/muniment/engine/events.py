"""Events: enqueued by the platform, claimed and acknowledged by the agent, each delivery with the agent's digest."""

from __future__ import annotations

import logging
import secrets
from datetime import timedelta
from typing import Any
from uuid import uuid4

from muniment import digests, limits, pages
from muniment.agent_models import (
    AckOutcome,
    AckReceipt,
    DeadEvent,
    DeadPage,
    Delivery,
    DeliveryPage,
    EventReceipt,
    RequeueReceipt,
)
from muniment.engine.agents import own
from muniment.engine.arrivals import Arrivals
from muniment.engine.idempotency import Idempotency
from muniment.engine.lookout import Lookout
from muniment.models import Agent, CallContext
from muniment.operations.agents import EventAck, EventClaim, EventDead, EventEnqueue, EventExtend, EventRequeue
from muniment.ports import AgentStorage, Claim, ClaimedEvent, NewEvent, Position, ReceiptTaken

log = logging.getLogger(__name__)

_TOKEN_BYTES = 24


class Events:
    """Event operations. ``cue`` puts one line about the digest before a payload's content."""

    def __init__(
        self, storage: AgentStorage, idempotency: Idempotency, arrivals: Arrivals, lookout: Lookout, *, cue: bool
    ) -> None:
        self._storage = storage
        self._idempotency = idempotency
        self._arrivals = arrivals
        self._lookout = lookout
        self._cue = cue

    async def enqueue(self, context: CallContext, sent: EventEnqueue) -> EventReceipt:
        """Store an event for an agent."""
        first = await self._idempotency.find(context, "event.enqueue", sent)
        if first is not None:
            return EventReceipt.model_validate({**first.receipt, "enqueued_at": first.updated_at})
        agent = Agent(name=sent.agent.name, instance=sent.agent.instance)
        event_id = str(uuid4())
        receipt = {"id": event_id, "agent": agent.model_dump(mode="json")}
        claim = self._idempotency.claim(context, "event.enqueue", sent, event_id, receipt)
        try:
            at = await self._storage.enqueue(NewEvent(event_id, agent, sent.payload, claim))
        except ReceiptTaken:
            return await self.enqueue(context, sent)
        self._arrivals.note(agent)
        return EventReceipt(id=event_id, agent=agent, enqueued_at=at)

    async def claim(self, context: CallContext, sent: EventClaim) -> DeliveryPage:
        """Take the oldest claimable events, each with the digest in its payload."""
        agent = own(context)
        claimed = await self._storage.claim(
            Claim(
                agent=agent,
                tokens=[secrets.token_urlsafe(_TOKEN_BYTES) for _ in range(sent.limit)],
                lease=timedelta(seconds=sent.lease_seconds),
                attempts_max=limits.ATTEMPTS_MAX,
            )
        )
        self._lookout.claimed(agent)
        return DeliveryPage(items=tuple(self._delivery(event, claimed.digest) for event in claimed.events))

    async def extend(self, context: CallContext, sent: EventExtend) -> AckReceipt:
        """Keep an event for longer."""
        lease = timedelta(seconds=sent.lease_seconds)
        outcome, until = await self._storage.extend(own(context), sent.id, sent.token, lease)
        extended = outcome is AckOutcome.ACKNOWLEDGED
        return AckReceipt(id=sent.id, outcome=outcome, lease_until=until if extended else None)

    async def ack(self, context: CallContext, sent: EventAck) -> AckReceipt:
        """Say that an event is done."""
        return AckReceipt(id=sent.id, outcome=await self._storage.ack(own(context), sent.id, sent.token))

    async def dead(self, context: CallContext, sent: EventDead) -> DeadPage:
        """An agent's dead events, oldest first."""
        agent = Agent(name=sent.agent.name, instance=sent.agent.instance)
        query = pages.query_hash("event.dead", agent.model_dump(mode="json"))
        after = pages.decode_position(sent.cursor, query)
        rows = await self._storage.dead_events(
            agent, attempts_max=limits.ATTEMPTS_MAX, after=after, limit=sent.limit + 1
        )
        kept = rows[: sent.limit]
        more = len(rows) > len(kept)
        return DeadPage(
            items=tuple(
                DeadEvent(
                    id=row.id,
                    agent=row.agent,
                    attempts=row.attempts,
                    enqueued_at=row.enqueued_at,
                    lease_until=row.lease_until,
                    payload=dict(row.payload),
                )
                for row in kept
            ),
            cursor=pages.encode_position(query, Position(kept[-1].enqueued_at, kept[-1].id)) if more else None,
        )

    async def requeue(self, context: CallContext, sent: EventRequeue) -> RequeueReceipt:
        """Make dead events claimable again."""
        agent = Agent(name=sent.agent.name, instance=sent.agent.instance)
        ids = list(dict.fromkeys(sent.ids))
        requeued = await self._storage.requeue(agent, ids, attempts_max=limits.ATTEMPTS_MAX)
        if requeued:
            self._arrivals.note(agent)
        return RequeueReceipt(requeued=tuple(requeued))

    def _delivery(self, event: ClaimedEvent, digest: digests.Digest) -> Delivery:
        return Delivery(
            id=event.id,
            token=event.token,
            attempts=event.attempts,
            lease_until=event.lease_until,
            payload=self._payload(dict(event.payload), digest),
        )

    def _payload(self, given: dict[str, Any], digest: digests.Digest) -> dict[str, Any]:
        """The payload with the digest; a cue that fails never blocks a delivery."""
        if self._cue:
            try:
                return digests.payload(given, digest, cue=True)
            except Exception:
                log.exception("the memory cue failed; the event is delivered without it")
        return digests.payload(given, digest, cue=False)
