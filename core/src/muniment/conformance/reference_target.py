"""The targets of the reference storage and of the hash embedder, and the pattern for a plugin's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, TypeVar

from muniment.config import redact
from muniment.conformance.target import (
    AgentFaultPoint,
    EmbedderTarget,
    FailingEmbedder,
    FailureKind,
    FaultPoint,
    StorageTarget,
    Stored,
    StoredAgents,
    StoredAudit,
    StoredDedupeKey,
    StoredEntry,
    StoredEnvelope,
    StoredEvent,
    StoredPassage,
    StoredTerm,
    Subject,
)
from muniment.errors import ConfigurationError, StorageUnavailable
from muniment.models import Agent, AuditRecord
from muniment.ports import Embedder, Storage
from muniment.reference import HashEmbedder, ReferenceData, ReferenceStorage
from muniment.reference.agent_rows import AgentData
from muniment.reference.rows import MemoryRow

Clock = Callable[[], datetime]
R = TypeVar("R")
T = TypeVar("T")


class CoarseClock:
    """The same for every subject, and the same time for some readings at once: rows tie, as on a coarse server."""

    START = datetime(2024, 2, 29, tzinfo=UTC)
    TICK = timedelta(milliseconds=1)
    READINGS = 3

    def __init__(self) -> None:
        self.readings = 0

    def __call__(self) -> datetime:
        """The time of this reading."""
        self.readings += 1
        return self.START + self.readings // self.READINGS * self.TICK


@dataclass
class ReferenceSubject(Subject):
    """The data behind the clients, and the clock and the fault that all of them share."""

    data: ReferenceData = field(default_factory=ReferenceData)
    clock: Clock = field(default_factory=CoarseClock)
    failing: set[object] = field(default_factory=set[object])
    shown: RowsShown = field(default_factory=lambda: RowsShown())


class ReferenceTarget(StorageTarget[ReferenceSubject]):
    """The reference storage, or a subclass of it; the data outlives a client that is closed.

    ``clock`` makes the clock of a subject.
    """

    name = "reference"
    distribution = "muniment"
    real = False
    contract = "1.2"

    def __init__(
        self, storage: type[ReferenceStorage] = ReferenceStorage, clock: Callable[[], Clock] = CoarseClock
    ) -> None:
        self._storage = storage
        self._clock = clock

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ReferenceSubject]:
        """Fresh data with one client."""
        data, clock = ReferenceData(), self._clock()
        failing: set[object] = set()
        yield ReferenceSubject(self._client(data, clock, failing), data, clock, failing)

    @asynccontextmanager
    async def second(self, subject: ReferenceSubject) -> AsyncGenerator[Storage]:
        """Another client on the same data."""
        yield self._client(subject.data, subject.clock, subject.failing)

    async def probe(self, subject: ReferenceSubject) -> Stored:
        """The rows themselves."""
        data, shown = subject.data, subject.shown
        return Stored(
            passages=tuple(chain.from_iterable(shown.of(data.memories.values(), _passages))),
            terms=tuple(chain.from_iterable(shown.of(data.memories.values(), _terms))),
            audit=tuple(shown.of(data.audit.values(), _audit)),
            receipts=len(data.receipts),
            rows={
                "projects": tuple(shown.of(data.projects.values(), repr)),
                "memories": tuple(shown.of(data.memories.values(), _row)),
                "audit": tuple(shown.of(data.audit.values(), _entry)),
                "receipts": tuple(shown.of(data.receipts.values(), repr)),
                "tokens": tuple(shown.of(data.tokens.values(), repr)),
                "spaces": tuple(shown.of(data.spaces.values(), repr)),
                "envelopes": tuple(
                    f"{agent!r} {row}"
                    for agent, row in zip(
                        data.agents.envelopes, shown.of(data.agents.envelopes.values(), repr), strict=True
                    )
                ),
                "events": tuple(
                    chain.from_iterable(shown.of(queue.values(), repr) for queue in data.agents.events.values())
                ),
            },
            agents=_agents(data.agents),
        )

    @asynccontextmanager
    async def fault(self, subject: ReferenceSubject, point: FaultPoint) -> AsyncGenerator[None]:
        """Every client's writes fail at ``point``."""
        subject.failing.add(point)
        try:
            yield
        finally:
            subject.failing.discard(point)

    @asynccontextmanager
    async def fault_agent(
        self, subject: ReferenceSubject, point: AgentFaultPoint, agent: Agent
    ) -> AsyncGenerator[None]:
        """Every client's changes of the agent's rows fail at ``point``."""
        subject.failing.add((point, agent))
        try:
            yield
        finally:
            subject.failing.discard((point, agent))

    async def layout(self, subject: ReferenceSubject) -> frozenset[str]:
        """The fields of the rows."""
        return frozenset(subject.data.columns)

    async def age(self, subject: ReferenceSubject, seconds: float) -> None:
        """Change the rows."""
        now = subject.clock()
        for key, lease in subject.data.leases.items():
            subject.data.leases[key] = replace(lease, until=lease.until - timedelta(seconds=seconds))
        for queue in subject.data.agents.events.values():
            for row in queue.values():
                if row.lease_until is not None and row.lease_until > now:
                    queue[row.id] = replace(row, lease_until=row.lease_until - timedelta(seconds=seconds))

    def _client(self, data: ReferenceData, clock: Clock, failing: set[object]) -> ReferenceStorage:
        def on_write(point: str) -> None:
            if point in failing:
                raise StorageUnavailable(f"A fault was injected at {point}.")

        def on_agent_write(point: str, agent: Agent) -> None:
            if (point, agent) in failing:
                raise StorageUnavailable(f"A fault was injected at the {point} of {agent.name}.")

        client = self._storage(data, clock=clock)
        client.on_write = on_write
        client.on_agent_write = on_agent_write
        return client


class RowsShown:
    """What a probe makes of rows, made once for each: they are frozen, and most of them are there at the next probe."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, object], tuple[object, Any]] = {}

    def of(self, rows: Iterable[R], make: Callable[[R], T]) -> list[T]:
        """What ``make`` gives for each row, or gave."""
        return [self._one(row, make) for row in rows]

    def _one(self, row: R, make: Callable[[R], T]) -> T:
        key = id(row), make
        known = self._made.get(key)
        if known is None:
            # The row is kept beside, so that its id stays its own.
            known = self._made[key] = (row, make(row))
        return known[1]


def _terms(row: MemoryRow) -> list[StoredTerm]:
    if row.terms is None:
        return []
    return [StoredTerm(row.entries_under, row.id, term, count) for term, count in row.terms.frequencies.items()]


def _audit(entry: AuditRecord) -> StoredAudit:
    return StoredAudit(entry.id, entry.action, entry.memory_id, entry.project_id)


def _entry(entry: AuditRecord) -> str:
    return entry.model_dump_json()


def _passages(row: MemoryRow) -> list[StoredPassage]:
    return [
        StoredPassage(row.entries_under, space, row.id, key, tuple(vector.tolist()))
        for (space, key), vector in row.passages.items()
    ]


def _agents(data: AgentData) -> StoredAgents:
    envelopes = data.envelopes.items()
    return StoredAgents(
        envelopes=tuple(
            StoredEnvelope(
                agent, row.revision, row.last_seen, row.sync_key, {name: s.version for name, s in row.sections.items()}
            )
            for agent, row in envelopes
        ),
        exchanges=tuple(
            StoredEntry(
                agent, one.exchange.revision, one.exchange.kind, one.exchange.peers, one.exchange.takeaway, one.size
            )
            for agent, row in envelopes
            for one in row.exchanges
        ),
        events=tuple(
            StoredEvent(row.id, row.agent, row.acked, row.attempts, row.token, row.delivered)
            for queue in data.events.values()
            for row in queue.values()
        ),
        dedupe_keys=tuple(
            StoredDedupeKey(agent, key, revision) for agent, row in envelopes for key, revision in row.dedupe.items()
        ),
    )


def _row(row: MemoryRow) -> str:
    """A memory's row as text, its vectors whole."""
    vectors = {key: vector.tobytes().hex() for key, vector in sorted(row.passages.items())}
    return (
        f"{row.id} {row.placement} {row.entries_under} {row.content!r} {row.tags} {row.version} {row.editor} "
        f"{row.created_at} {row.updated_at} {row.deleted} {row.analyser} {row.terms} {vectors} {sorted(row.embedded)}"
    )


class HashTarget(EmbedderTarget):
    """The hash embedder, or one like it that ``make`` gives, and ``named`` by its configuration."""

    name = "hash"
    distribution = "muniment"
    real = False
    contract = "1.2"
    semantic = False

    def __init__(
        self, make: Callable[[], Embedder] = HashEmbedder, *, named: Callable[[str], Embedder] = HashEmbedder.named
    ) -> None:
        self._make = make
        self._named = named

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Embedder]:
        """A new embedder."""
        yield self._make()

    def fail(self) -> Sequence[FailingEmbedder]:
        """A name that is no number of dimensions."""
        spec = "hash:never-seen"
        return [
            FailingEmbedder(
                FailureKind.UNKNOWN_MODEL,
                make=lambda: self._named(spec),
                names="never-seen",
            )
        ]


def storage(url: str | None = None) -> ReferenceTarget:
    """The target of ``muniment conform reference``. Raises ConfigurationError for another place than memory."""
    if url not in (None, "memory:"):
        raise ConfigurationError(f"reference is judged in memory, not at {redact(str(url))!r}; leave --url out.")
    return ReferenceTarget()


def embedder(url: str | None = None) -> HashTarget:
    """The target of ``muniment conform hash``, for ``hash:`` or ``hash:DIMENSIONS``. Raises ConfigurationError."""
    if url is None:
        return HashTarget()
    HashEmbedder.named(url)
    return HashTarget(lambda: HashEmbedder.named(url))
