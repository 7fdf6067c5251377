"""A change of a memory that is there: what it starts from, what it sets, its receipt and its audit entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from muniment.engine.commit import draft
from muniment.lexical import Terms
from muniment.models import CallContext, EmbeddingState, PatchEffect, Receipt
from muniment.ports import AuditDraft, MemoryFacts, NewProject, Placement

UNDATED = datetime.min.replace(tzinfo=UTC)
"""The time of a receipt that is not committed yet; the storage's clock replaces it."""


@dataclass(frozen=True, slots=True)
class Change:
    """What an edit sets; a field that is None stays. ``registers`` is the placement's project where that is new, and
    ``terms`` are those of the content where they are made already."""

    content: str | None = None
    tags: tuple[str, ...] | None = None
    placement: Placement | None = None
    registers: NewProject | None = None
    effect: PatchEffect | None = None
    terms: Terms | None = None

    def fields(self, facts: MemoryFacts) -> tuple[str, ...]:
        """The fields whose value really changes."""
        memory = facts.memory
        changes: Mapping[str, bool] = {
            "content": self.content is not None and self.content != memory.content,
            "tags": self.tags is not None and self.tags != memory.tags,
            "scope": self.placement is not None,
        }
        return tuple(name for name, changed in changes.items() if changed)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a mutation starts from: the facts, the version that it is made for, and the space of their passages."""

    facts: MemoryFacts
    version: int
    space: str | None

    def receipt(self, action: str, *, embedding: EmbeddingState | None = None, change: Change | None = None) -> Receipt:
        """The receipt of the next version, undated."""
        memory = self.facts.memory
        length = None if change is None or change.content is None else len(change.content)
        placement = change.placement if change else None
        return Receipt(
            id=memory.id,
            version=memory.version + 1,
            updated_at=UNDATED,
            action=action,
            embedding=embedding,
            content_length=length,
            delta=None if length is None else length - len(memory.content),
            project_id=placement.project_id if placement else memory.project_id,
            project_created=change is not None and change.registers is not None,
        )

    def audit(
        self, context: CallContext, action: str, changed: tuple[str, ...], change: Change | None = None
    ) -> AuditDraft:
        """The audit entry of the next version."""
        return draft(
            context,
            action=action,
            memory_id=self.facts.memory.id,
            project_id=self.facts.memory.project_id,
            version=self.version + 1,
            changed=changed,
            scope_key=self.facts.scope_key,
            moved_to=change.placement.scope_key if change and change.placement else None,
            patch=change.effect if change else None,
        )
