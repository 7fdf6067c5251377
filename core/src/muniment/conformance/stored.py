"""What is stored in a subject, as a target's probe reads it around the plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muniment.models import Agent


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """One stored vector, with the keys that it is stored under."""

    scope_key: str
    space: str
    memory_id: str
    hash: str
    vector: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StoredTerm:
    """One stored term of a memory, with how often the memory has it."""

    scope_key: str
    memory_id: str
    term: str
    frequency: int


@dataclass(frozen=True, slots=True)
class StoredAudit:
    """One stored audit entry; ``memory_id`` is None for a project's."""

    id: str
    action: str
    memory_id: str | None
    project_id: str | None


@dataclass(frozen=True, slots=True)
class StoredEnvelope:
    """One stored envelope: its numbers, its sync key (None where it was cleared), and the section versions by name."""

    agent: Agent
    revision: int
    last_seen_revision: int
    sync_key: str | None
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One stored exchange of an agent; ``size`` is its size in a digest, in bytes."""

    agent: Agent
    revision: int
    kind: str
    peers: tuple[str, ...]
    takeaway: str
    size: int


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One stored event. ``token`` and ``delivered`` are the latest delivery's, None where there is none."""

    id: str
    agent: Agent
    acked: bool
    attempts: int
    token: str | None
    delivered: int | None


@dataclass(frozen=True, slots=True)
class StoredDedupeKey:
    """A dedupe key that an agent has had, with the revision that it got."""

    agent: Agent
    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class StoredAgents:
    """What is committed of agent memory, in any order."""

    envelopes: tuple[StoredEnvelope, ...]
    exchanges: tuple[StoredEntry, ...]
    events: tuple[StoredEvent, ...]
    dedupe_keys: tuple[StoredDedupeKey, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything that is committed in a subject, as read around the plugin, in one value.

    ``rows`` holds every row of every table or collection as text, sorted: two equal ``Stored`` say that
    nothing changed between them, byte for byte. What the backend itself rewrites (statistics, sequences) is
    left out. ``rows`` holds the agents' tables too. Without ``agents`` the checks that need them are
    ``not-exercised``.
    """

    passages: tuple[StoredPassage, ...] = ()
    terms: tuple[StoredTerm, ...] = ()
    audit: tuple[StoredAudit, ...] = ()
    receipts: int = 0
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    agents: StoredAgents | None = None
