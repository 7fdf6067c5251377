"""The collections of agent memory, as code; how a database gets them is the migrations'.

Every key begins with the agent's, ``<name> <instance>``: neither part may hold a space, so the text is unambiguous
whatever slashes it holds. It is the shard key of all three. Values and payloads are JSON as text: nothing asks inside
them, an integer of any size and a field of any name come back as they were sent, and a text is neither parsed nor built
again. An event that waits is in the index ``event_pending``, one that is out in ``event_delivered``; one that is
acknowledged is in neither, so a claim costs what waits and not what ever was.
"""

from __future__ import annotations

from enum import StrEnum

from muniment_storage_mongo.schema import MOMENT, NUMBER, TEXT, Collection, index

AGENT = "_id.agent"
"""The agent's key in a document whose own key has a second part."""


class EventState(StrEnum):
    """What has become of an event. That it is dead is a fact about a delivered one, not a state."""

    PENDING = "pending"
    DELIVERED = "delivered"
    ACKED = "acked"


ENVELOPES = Collection(
    "envelopes",
    required=("_id", "revision", "last_seen"),
    properties={"_id": TEXT, "revision": NUMBER, "last_seen": NUMBER, "exchanges": {"bsonType": "array"}},
)
"""One document for each agent: its numbers, pods, sync key, ``sections`` by name, and ``exchanges``, newest first."""

EXCHANGE_KEYS = Collection(
    "exchange_keys",
    required=("_id", "revision"),
    properties={"revision": NUMBER},
)
"""Every dedupe key that an agent has had, kept for ever, with the revision that it got. ``_id`` is both."""

EVENTS = Collection(
    "events",
    indexes=(
        index(
            AGENT,
            "number",
            "_id.id",
            name="event_pending",
            partialFilterExpression={"state": EventState.PENDING.value},
        ),
        index(
            AGENT,
            "attempts",
            "lease_until",
            name="event_delivered",
            partialFilterExpression={"state": EventState.DELIVERED.value},
        ),
    ),
    required=("_id", "number", "enqueued_at", "payload", "state", "attempts"),
    properties={
        "number": {"bsonType": "timestamp"},
        "enqueued_at": MOMENT,
        "payload": TEXT,
        "state": {"enum": [state.value for state in EventState]},
        "attempts": NUMBER,
        "token": TEXT,
        "lease_until": MOMENT,
    },
)
"""``number`` is its place in the queue, a time of the cluster's logical clock, which no failover sets back; ``token``,
``lease_until`` and ``delivered`` are the latest delivery's. ``_id`` is the agent's key and the event's id."""

COLLECTIONS = (ENVELOPES, EXCHANGE_KEYS, EVENTS)
