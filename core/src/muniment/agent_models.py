"""The records of agent memory: envelopes and their sections, exchanges, events and what their operations answer."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from muniment.models import Agent, Record


class SectionName(StrEnum):
    """The sections of an envelope."""

    LONG_TERM = "long_term"
    SOUL = "soul"
    SHARED = "shared"
    DEDUP_STATE = "dedup_state"
    RUNTIME_META = "runtime_meta"
    DAILY = "daily"
    RELATIONSHIPS = "relationships"
    CYCLES = "cycles"
    SYSTEM_EXCHANGES = "system_exchanges"


class Visibility(StrEnum):
    """Who besides the agent itself reads a section or an element: nobody, agents of its pods, every agent."""

    PRIVATE = "private"
    POD = "pod"
    PUBLIC = "public"


class ExchangeKind(StrEnum):
    """What kind of thing happened elsewhere. ``cross-pod-mention`` is reserved: nothing records it."""

    DM_CONCLUSION = "agent-dm-conclusion"
    DM_LOOP_TRIP = "agent-dm-loop-trip"
    TASK_COMPLETED = "task-completed"
    CROSS_POD_MENTION = "cross-pod-mention"


class AckOutcome(StrEnum):
    """How an acknowledgement ended; all three are outcomes, not errors."""

    ACKNOWLEDGED = "acknowledged"
    ALREADY_ACKED = "already_acked"
    STALE_RECEIPT = "stale_receipt"


class Exchange(Record):
    """One thing that happened elsewhere, as the platform recorded it. ``revision`` is the envelope's after it."""

    revision: int
    ts: datetime
    kind: ExchangeKind
    surface_pod_id: str
    surface_label: str
    peers: tuple[str, ...]
    takeaway: str


class SectionView(Record):
    """A section as it is read. ``byte_size`` counts its value as compact UTF-8 JSON; ``version`` 0 is a section that
    was never written."""

    value: Any
    visibility: Visibility = Visibility.PRIVATE
    version: int = 0
    byte_size: int = 0
    updated_at: datetime | None = None
    schema_version: int = 1


class EnvelopeView(Record):
    """An agent's own sections, by name. ``exchanges`` are there when asked for, newest first."""

    agent: Agent
    revision: int
    last_seen_revision: int
    sections: dict[SectionName, SectionView]


class SharedView(Record):
    """What another agent opened to the caller, by section."""

    agent: Agent
    sections: dict[SectionName, SectionView]


class SectionReceipt(Record):
    """What a section write did. ``versions`` are those after it; ``warnings`` say in words what is near a limit.

    ``deduped``: the same payload as the last sync's, nothing changed. ``truncated`` and ``evicted`` are a cycle's:
    characters cut from its text, and older cycles that went.
    """

    action: str
    versions: dict[SectionName, int]
    updated_at: datetime | None
    deduped: bool = False
    truncated: int | None = None
    evicted: int | None = None
    warnings: tuple[str, ...] = ()


class AgentReceipt(Record):
    """An agent and its pods as registered."""

    agent: Agent
    pods: tuple[str, ...]


class Recorded(Record):
    """One recipient of an exchange, with the revision that the exchange got in its envelope; None where a dedupe key
    that another recipient has had before kept it out."""

    agent: Agent
    revision: int | None


class ExchangeReceipt(Record):
    """What recording an exchange did.

    ``deduped`` says that a recipient has had its dedupe key before, so nothing was recorded for anybody: the revisions
    are then those of the first time, and there is no ``takeaway``.
    """

    kind: ExchangeKind
    deduped: bool
    recipients: tuple[Recorded, ...]
    takeaway: str | None


class EventReceipt(Record):
    """An event that was enqueued or requeued."""

    id: str
    agent: Agent
    enqueued_at: datetime


class Delivery(Record):
    """One delivery of an event. ``token`` proves it; ``lease_until`` is by the storage's clock."""

    id: str
    token: str
    attempts: int
    lease_until: datetime
    payload: dict[str, Any]


class DeliveryPage(Record):
    """The events that a claim got, oldest first."""

    items: tuple[Delivery, ...]


class AckReceipt(Record):
    """How an acknowledgement or an extension ended."""

    id: str
    outcome: AckOutcome
    lease_until: datetime | None = None


class DeadEvent(Record):
    """An event whose attempts are used up, as the platform sees it."""

    id: str
    agent: Agent
    attempts: int
    enqueued_at: datetime
    lease_until: datetime
    payload: dict[str, Any]


class DeadPage(Record):
    """Dead events, oldest first."""

    items: tuple[DeadEvent, ...]
    cursor: str | None = None


class RequeueReceipt(Record):
    """The ids that were dead and are claimable again; the others were not dead."""

    requeued: tuple[str, ...]
