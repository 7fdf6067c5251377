"""Agent memory as it crosses the storage port: envelopes and their changes, exchanges, events and their deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from muniment.agent_models import AckOutcome, ExchangeKind, SectionName, Visibility
from muniment.digests import Digest, StoredExchange
from muniment.models import Agent
from muniment.ports.reading import Position
from muniment.ports.writing import ReceiptClaim


@dataclass(frozen=True, slots=True)
class StoredSection:
    """A section as it is stored; ``version`` counts its writes from 1."""

    value: Any
    visibility: Visibility
    version: int
    byte_size: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class EnvelopeFacts:
    """An envelope, read in one snapshot. One that does not exist has revision 0 and nothing else.

    ``exchanges`` are all that are stored, newest first, when they were asked for; ``now`` is the storage's clock.
    """

    revision: int
    last_seen_revision: int
    sync_key: str | None
    pods: frozenset[str]
    sections: Mapping[SectionName, StoredSection]
    exchanges: tuple[StoredExchange, ...]
    now: datetime


@dataclass(frozen=True, slots=True)
class SectionChange:
    """A section's new value, for its ``expected_version``; 0 is one that was never written."""

    name: SectionName
    value: Any
    visibility: Visibility
    byte_size: int
    expected_version: int


@dataclass(frozen=True, slots=True)
class SectionsWrite:
    """Sections of one envelope that change together, all or none.

    ``sync_key`` replaces the envelope's, None included, unless ``keeps_sync_key``.
    """

    agent: Agent
    changes: tuple[SectionChange, ...]
    sync_key: str | None = None
    keeps_sync_key: bool = False


@dataclass(frozen=True, slots=True)
class ExchangeDraft:
    """One recipient's exchange, without the revision and time that the storage stamps; ``size`` is in a digest."""

    agent: Agent
    kind: ExchangeKind
    surface_pod_id: str
    surface_label: str
    peers: tuple[str, ...]
    takeaway: str
    size: int


@dataclass(frozen=True, slots=True)
class ExchangeAppend:
    """An exchange for one or two recipients, to all of them or to none.

    Each envelope's revision rises by 1 and stamps the entry; an envelope keeps its newest ``kept``. A ``dedupe_key``
    that a recipient has had before, even for an entry that is gone, makes the whole append do nothing: its ``claim`` is
    neither looked at nor stored.
    """

    entries: tuple[ExchangeDraft, ...]
    dedupe_key: str
    kept: int
    claim: ReceiptClaim | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The revisions of the entries in the order of the drafts; where ``deduped``, those that the dedupe key got the
    first time, None for a recipient that never had it."""

    revisions: tuple[int | None, ...]
    deduped: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event for an agent, claimable from now on."""

    id: str
    agent: Agent
    payload: Mapping[str, Any]
    claim: ReceiptClaim | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A request for an agent's oldest claimable events: at most one for each of ``tokens``.

    Claimable is a pending event, and a delivered one whose lease ran out while it has had fewer than ``attempts_max``
    deliveries.
    """

    agent: Agent
    tokens: Sequence[str]
    lease: timedelta
    attempts_max: int


@dataclass(frozen=True, slots=True)
class ClaimedEvent:
    """One delivery, its payload as it was enqueued."""

    id: str
    token: str
    attempts: int
    lease_until: datetime
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim got, oldest first, and the one digest that all of it carries."""

    events: tuple[ClaimedEvent, ...]
    digest: Digest


@dataclass(frozen=True, slots=True)
class LostEvent:
    """A dead event: delivered ``attempts_max`` times or more, not acknowledged, its last lease over."""

    id: str
    agent: Agent
    attempts: int
    enqueued_at: datetime
    lease_until: datetime
    payload: Mapping[str, Any]


@runtime_checkable
class AgentStorage(Protocol):
    """The part of a storage that keeps agent memory. Leases and times are by the storage's clock."""

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        """Replace the pods that an agent is in."""
        ...

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        """An agent's envelope, with these sections (None: all) and, if asked for, its exchanges."""
        ...

    async def write_sections(self, write: SectionsWrite) -> datetime:
        """Apply all changes, each a compare-and-set on its section's version; the time that they got.

        Raises VersionConflict with the current version of the first section that is at another one.
        """
        ...

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """Append to every recipient's envelope in one transaction, locked in the order of their keys.

        Raises ReceiptTaken.
        """
        ...

    async def raise_last_seen(self, agent: Agent, revision: int) -> int:
        """Raise the last seen revision to at least ``revision``, of an envelope that does not exist from 0; what it is
        now."""
        ...

    async def enqueue(self, event: NewEvent) -> datetime:
        """Store an event; when. Raises ReceiptTaken."""
        ...

    async def claim(self, claim: Claim) -> Claimed:
        """Deliver events: each gets its token, its lease and one more attempt, and no other claim gets it meanwhile.

        Revision, last seen and entries are read in one snapshot, which shows all that was appended before the events
        were enqueued; ``digests.choose`` makes the digest, also where there is no event. Its ``delivered`` is persisted
        with each event in the write that gives it its token. The events of one claim may be several writes: of one that
        fails some may be delivered, and can be claimed again when their leases are over.
        """
        ...

    async def extend(self, agent: Agent, event_id: str, token: str, lease: timedelta) -> tuple[AckOutcome, datetime]:
        """Let the lease of the latest delivery end ``lease`` from now, also one that is over; when it ends.

        The outcome is ``acknowledgement.outcome``: only ACKNOWLEDGED, which acknowledges nothing here, changes it.

        Raises NotFound for an event that is not the agent's or was never delivered.
        """
        ...

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        """``acknowledgement.outcome``; the first one also raises last seen to what the delivery persisted, in the same
        transaction. Raises NotFound for an event that is not the agent's or was never delivered."""
        ...

    async def dead_events(
        self, agent: Agent, *, attempts_max: int, after: Position | None, limit: int
    ) -> Sequence[LostEvent]:
        """An agent's dead events, oldest first (``after`` is the last one's time and id)."""
        ...

    async def requeue(self, agent: Agent, event_ids: Sequence[str], *, attempts_max: int) -> Sequence[str]:
        """Let dead events be claimed again, as if they had had no attempts; the ids that were dead, in the order
        in which they were given.

        Their latest token stays good until the next claim.
        """
        ...
