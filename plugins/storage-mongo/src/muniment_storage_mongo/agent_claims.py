"""Claims: a compare-and-set of each event's own document, which needs no transaction.

A claim reads the oldest claimable events and the envelope in one snapshot, and then gives each event its token, lease,
attempt and the digest's revision in one update, which matches only what the snapshot saw of its delivery. Who comes
second gets nothing of it, and takes the next ones. An exchange that was there before an event is in the snapshot that
showed the event; last seen never falls, so what an acknowledgement raises it to was carried, or is seen already. The
lease ends by the server's clock as it was in the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from muniment import digests
from muniment.digests import Digest
from muniment.errors import MunimentError
from muniment.ports import Claim, Claimed, ClaimedEvent
from muniment_storage_mongo import agent_records, refusals
from muniment_storage_mongo.agent_records import LEASE_IS_OVER, NOW, Stage
from muniment_storage_mongo.agent_schema import AGENT, ENVELOPES, EVENTS, EventState
from muniment_storage_mongo.agent_turns import Together, Turns
from muniment_storage_mongo.database import Database, Document, Session

_UNSEEN: Stage = {
    "$project": {
        "revision": 1,
        "last_seen": 1,
        "exchanges": {
            "$filter": {
                "input": {"$ifNull": ["$exchanges", []]},
                "as": "entry",
                "cond": {"$gt": ["$$entry.revision", "$last_seen"]},
            }
        },
    }
}
"""An envelope with what a digest is chosen from."""


class _Offer(NamedTuple):
    """An event as the snapshot saw it, for the claim in this place, and what its delivery is to be."""

    place: int
    event: Document
    delivery: Document


class Claims:
    """Claims of this process; those of one agent that wait for each other share one snapshot and one update."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self._database = database
        self._together: Together[Claim, Claimed] = Together(Turns(), self._serve)

    async def claim(self, claim: Claim) -> Claimed:
        """The oldest claimable events that nobody else is taking, and the digest of their snapshot."""
        return await self._together.call((f"{agent_records.key_of(claim.agent)} {claim.attempts_max}",), claim)

    async def _serve(self, claims: Sequence[Claim]) -> Sequence[Claimed | MunimentError]:
        """Answer claims of one agent, with one maximum of attempts, in their order."""
        database = self._database()
        answers: dict[int, Claimed | MunimentError] = {}
        lost: list[Document] = []
        while len(answers) < len(claims):
            waiting = {place: claims[place] for place in range(len(claims)) if place not in answers}
            try:
                answers |= await _offer(database, waiting, lost)
            except MunimentError as refusal:
                # What was delivered to others is theirs.
                answers |= dict.fromkeys(waiting, refusal)
        return [answers[place] for place in range(len(claims))]


async def _offer(
    database: Database, claims: Mapping[int, Claim], lost: list[Document]
) -> Mapping[int, Claimed | MunimentError]:
    """Offer the oldest events to claims by their places; the answers to those that are done.

    One that got nothing is not, where somebody else was faster: those events are added to ``lost``.
    """
    wanted = [(place, token) for place, claim in claims.items() for token in claim.tokens]
    events, digest = await _oldest(database, next(iter(claims.values())), len(wanted), lost)
    offers = [
        _Offer(place, event, _delivery(event, token, claims[place].lease, digest))
        for (place, token), event in zip(wanted, events, strict=False)
    ]
    won, refused = await _deliver(database, offers)
    held = [offer for offer in offers if offer.place not in refused]
    missed = [offer.event["_id"] for offer in held if offer.delivery["token"] not in won]
    lost += missed
    answers: dict[int, Claimed | MunimentError] = {**refused}
    for place in claims.keys() - refused.keys():
        taken = [offer for offer in held if offer.place == place and offer.delivery["token"] in won]
        if taken or not missed:
            answers[place] = Claimed(tuple(_claimed(offer) for offer in taken), digest)
    return answers


async def _oldest(
    database: Database, claim: Claim, count: int, lost: Sequence[Document]
) -> tuple[Sequence[Document], Digest]:
    """The oldest claimable events but those that were lost to others, and the digest, of one snapshot."""
    pipeline = _claimable(agent_records.key_of(claim.agent), claim.attempts_max, count, lost)

    async def work(session: Session) -> list[Document]:
        return await (await database.collection(EVENTS.name).aggregate(pipeline, session=session)).to_list()

    rows = await database.snapshot(work)
    envelope = rows.pop() if rows and isinstance(rows[-1]["_id"], str) else {}
    entries = agent_records.stored_exchanges(envelope)
    return rows, digests.choose(envelope.get("revision", 0), envelope.get("last_seen", 0), entries)


def _claimable(agent: str, attempts_max: int, count: int, lost: Sequence[Document]) -> list[Stage]:
    """The oldest of the pending and the lapsed events, each with the server's time as ``now``, then the envelope."""
    others: Document = {"_id": {"$nin": list(lost)}} if lost else {}
    pending = {AGENT: agent, "state": EventState.PENDING.value, **others}
    lapsed = {
        AGENT: agent,
        "state": EventState.DELIVERED.value,
        "attempts": {"$lt": attempts_max},
        **LEASE_IS_OVER,
        **others,
    }
    oldest: list[Stage] = [{"$sort": {"number": 1, "_id.id": 1}}, {"$limit": count}]
    return [
        {"$match": pending},
        *oldest,
        {"$unionWith": {"coll": EVENTS.name, "pipeline": [{"$match": lapsed}, *oldest]}},
        *oldest,
        {"$set": {"now": NOW}},
        {"$unionWith": {"coll": ENVELOPES.name, "pipeline": [{"$match": {"_id": agent}}, _UNSEEN]}},
    ]


async def _deliver(database: Database, offers: Sequence[_Offer]) -> tuple[set[str], Mapping[int, MunimentError]]:
    """Store each delivery unless somebody else changed its event.

    The tokens of those that are stored, and the places of claims of which the server refused one, with the refusal.
    """
    if not offers:
        return set(), {}
    events = database.collection(EVENTS.name)
    changes = [UpdateOne(_as_seen(offer.event), {"$set": offer.delivery}) for offer in offers]
    tokens = [offer.delivery["token"] for offer in offers]

    async def deliver() -> tuple[int, Mapping[int, MunimentError]]:
        try:
            return (await events.bulk_write(changes, ordered=False)).matched_count, {}
        except BulkWriteError as error:
            if error.details["writeConcernErrors"]:
                raise
            refusal = refusals.of_error(error, database.place)
            indices: list[int] = [one["index"] for one in error.details["writeErrors"]]
            return 0, {offers[index].place: refusal for index in indices}

    matched, refused = await database.write(deliver)
    if matched == len(offers):
        return set(tokens), {}
    stored = {"_id": {"$in": [offer.event["_id"] for offer in offers]}, "token": {"$in": tokens}}

    async def work() -> set[str]:
        return {event["token"] async for event in events.find(stored, {"token": 1})}

    return await database.read(work), refused


def _delivery(event: Document, token: str, lease: timedelta, digest: Digest) -> Document:
    """The fields of a new delivery."""
    return {
        "state": EventState.DELIVERED.value,
        "token": token,
        "attempts": event["attempts"] + 1,
        "lease_until": event["now"] + lease,
        "delivered": digest.delivered,
    }


def _as_seen(event: Document) -> Mapping[str, Any]:
    """Matches an event whose delivery nobody has changed since it was read."""
    return {"_id": event["_id"], **{name: event.get(name) for name in ("state", "attempts", "token", "lease_until")}}


def _claimed(offer: _Offer) -> ClaimedEvent:
    delivery = offer.delivery
    return ClaimedEvent(
        offer.event["_id"]["id"],
        delivery["token"],
        delivery["attempts"],
        delivery["lease_until"],
        agent_records.payload_of(offer.event),
    )
