"""The seats themselves: ``Storage``, ``Embedder`` and ``Transport``, and what their factories get.

Every method raises only errors of ``muniment.errors`` (and ``ReceiptTaken`` and ``ProjectTaken``); a driver's error is
translated at the plugin's edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from muniment.lexical import Terms
from muniment.models import AuditRecord, MemoryRecord
from muniment.ports.agents import AgentStorage
from muniment.ports.authentication import Callers
from muniment.ports.backlog import BacklogStorage, WaitingStorage
from muniment.ports.reading import Audience, Found, MemoryFacts, Outdated, Position, ProjectFacts, SearchQuery, Selector
from muniment.ports.spaces import MaintainedStorage, SpaceStorage
from muniment.ports.tokens import TokenStorage
from muniment.ports.trail import TrailStorage
from muniment.ports.vectors import Passages, Space, Unembedded, Vector, Vectors
from muniment.ports.writing import Applied, AuditDraft, Mutation, NewProject, ShareChange, StoredReceipt

if TYPE_CHECKING:
    from muniment.engine import Engine


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a factory gets: the configured value (``embedded:``, ``postgresql://…``, ``local:NAME``), the data
    directory, and the plugin's own table of the configuration."""

    spec: str
    data_dir: Path
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@runtime_checkable
class Storage(
    AgentStorage,
    TokenStorage,
    BacklogStorage,
    SpaceStorage,
    MaintainedStorage,
    TrailStorage,
    WaitingStorage,
    Protocol,
):
    """Keeps projects, memories, their search entries, the audit trail, idempotency receipts, agent memory, API tokens,
    and the registry of spaces.

    A plugin of contract 1.1 has neither ``SpaceStorage``, ``MaintainedStorage``, ``TrailStorage`` nor
    ``WaitingStorage``, one of 1.0 neither these nor ``TokenStorage`` nor ``BacklogStorage``.

    Every method may raise StorageUnavailable, after which nothing of a write is known to be stored. A call that is
    cancelled is over when CancelledError leaves it: it was applied, or it never will be. Calls overlap, from one event
    loop.
    """

    async def open(self) -> None:
        """Connect, and bring a new or older schema up to date where this storage does that by itself.

        Does nothing where it is open already: several engines may share one. Raises StorageUnavailable, and
        ConfigurationError for what waiting does not cure.
        """
        ...

    async def close(self) -> None:
        """Release everything; a server that this process alone uses is stopped. Safe to call twice."""
        ...

    async def migrate(self) -> tuple[str, ...]:
        """Bring the schema up to date, safely from several processes at once; the names of the steps taken.

        Works on a storage that is not open, which ``muniment migrate`` then closes.
        """
        ...

    async def describe(self) -> Mapping[str, str]:
        """Versions and facts for reports and ``doctor``, in the storage's own words; nothing secret."""
        ...

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        """The audience's projects whose key or id is ``name``, in no particular order."""
        ...

    async def list_projects(self, audience: Audience, *, after: Position | None, limit: int) -> Sequence[ProjectFacts]:
        """The audience's projects, newest first."""
        ...

    async def register_project(self, new: NewProject) -> tuple[ProjectFacts, bool]:
        """Insert unless (owner, key) is there; the project as its owner reads it, and whether it was inserted (with its
        audit entry)."""
        ...

    async def record(self, audit: AuditDraft) -> None:
        """Store an audit entry that goes with no mutation, unless one with its id is there."""
        ...

    async def change_share(self, change: ShareChange) -> Applied:
        """Compare-and-set on the project's version. Raises VersionConflict, NotFound."""
        ...

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """The memory, live or deleted, if its scope is one of the audience's; with the passage hashes of ``space``."""
        ...

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """Readable memories by ``created_at`` descending, then ``id`` ascending."""
        ...

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """The fused order from ``offset``, at most ``limit``, with contents, all from one snapshot.

        The three legs score the audience's live memories by the formulas of ``muniment.ranking``; word statistics
        (N, average length, document frequencies) are counted over all of them, before the selector narrows. The
        best ``ranking.POOL`` of each leg are candidates, every candidate gets its exact score in every leg, and
        ``ranking.fuse`` orders them; a storage may compute the same in its engine. ``ranking.scores_of_all`` and
        ``Scores`` do all but the cosines for one that keeps postings, and ``ranking.PassageMatrix`` does these for one
        that has the vectors in the process. A cosine is that of the two vectors, whatever their lengths; equal vectors
        must get equal ones, and what has no direction, such as a vector of zeros, gets none.
        """
        ...

    async def history(
        self, audience: Audience, memory_id: str, *, before: int | None, limit: int
    ) -> Sequence[AuditRecord]:
        """The audit entries of a memory whose scope the audience reads, by version descending, below ``before``."""
        ...

    async def apply(self, mutation: Mutation) -> Applied:
        """Apply one mutation atomically.

        Raises ReceiptTaken before anything else, then NotFound (no such memory, or not in the state that the mutation
        needs), then VersionConflict (with the current version). ``updated_at`` is the storage's clock, and never
        before the old one. Raises ``refusals.no_space`` for passages of a space that is not registered, such as one
        that was dropped meanwhile, and ProjectTaken where the project that the mutation registers is there by its owner
        and key; nothing is stored then.
        """
        ...

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        """The receipt kept for this key, if it is not older than ``limits.IDEMPOTENCY_KEPT``."""
        ...

    async def register_space(self, space: Space, probes: Vectors) -> Vectors:
        """Insert the space with the vectors of the probe sentences unless it is there; the stored vectors."""
        ...

    async def unembedded(self, space: str, *, limit: int) -> Sequence[Unembedded]:
        """Live memories whose passages in ``space`` are not complete."""
        ...

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        """Store background vectors if the live memory is still at ``version``; whether it was.

        Other spaces' passages stay, unlike in ``apply``; the version does not change. Raises ``refusals.no_space`` as
        ``apply`` does.
        """
        ...

    async def outdated_terms(self, analyser: str, *, limit: int) -> Sequence[Outdated]:
        """Live memories whose terms are not of ``analyser``."""
        ...

    async def store_terms(self, memory_id: str, version: int, analyser: str, terms: Terms) -> bool:
        """Replace the terms of the live memory if it is still at ``version``; whether it was."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns text into vectors of one space. Blocking work runs in a bounded worker, never on the event loop."""

    @property
    def name(self) -> str:
        """What the configuration calls it, such as ``local:all-MiniLM-L6-v2``."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the next call can start at once; False while a model is not loaded yet."""
        ...

    async def open(self) -> None:
        """Check what can be checked at once; loading the model is left to the first use."""
        ...

    async def close(self) -> None:
        """Stop the worker. Safe to call twice."""
        ...

    async def space(self) -> Space:
        """The space; loads the model if it must. Raises EmbedderUnavailable, ConfigurationError."""
        ...

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many of the model's tokens each text has, special tokens left out, never truncated."""
        ...

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One vector a text, in order, ``(len(texts), dimensions)`` float32. Raises EmbedderUnavailable."""
        ...

    async def embed_query(self, text: str) -> Vector:
        """The vector of a query, which a model may make differently. Raises EmbedderUnavailable."""
        ...


@runtime_checkable
class Transport(Protocol):
    """Lets clients call an engine's operations, generated from the registry."""

    async def serve(self, engine: Engine, callers: Callers) -> None:
        """Serve until the client leaves or the task is cancelled; what was begun is finished.

        Over standard streams the caller is ``callers.local``. Over a network ``callers.check_address`` comes before
        listening, ``callers.context`` before each call, and no request may have more than ``callers.body_max`` bytes.
        """
        ...
