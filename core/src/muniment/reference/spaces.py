"""The registry of spaces in memory, and how a space fills: each rule a method that a mutant can break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from muniment.ports import Passages, Progress, RegisteredSpace, Space, Unembedded, Vectors
from muniment.ports.refusals import no_space
from muniment.reference.changes import Changes
from muniment.reference.rows import LeaseRow, MemoryRow, ReferenceData, SpaceRow


class ReferenceSpaces(Changes):
    """The spaces' part of the reference storage."""

    data: ReferenceData

    # ------------------------------------------------------------ the registry

    async def register_space(self, space: Space, probes: Vectors) -> Vectors:
        """Insert the space unless it is there."""
        await self.pause()
        return self.registered_space(SpaceRow(RegisteredSpace(space, None, self.clock(), None), probes)).probes

    def registered_space(self, row: SpaceRow) -> SpaceRow:
        """The space as it was registered first."""
        return self.data.spaces.setdefault(row.registered.space.id, row)

    async def list_spaces(self) -> Sequence[RegisteredSpace]:
        """In the order in which they were registered."""
        await self.pause()
        found = [row.registered for row in self.data.spaces.values()]
        return sorted(found, key=lambda one: (one.registered_at, one.space.id))

    async def activate_space(self, space: str, embedder: str) -> bool:
        """At the storage's time, which is after that of the one that was active."""
        await self.pause()
        row = self.data.spaces.get(space)
        if row is None:
            raise no_space(space)
        if self.is_active(space):
            return False
        registered = replace(row.registered, embedder=embedder, activated_at=self.now_after_all())
        self.data.spaces[space] = replace(row, registered=registered)
        return True

    def is_active(self, space: str) -> bool:
        """Whether a space is the one that was activated last."""
        return self.activated_at(space) is not None and self.activated_at(space) == self.last_activation()

    def activated_at(self, space: str) -> datetime | None:
        """When a space was activated."""
        return self.data.spaces[space].registered.activated_at if space in self.data.spaces else None

    def last_activation(self) -> datetime | None:
        """When the active space was activated."""
        return max(filter(None, map(self.activated_at, self.data.spaces)), default=None)

    def now_after_all(self) -> datetime:
        """A time by which what is activated now is the active one, whatever the clock's steps."""
        last, now = self.last_activation(), self.clock()
        return now if last is None or now > last else last + timedelta(microseconds=1)

    async def drop_space(self, space: str) -> bool:
        """In one step, since nothing interrupts it."""
        await self.pause()
        if space not in self.data.spaces or not self.may_go(space):
            return False
        for row in list(self.data.memories.values()):
            self.data.memories[row.id] = self.without_space(row, space)
        for key in [key for key in self.data.leases if key[0] == space]:
            del self.data.leases[key]
        del self.data.spaces[space]
        return True

    def may_go(self, space: str) -> bool:
        """Whether a space may be dropped: any but the active one."""
        return not self.is_active(space)

    def without_space(self, row: MemoryRow, space: str) -> MemoryRow:
        """A memory without its passages in a space."""
        passages = {key: vector for key, vector in row.passages.items() if key[0] != space}
        return replace(row, passages=passages, embedded=row.embedded - {space})

    async def optimize(self) -> Sequence[str]:
        """Nothing in memory needs it."""
        await self.pause()
        return ()

    # ------------------------------------------------------------ how a space fills

    async def space_progress(self, space: str) -> Progress:
        """Counted row by row."""
        await self.pause()
        live = [row for row in self.data.memories.values() if not row.deleted]
        return Progress(sum(self.counts_as_complete(row, space) for row in live), len(live))

    def counts_as_complete(self, row: MemoryRow, space: str) -> bool:
        """Whether a live memory has all its passages in a space."""
        return not self.is_incomplete(row, space)

    def is_incomplete(self, row: MemoryRow, space: str) -> bool:
        """Whether a live memory's passages in a space are not complete."""
        return not row.deleted and space not in row.embedded

    async def unembedded(self, space: str, *, limit: int) -> Sequence[Unembedded]:
        """Live memories whose passages in the space are not complete, whoever works on them."""
        await self.pause()
        rows = [row for row in self.data.memories.values() if self.is_incomplete(row, space)]
        return [self.to_embed(row, space) for row in rows[:limit]]

    async def lease_unembedded(
        self, space: str, *, after: str | None, limit: int, lease: timedelta
    ) -> Sequence[Unembedded]:
        """By id; each gets a lease."""
        await self.pause()
        if space not in self.data.spaces:
            raise no_space(space)
        now = self.clock()
        rows = sorted(self.data.memories.values(), key=lambda row: row.id)
        waiting = [
            row
            for row in rows
            if (after is None or row.id > after)
            and self.is_incomplete(row, space)
            and not self.is_leased(row, space, now)
        ][:limit]
        for row in waiting:
            self.take_lease(row, space, now + lease)
        return [self.to_embed(row, space) for row in waiting]

    def take_lease(self, row: MemoryRow, space: str, until: datetime) -> None:
        """Give whoever asked a lease."""
        self.data.leases[space, row.id] = LeaseRow(row.version, until)

    def is_leased(self, row: MemoryRow, space: str, now: datetime) -> bool:
        """Whether somebody works on this version of a memory."""
        lease = self.data.leases.get((space, row.id))
        return lease is not None and lease.version == row.version and lease.until > now

    def to_embed(self, row: MemoryRow, space: str) -> Unembedded:
        """A memory, with the passages that it has in a space already."""
        return Unembedded(row.id, row.version, row.content, frozenset(key for of, key in row.passages if of == space))

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        """Store background vectors if the memory is still at this version; its lease ends."""
        await self.pause()
        row = self.data.memories.get(memory_id)
        if row is None or not self.is_present(row, version):
            return False
        others = {key: vector for key, vector in row.passages.items() if key[0] != passages.space}
        filled = self.with_passages(row, passages)
        self.data.memories[memory_id] = replace(
            filled,
            passages={**others, **filled.passages},
            embedded=(row.embedded - {passages.space}) | filled.embedded,
        )
        self.end_lease(memory_id, passages)
        return True

    def end_lease(self, memory_id: str, passages: Passages) -> None:
        """Whoever stores vectors is done with the memory."""
        self.data.leases.pop((passages.space, memory_id), None)

    def is_present(self, row: MemoryRow, version: int) -> bool:
        """Whether what was made in the background for this version is still good for the memory."""
        return not row.deleted and row.version == version
