"""Deliberately broken plugins, which prove that the suite can fail.

A mutant is a subclass of the reference storage or embedder that breaks one named seam, with the exact set of
invariants that it must fail. Here are the universal ones: a plugin that refuses, does or remembers nothing
keeps no rule at all, so each must fail every invariant that judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from muniment.conformance.invariant import Outcome, features_of
from muniment.conformance.reference_target import HashTarget, ReferenceTarget
from muniment.conformance.registry import judging
from muniment.conformance.runner import run
from muniment.conformance.target import Target
from muniment.errors import EmbedderUnavailable, NotFound
from muniment.models import AuditRecord, MemoryRecord
from muniment.ports import (
    Applied,
    Audience,
    AuditDraft,
    Found,
    MemoryFacts,
    Mutation,
    NewProject,
    Position,
    ProjectFacts,
    Remove,
    Restore,
    Revise,
    SearchQuery,
    Selector,
    ShareChange,
    Space,
    StoredReceipt,
    Vector,
    Vectors,
)
from muniment.reference import HashEmbedder, ReferenceStorage

SEED = 20_240_229


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken plugin. ``made_for`` is the invariant that it is there to show failing; None for a universal
    one.

    ``fails`` is the exact set of ids that must not pass on it.
    """

    name: str
    breaks: str
    target: Target
    fails: frozenset[str]
    made_for: str | None = None


async def killed_by(mutant: Mutant) -> frozenset[str]:
    """The ids of the invariants that did not pass on a mutant."""
    report = await run(mutant.target, seed=SEED)
    return frozenset(one.id for one in report.results if one.outcome not in (Outcome.PASS, Outcome.UNDECLARED))


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

    def _acknowledged(self, version: int) -> Applied:
        now = self.clock()
        return Applied(version, now, now)


class ForgetsAll(ReferenceStorage):
    """Every call works, on a storage that has forgotten all earlier ones."""

    async def pause(self) -> None:
        """Forget."""
        data = self.data
        for part in (data.projects, data.memories, data.audit, data.receipts, data.spaces):
            part.clear()


class EmbedsNothing(HashEmbedder):
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


class EmbedsZeros(HashEmbedder):
    """Every vector has the right shape, and nothing in it."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Zeros."""
        return np.zeros_like(await super().embed_passages(texts))

    async def embed_query(self, text: str) -> Vector:
        """Zeros."""
        return np.zeros_like(await super().embed_query(text))


class EmbedsNoText(HashEmbedder):
    """Every vector is a good one, of a text that is always the same: what was asked is forgotten."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The vectors of one and the same text."""
        return await super().embed_passages(["forgotten"] * len(texts))

    async def embed_query(self, text: str) -> Vector:
        """The vector of one and the same text."""
        return await super().embed_query("forgotten")


def _universal(name: str, breaks: str, make: Callable[[], Target]) -> Mutant:
    """A mutant that must fail everything that its target can be judged by."""
    target = make()
    target.name = name
    features = features_of(target)
    judged = frozenset(one.id for one in judging(target) if one.features <= features)
    return Mutant(name, breaks, target, judged)


UNIVERSAL: tuple[Mutant, ...] = (
    _universal("refuse-everything", "every call is refused", lambda: ReferenceTarget(RefusesAll)),
    _universal("do-nothing", "writes are acknowledged and not stored", lambda: ReferenceTarget(DoesNothing)),
    _universal("forget-everything", "each call forgets the earlier ones", lambda: ReferenceTarget(ForgetsAll)),
    _universal("embed-refuse-everything", "every text is refused", lambda: HashTarget(EmbedsNothing)),
    _universal("embed-do-nothing", "every vector is zero", lambda: HashTarget(EmbedsZeros)),
    _universal("embed-forget-everything", "every text has one vector", lambda: HashTarget(EmbedsNoText)),
)

MUTANTS: tuple[Mutant, ...] = UNIVERSAL
