"""The universal mutants: a plugin that refuses, does or remembers nothing keeps no rule at all.

Each must fail every invariant that judges it, in every family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from pydantic import BaseModel

from muniment.agent_models import AckOutcome, SectionName
from muniment.conformance.invariant import features_of
from muniment.conformance.mutants.mutant import Mutant, Plugin, target_of
from muniment.conformance.mutants.provider import ProvidedEmbedder
from muniment.conformance.reference_transport import ReferenceTransport
from muniment.conformance.registry import judging
from muniment.digests import Digest
from muniment.errors import EmbedderUnavailable, NotFound
from muniment.models import Agent, AuditRecord, MemoryRecord
from muniment.ports import (
    Appended,
    Applied,
    Audience,
    AuditDraft,
    Backlog,
    Claim,
    Claimed,
    EnvelopeFacts,
    ExchangeAppend,
    Found,
    LostEvent,
    MemoryFacts,
    Mutation,
    NewEvent,
    NewProject,
    NewToken,
    Position,
    Progress,
    ProjectFacts,
    RegisteredSpace,
    Remove,
    Restore,
    Revise,
    SearchQuery,
    SectionsWrite,
    Selector,
    ShareChange,
    Space,
    StoredReceipt,
    StoredToken,
    Unembedded,
    Vector,
    Vectors,
)
from muniment.reference import ReferenceStorage


class RefusesAll(ReferenceStorage):
    """Every call is refused, by the commonest refusal."""

    async def pause(self) -> None:
        """Refuse."""
        raise NotFound


class DoesNothing(ReferenceStorage):
    """Every write is acknowledged, nothing is stored, and every read is empty."""

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        """None."""
        return []

    async def list_projects(self, audience: Audience, *, after: Position | None, limit: int) -> Sequence[ProjectFacts]:
        """None."""
        return []

    async def register_project(self, new: NewProject) -> tuple[ProjectFacts, bool]:
        """As if it had been inserted."""
        now = self.clock()
        return ProjectFacts(new.id, new.key, new.owner, 1, now, now, shares={}), True

    async def record(self, audit: AuditDraft) -> None:
        """As if it had been stored."""

    async def change_share(self, change: ShareChange) -> Applied:
        """As if it had been granted."""
        return self._acknowledged(change.expected_version + 1)

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """None."""
        return None

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """None."""
        return []

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """None."""
        return []

    async def history(
        self, audience: Audience, memory_id: str, *, before: int | None, limit: int
    ) -> Sequence[AuditRecord]:
        """None."""
        return []

    async def apply(self, mutation: Mutation) -> Applied:
        """As if it had been applied."""
        known = isinstance(mutation, Revise | Remove | Restore)
        return self._acknowledged(mutation.expected_version + 1 if known else 1)

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        """None."""
        return None

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        """As if they had been stored."""

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        """One that does not exist."""
        return EnvelopeFacts(0, 0, None, frozenset(), {}, (), self.clock())

    async def write_sections(self, write: SectionsWrite) -> datetime:
        """As if they had been stored."""
        return self.clock()

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """As if each were the first."""
        return Appended(tuple(1 for _ in append.entries), deduped=False, at=self.clock())

    async def raise_last_seen(self, agent: Agent, revision: int) -> int:
        """As if it were raised."""
        return revision

    async def enqueue(self, event: NewEvent) -> datetime:
        """As if it had been stored."""
        return self.clock()

    async def claim(self, claim: Claim) -> Claimed:
        """Nothing waits."""
        return Claimed((), Digest(0, (), 0, 0))

    async def extend(self, agent: Agent, event_id: str, token: str, lease: timedelta) -> tuple[AckOutcome, datetime]:
        """As if it were the latest token."""
        return AckOutcome.ACKNOWLEDGED, self.clock() + lease

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        """As if it were the first."""
        return AckOutcome.ACKNOWLEDGED

    async def dead_events(
        self, agent: Agent, *, attempts_max: int, after: Position | None, limit: int
    ) -> Sequence[LostEvent]:
        """None."""
        return []

    async def requeue(self, agent: Agent, event_ids: Sequence[str], *, attempts_max: int) -> Sequence[str]:
        """None was dead."""
        return []

    async def add_token(self, token: NewToken) -> StoredToken:
        """As if it had been kept."""
        return StoredToken(token.id, token.user, token.groups, token.scopes, self.clock(), token.expires_at)

    async def find_token(self, digest: str) -> StoredToken | None:
        """None."""
        return None

    async def list_tokens(self, *, after: Position | None, limit: int) -> Sequence[StoredToken]:
        """None."""
        return []

    async def revoke_token(self, token_id: str) -> StoredToken | None:
        """There is none."""
        return None

    async def touch_token(self, token_id: str) -> None:
        """As if it had been noted."""

    async def backlog(self, space: str | None, *, attempts_max: int) -> Backlog:
        """Nothing waits."""
        return Backlog(0, 0)

    async def list_spaces(self) -> Sequence[RegisteredSpace]:
        """None."""
        return []

    async def activate_space(self, space: str, embedder: str) -> bool:
        """As if it had become the active one."""
        return True

    async def space_progress(self, space: str) -> Progress:
        """Nothing is there, and nothing is missing."""
        return Progress(0, 0)

    async def lease_unembedded(
        self, space: str, *, after: str | None, limit: int, lease: timedelta
    ) -> Sequence[Unembedded]:
        """None."""
        return []

    async def drop_space(self, space: str) -> bool:
        """As if it had been dropped."""
        return True

    async def agents_waiting(self, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
        """None."""
        return frozenset()

    async def trail(self, scope_key: str, *, after: Position | None, limit: int) -> Sequence[AuditRecord]:
        """None."""
        return []

    def _acknowledged(self, version: int) -> Applied:
        now = self.clock()
        return Applied(version, now, now)


class ForgetsAll(ReferenceStorage):
    """Every call works, on a storage that has forgotten all earlier ones."""

    async def pause(self) -> None:
        """Forget."""
        data = self.data
        for part in (data.projects, data.memories, data.audit, data.receipts, data.spaces, data.tokens):
            part.clear()
        data.leases.clear()
        data.agents.envelopes.clear()
        data.agents.events.clear()


class NoFields(BaseModel):
    """An empty record."""


class RefusesCalls(ReferenceTransport):
    """Every call is refused, by the commonest refusal."""

    async def called(self, operation: str, sent: Mapping[str, Any]) -> BaseModel:
        """Refuse."""
        raise NotFound


class CallsNothing(ReferenceTransport):
    """Every call is answered with an empty record, and none reaches the engine."""

    async def called(self, operation: str, sent: Mapping[str, Any]) -> BaseModel:
        """Nothing."""
        return NoFields()


class AnswersNothing(ReferenceTransport):
    """Every call is done, and what it came to is forgotten."""

    async def called(self, operation: str, sent: Mapping[str, Any]) -> BaseModel:
        """An empty record."""
        await super().called(operation, sent)
        return NoFields()


class EmbedsNothing(ProvidedEmbedder):
    """Every text is refused, and so is the question what the embedder is."""

    async def space(self) -> Space:
        """Refuse."""
        raise EmbedderUnavailable

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Refuse."""
        raise EmbedderUnavailable

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Refuse."""
        raise EmbedderUnavailable

    async def embed_query(self, text: str) -> Vector:
        """Refuse."""
        raise EmbedderUnavailable


class EmbedsZeros(ProvidedEmbedder):
    """Every vector has the right shape, and nothing in it."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Zeros."""
        return np.zeros_like(await super().embed_passages(texts))

    async def embed_query(self, text: str) -> Vector:
        """Zeros."""
        return np.zeros_like(await super().embed_query(text))


class EmbedsNoText(ProvidedEmbedder):
    """Every vector is a good one, of a text that is always the same: what was asked is forgotten."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The vectors of one and the same text."""
        return await super().embed_passages(["forgotten"] * len(texts))

    async def embed_query(self, text: str) -> Vector:
        """The vector of one and the same text."""
        return await super().embed_query("forgotten")


def _universal(name: str, breaks: str, plugin: Plugin) -> Mutant:
    """A mutant that must fail everything that it can be judged by."""
    target = target_of(plugin)
    features = features_of(target)
    return Mutant(name, breaks, plugin, frozenset(one.id for one in judging(target) if one.features <= features))


UNIVERSAL: tuple[Mutant, ...] = (
    _universal("refuse everything", "Every call is refused.", RefusesAll),
    _universal("do nothing", "Writes are acknowledged and not stored.", DoesNothing),
    _universal("forget everything", "Each call forgets the earlier ones.", ForgetsAll),
    _universal("refuse every operation", "Every operation is refused.", RefusesCalls),
    _universal("call nothing", "Operations are acknowledged and not called.", CallsNothing),
    _universal("forget every answer", "Operations are called, and their records are empty.", AnswersNothing),
    _universal("refuse every text", "Every text is refused.", EmbedsNothing),
    _universal("vectors of zeros", "Every vector is zero.", EmbedsZeros),
    _universal("one vector for all texts", "Every text has the same vector.", EmbedsNoText),
)
