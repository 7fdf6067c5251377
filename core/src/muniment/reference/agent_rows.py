"""What the reference storage keeps of agent memory, as frozen rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from muniment.agent_models import SectionName
from muniment.digests import StoredExchange
from muniment.models import Agent
from muniment.ports import StoredSection


@dataclass(frozen=True, slots=True)
class EnvelopeRow:
    """One agent's envelope. ``exchanges`` are newest first; ``dedupe`` has every key ever used, with its revision."""

    revision: int = 0
    last_seen: int = 0
    sync_key: str | None = None
    pods: frozenset[str] = frozenset()
    sections: Mapping[SectionName, StoredSection] = field(default_factory=dict[SectionName, StoredSection])
    exchanges: tuple[StoredExchange, ...] = ()
    dedupe: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event. ``number`` is its place in its agent's queue; what ``token`` and later fields hold is the latest
    delivery's."""

    id: str
    number: int
    agent: Agent
    payload: Mapping[str, Any]
    enqueued_at: datetime
    acked: bool = False
    attempts: int = 0
    token: str | None = None
    lease_until: datetime | None = None
    delivered: int | None = None


@dataclass(slots=True)
class AgentData:
    """All envelopes by agent, and all events by agent and id, in the order of their enqueuing."""

    envelopes: dict[Agent, EnvelopeRow] = field(default_factory=dict[Agent, EnvelopeRow])
    events: dict[Agent, dict[str, EventRow]] = field(default_factory=dict[Agent, dict[str, EventRow]])
