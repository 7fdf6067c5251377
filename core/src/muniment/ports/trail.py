"""What was done to things that are no memories, as whoever may know it reads it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from muniment.models import AuditRecord
from muniment.ports.reading import Position


@runtime_checkable
class TrailStorage(Protocol):
    """Reads the audit entries of a scope that belong to no memory; who may is decided before."""

    async def trail(self, scope_key: str, *, after: Position | None, limit: int) -> Sequence[AuditRecord]:
        """The entries with this ``scope_key`` and without a memory, by ``at`` descending, then ``id``.

        ``after`` is the last entry of the page before, its ``created_at`` that entry's ``at``.
        """
        ...
