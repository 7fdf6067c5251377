"""Documents of agent memory as the records of the ports, and the ports' values as documents and stages; no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from muniment.agent_models import Exchange, ExchangeKind, SectionName, Visibility
from muniment.digests import StoredExchange
from muniment.models import Agent
from muniment.ports import (
    EnvelopeFacts,
    ExchangeDraft,
    LostEvent,
    NewEvent,
    SectionChange,
    SectionsWrite,
    StoredSection,
)
from muniment_storage_mongo.agent_schema import EventState
from muniment_storage_mongo.database import Document
from muniment_storage_mongo.records import literal

NOW = "$$NOW"
Stage = Mapping[str, Any]
"""A stage of an update's pipeline."""

LEASE_IS_OVER: Mapping[str, Any] = {"$expr": {"$lte": ["$lease_until", NOW]}}
"""Part of a query, by the server's clock."""

EMPTY: Stage = {
    "$set": {"revision": {"$ifNull": ["$revision", 0]}, "last_seen": {"$ifNull": ["$last_seen", 0]}},
}
"""What makes a document that an update is about to begin an envelope; one that is there stays as it is."""


def key_of(agent: Agent) -> str:
    """The agent's key."""
    return f"{agent.name} {agent.instance}"


def agent_of(key: str) -> Agent:
    """The agent that a key is of."""
    name, instance = key.split(" ")
    return Agent(name=name, instance=instance)


def of_json(value: Any) -> str:
    """A value as it is stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ------------------------------------------------------------ envelopes


def appending(draft: ExchangeDraft, kept: int, at: Any) -> list[Stage]:
    """Raise the revision by one, stamp the entry with it, and leave the newest ``kept``; ``at`` is an expression."""
    entry = {
        "kind": draft.kind.value,
        "surface_pod_id": draft.surface_pod_id,
        "surface_label": draft.surface_label,
        "peers": list(draft.peers),
        "takeaway": draft.takeaway,
        "size": draft.size,
    }
    stamped = {"$mergeObjects": [literal(entry), {"revision": "$revision", "at": at}]}
    stored: Stage = {"$ifNull": ["$exchanges", []]}
    entries: Stage = {"$concatArrays": [[stamped], stored]}
    return [
        {"$set": {"revision": {"$add": ["$revision", 1]}}},
        {"$set": {"exchanges": {"$slice": [entries, kept]}}},
    ]


def writing(write: SectionsWrite) -> list[Stage]:
    """Store every change, and the sync key unless the envelope keeps its own."""
    stored = {f"sections.{change.name.value}": _changed(change) for change in write.changes}
    sync_key = {} if write.keeps_sync_key else {"sync_key": literal(write.sync_key)}
    return [EMPTY, {"$set": {**stored, **sync_key}}]


def expecting(write: SectionsWrite) -> Document:
    """The envelope with every section at the version that its change is for."""
    return {
        "_id": key_of(write.agent),
        **{f"sections.{one.name.value}.version": one.expected_version or None for one in write.changes},
    }


def conflicting(write: SectionsWrite, envelope: Document) -> int | None:
    """The version of the first section that is not at the one that its change is for."""
    sections: Mapping[str, Document] = envelope.get("sections", {})
    for change in write.changes:
        current = sections.get(change.name.value, {}).get("version", 0)
        if current != change.expected_version:
            return current
    return None


def envelope_fields(sections: Sequence[SectionName] | None, *, exchanges: bool) -> Document:
    """The projection of an envelope with these sections (None: all), and with its exchanges or without."""
    chosen = ["sections"] if sections is None else [f"sections.{name.value}" for name in sections]
    named = [*chosen, *(["exchanges"] if exchanges else [])]
    return {"revision": 1, "last_seen": 1, "sync_key": 1, "pods": 1, "now": NOW, **dict.fromkeys(named, 1)}


def envelope_facts(envelope: Document, now: datetime) -> EnvelopeFacts:
    """An envelope; an empty document is one that does not exist."""
    sections: Mapping[str, Document] = envelope.get("sections", {})
    return EnvelopeFacts(
        revision=envelope.get("revision", 0),
        last_seen_revision=envelope.get("last_seen", 0),
        sync_key=envelope.get("sync_key"),
        pods=frozenset(envelope.get("pods", ())),
        sections={SectionName(name): _section(stored) for name, stored in sections.items()},
        exchanges=stored_exchanges(envelope),
        now=now,
    )


def stored_exchanges(envelope: Document) -> tuple[StoredExchange, ...]:
    """An envelope's entries, in their order."""
    return tuple(
        StoredExchange(
            Exchange(
                revision=entry["revision"],
                ts=entry["at"],
                kind=ExchangeKind(entry["kind"]),
                surface_pod_id=entry["surface_pod_id"],
                surface_label=entry["surface_label"],
                peers=tuple(entry["peers"]),
                takeaway=entry["takeaway"],
            ),
            entry["size"],
        )
        for entry in envelope.get("exchanges", ())
    )


def _changed(change: SectionChange) -> Document:
    return {
        "value": literal(of_json(change.value)),
        "visibility": change.visibility.value,
        "version": change.expected_version + 1,
        "byte_size": change.byte_size,
        "updated_at": NOW,
    }


def _section(stored: Document) -> StoredSection:
    return StoredSection(
        json.loads(stored["value"]),
        Visibility(stored["visibility"]),
        stored["version"],
        stored["byte_size"],
        stored["updated_at"],
    )


# ------------------------------------------------------------ events


def event_key(agent: Agent, event_id: str) -> Document:
    """An event's key; the agent comes first."""
    return {"agent": key_of(agent), "id": event_id}


def enqueuing(event: NewEvent) -> list[Stage]:
    """A new event. Of two that are enqueued one after the other the second has the greater number, since what the
    first one wrote has moved the cluster's clock."""
    return [
        {
            "$set": {
                "number": "$$CLUSTER_TIME",
                "enqueued_at": NOW,
                "payload": literal(of_json(dict(event.payload))),
                "state": EventState.PENDING.value,
                "attempts": 0,
            }
        }
    ]


def payload_of(event: Document) -> Mapping[str, Any]:
    """An event's payload as it was enqueued."""
    return json.loads(event["payload"])


def lost_event(agent: Agent, event: Document) -> LostEvent:
    """A dead event."""
    return LostEvent(
        event["_id"]["id"],
        agent,
        event["attempts"],
        event["enqueued_at"],
        event["lease_until"],
        payload_of(event),
    )
