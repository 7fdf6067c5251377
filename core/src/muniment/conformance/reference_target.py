"""The targets of the reference storage and of the hash embedder, and the pattern for a plugin's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from muniment.conformance.target import (
    EmbedderTarget,
    FailingEmbedder,
    FailureKind,
    FaultPoint,
    StorageTarget,
    Stored,
    StoredAudit,
    StoredPassage,
    StoredTerm,
    Subject,
)
from muniment.errors import StorageUnavailable
from muniment.ports import Embedder, PluginContext, Storage
from muniment.reference import HashEmbedder, ReferenceData, ReferenceStorage
from muniment.reference.embedder import create
from muniment.reference.rows import MemoryRow


@dataclass
class ReferenceSubject(Subject):
    """The data behind the clients, and the fault that all of them share."""

    data: ReferenceData = field(default_factory=ReferenceData)
    failing: set[str] = field(default_factory=set[str])


class ReferenceTarget(StorageTarget[ReferenceSubject]):
    """The reference storage, or a subclass of it; the data outlives a client that is closed."""

    name = "reference"
    distribution = "muniment"
    real = False

    def __init__(self, storage: type[ReferenceStorage] = ReferenceStorage) -> None:
        self._storage = storage

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ReferenceSubject]:
        """Fresh data with one client."""
        data = ReferenceData()
        failing: set[str] = set()
        yield ReferenceSubject(storage=self._client(data, failing), data=data, failing=failing)

    @asynccontextmanager
    async def second(self, subject: ReferenceSubject) -> AsyncGenerator[Storage]:
        """Another client on the same data."""
        yield self._client(subject.data, subject.failing)

    async def probe(self, subject: ReferenceSubject) -> Stored:
        """The rows themselves."""
        data = subject.data
        memories = data.memories.values()
        return Stored(
            passages=tuple(passage for row in memories for passage in _passages(row)),
            terms=tuple(
                StoredTerm(row.placement.scope_key, row.id, term, count)
                for row in memories
                if row.terms is not None
                for term, count in row.terms.frequencies.items()
            ),
            audit=tuple(
                StoredAudit(entry.id, entry.action, entry.memory_id, entry.project_id) for entry in data.audit.values()
            ),
            receipts=len(data.receipts),
            rows={
                "projects": tuple(map(repr, data.projects.values())),
                "memories": tuple(map(_row, memories)),
                "audit": tuple(map(repr, data.audit.values())),
                "receipts": tuple(map(repr, data.receipts.values())),
            },
        )

    @asynccontextmanager
    async def fault(self, subject: ReferenceSubject, point: FaultPoint) -> AsyncGenerator[None]:
        """Every client's writes fail at ``point``."""
        subject.failing.add(point)
        try:
            yield
        finally:
            subject.failing.discard(point)

    def _client(self, data: ReferenceData, failing: set[str]) -> ReferenceStorage:
        def on_write(point: str) -> None:
            if point in failing:
                raise StorageUnavailable(f"A fault was injected at {point}.")

        client = self._storage(data)
        client.on_write = on_write
        return client


def _passages(row: MemoryRow) -> list[StoredPassage]:
    return [
        StoredPassage(row.placement.scope_key, space, row.id, key, tuple(vector.tolist()))
        for (space, key), vector in row.passages.items()
    ]


def _row(row: MemoryRow) -> str:
    """A memory's row as text, its vectors whole."""
    vectors = {key: vector.tobytes().hex() for key, vector in sorted(row.passages.items())}
    return f"{row.id} {row.placement} {row.content!r} {row.tags} {row.version} {row.editor} {row.created_at} " + (
        f"{row.updated_at} {row.deleted} {row.analyser} {row.terms} {vectors} {sorted(row.embedded)}"
    )


class HashTarget(EmbedderTarget):
    """The hash embedder, or one like it that ``make`` gives."""

    name = "hash"
    distribution = "muniment"
    real = False
    semantic = False

    def __init__(self, make: Callable[[], Embedder] = HashEmbedder) -> None:
        self._make = make

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
                make=lambda: create(PluginContext(spec=spec, data_dir=Path())),
                names="never-seen",
            )
        ]


def storage(url: str | None = None) -> ReferenceTarget:
    """The target of ``muniment conform reference``."""
    return ReferenceTarget()


def embedder(url: str | None = None) -> HashTarget:
    """The target of ``muniment conform hash``."""
    return HashTarget()
