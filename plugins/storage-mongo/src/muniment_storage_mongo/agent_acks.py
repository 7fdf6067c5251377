"""What a token does to a delivery: it acknowledges it, or lets its lease end later.

An acknowledgement and the raise of last seen are one transaction. The event is changed first, by a filter on its
token and state, so a claim that got in before leaves nothing to do: its token is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pymongo import ReturnDocument

from muniment import acknowledgement
from muniment.agent_models import AckOutcome
from muniment.errors import NotFound
from muniment.models import Agent
from muniment.ports.refusals import no_delivery
from muniment_storage_mongo import agent_records
from muniment_storage_mongo.agent_records import NOW
from muniment_storage_mongo.agent_schema import ENVELOPES, EVENTS, EventState
from muniment_storage_mongo.agent_turns import Together, Turns
from muniment_storage_mongo.database import Database, Document, Session


class Receipt(NamedTuple):
    """A delivery, and the token that is to prove it."""

    agent: Agent
    event_id: str
    token: str

    @property
    def key(self) -> Document:
        """The event's key."""
        return {"_id": agent_records.event_key(self.agent, self.event_id)}

    @property
    def out(self) -> Document:
        """Matches the event while it is out under this token."""
        return {**self.key, "token": self.token, "state": EventState.DELIVERED.value}


class Acknowledgements:
    """Acknowledgements of this process; those of one agent that wait for each other are one transaction."""

    def __init__(self, database: Callable[[], Database], turns: Turns) -> None:
        self._database = database
        self._together: Together[Receipt, AckOutcome] = Together(turns, self._serve)

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        """What the token is worth. Raises NotFound."""
        return await self._together.call((agent_records.key_of(agent),), Receipt(agent, event_id, token))

    async def extend(self, agent: Agent, event_id: str, token: str, lease: timedelta) -> tuple[AckOutcome, datetime]:
        """What the token is worth, and when the lease ends. Raises NotFound."""
        database = self._database()
        receipt = Receipt(agent, event_id, token)
        until = {"$add": [NOW, round(lease / timedelta(milliseconds=1))]}
        extended = await database.write(
            lambda: database.collection(EVENTS.name).find_one_and_update(
                receipt.out,
                [{"$set": {"lease_until": until}}],
                {"lease_until": 1},
                return_document=ReturnDocument.AFTER,
            )
        )
        if extended is not None:
            return AckOutcome.ACKNOWLEDGED, extended["lease_until"]
        # A token is never given twice and acknowledging is never undone, so this still holds for that moment.
        event = await database.transaction(lambda session: _delivery(database, session, receipt))
        return _outcome(event, receipt), event["now"] + lease

    async def _serve(self, receipts: Sequence[Receipt]) -> Sequence[AckOutcome | NotFound]:
        database = self._database()
        return await database.transaction(lambda session: _ack(database, session, receipts))


async def _ack(database: Database, session: Session, receipts: Sequence[Receipt]) -> Sequence[AckOutcome | NotFound]:
    """Acknowledge deliveries to one agent, and raise last seen once for all of them."""
    answers: list[AckOutcome | NotFound] = []
    seen = 0
    for receipt in receipts:
        acked = await database.collection(EVENTS.name).find_one_and_update(
            receipt.out, {"$set": {"state": EventState.ACKED.value}}, {"delivered": 1}, session=session
        )
        if acked is not None:
            answers.append(AckOutcome.ACKNOWLEDGED)
            seen = acknowledgement.raised(seen, acked["delivered"])
            continue
        try:
            answers.append(_outcome(await _delivery(database, session, receipt), receipt))
        except NotFound as refusal:
            answers.append(refusal)
    if seen:
        unseen = {"_id": agent_records.key_of(receipts[0].agent), "last_seen": {"$lt": seen}}
        change = {"$set": {"last_seen": seen}}
        await database.collection(ENVELOPES.name).update_one(unseen, change, session=session)
    return answers


async def _delivery(database: Database, session: Session, receipt: Receipt) -> Document:
    """What is stored of an event's latest delivery, and the server's time; empty where the agent has no such event."""
    fields = {"token": 1, "state": 1, "now": NOW}
    return await database.collection(EVENTS.name).find_one(receipt.key, fields, session=session) or {}


def _outcome(event: Document, receipt: Receipt) -> AckOutcome:
    """What a token is worth that changed nothing. Raises NotFound."""
    latest = event.get("token")
    if latest is None:
        raise no_delivery(receipt.event_id)
    acked = event["state"] == EventState.ACKED.value
    return acknowledgement.outcome(latest=latest, shown=receipt.token, acked=acked)
