"""Rows of agent memory as the records of the ports, and the ports' values as parameters of statements; no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from muniment import limits
from muniment.agent_models import Exchange, ExchangeKind, SectionName, Visibility
from muniment.digests import Digest, StoredExchange
from muniment.models import Agent
from muniment.ports import (
    Claim,
    Claimed,
    ClaimedEvent,
    EnvelopeFacts,
    ExchangeAppend,
    LostEvent,
    SectionsWrite,
    StoredSection,
)
from muniment_storage_postgres.records import Parameters, Row, of_claim

_ENVELOPE_COLUMNS = 6
"""An envelope's columns come first; those of a section follow."""


def of_agent(agent: Agent) -> Parameters:
    """The agent's key."""
    return {"agent": agent.name, "instance": agent.instance}


def of_json(value: Any) -> str:
    """A value as it is stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def of_sections(write: SectionsWrite) -> Parameters:
    """A write of sections, column by column."""
    return {
        **of_agent(write.agent),
        "names": [change.name.value for change in write.changes],
        "values": [of_json(change.value) for change in write.changes],
        "visibilities": [change.visibility.value for change in write.changes],
        "sizes": [change.byte_size for change in write.changes],
        "expected": [change.expected_version for change in write.changes],
        "sync_key": None if write.keeps_sync_key else write.sync_key,
        "keeps_sync_key": write.keeps_sync_key,
    }


def of_append(append: ExchangeAppend) -> Parameters:
    """An exchange. One JSON text costs the driver less than an array for each column."""
    entries = [
        {
            "place": place,
            "agent": entry.agent.name,
            "instance": entry.agent.instance,
            "kind": entry.kind.value,
            "surface_pod_id": entry.surface_pod_id,
            "surface_label": entry.surface_label,
            "peers": entry.peers,
            "takeaway": entry.takeaway,
            "size": entry.size,
        }
        for place, entry in enumerate(append.entries)
    ]
    return {
        "entries": of_json(entries),
        "dedupe_key": append.dedupe_key,
        "cap": append.kept,
        **(of_claim(append.claim) if append.claim else {}),
    }


def of_delivery(claim: Claim) -> Parameters:
    """A claim of events."""
    return {
        **of_agent(claim.agent),
        "tokens": list(claim.tokens),
        "count": len(claim.tokens),
        "lease": claim.lease,
        "attempts_max": claim.attempts_max,
        "digest_bytes": limits.DIGEST_BYTES_MAX,
    }


def envelope_facts(rows: Sequence[Row]) -> EnvelopeFacts:
    """The rows of ``load_envelope``."""
    revision, last_seen, sync_key, pods, now, entries = rows[0][:_ENVELOPE_COLUMNS]
    return EnvelopeFacts(
        revision=revision or 0,
        last_seen_revision=last_seen or 0,
        sync_key=sync_key,
        pods=frozenset(pods or ()),
        sections=dict(_section(row[_ENVELOPE_COLUMNS:]) for row in rows[1:]),
        exchanges=tuple(StoredExchange(_exchange(entry[:-1]), entry[-1]) for entry in entries or ()),
        now=now,
    )


def claimed(rows: Sequence[Row]) -> Claimed:
    """The rows of ``claim_events``: one for each event, or one without an event."""
    revision, last_seen, unseen, entries = rows[0][:4]
    carried = tuple(_exchange(entry) for entry in entries or ())
    digest = Digest(
        revision=revision or 0,
        entries=carried,
        pending=unseen - len(carried),
        evicted=(revision or 0) - (last_seen or 0) - unseen,
    )
    return Claimed(tuple(_claimed_event(row[4:]) for row in rows if row[4] is not None), digest)


def lost_event(agent: Agent, row: Row) -> LostEvent:
    """A row of ``dead_events``."""
    event_id, attempts, enqueued_at, lease_until, payload = row
    return LostEvent(event_id, agent, attempts, enqueued_at, lease_until, json.loads(payload))


def conflicting(write: SectionsWrite, versions: Mapping[str, int]) -> int | None:
    """The version of the first section that is not at the one that its change is for."""
    current = ((versions.get(change.name.value, 0), change.expected_version) for change in write.changes)
    return next((version for version, expected in current if version != expected), None)


def _claimed_event(row: Row) -> ClaimedEvent:
    event_id, token, attempts, lease_until, payload = row
    return ClaimedEvent(event_id, token, attempts, lease_until, json.loads(payload))


def _section(row: Row) -> tuple[SectionName, StoredSection]:
    name, value, visibility, version, byte_size, updated_at = row
    return SectionName(name), StoredSection(json.loads(value), Visibility(visibility), version, byte_size, updated_at)


def _exchange(entry: Sequence[Any]) -> Exchange:
    revision, at, kind, surface_pod_id, surface_label, peers, takeaway = entry
    return Exchange(
        revision=revision,
        ts=datetime.fromisoformat(at),
        kind=ExchangeKind(kind),
        surface_pod_id=surface_pod_id,
        surface_label=surface_label,
        peers=tuple(peers),
        takeaway=takeaway,
    )
