"""Mutants made for VEC-05 to VEC-11: spaces that are mixed, filled twice or not to the end, and lied about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.mutant import Mutants
from muniment.errors import EmbedderMismatch, StorageUnavailable
from muniment.ports import (
    Embedder,
    Index,
    Passages,
    Progress,
    SearchQuery,
    Space,
    Storage,
    Unembedded,
    Vector,
    Vectors,
)
from muniment.reference import ReferenceStorage
from muniment.reference.rows import LeaseRow, MemoryRow, PassageKey, SpaceRow

MUTANTS = Mutants()


@MUTANTS("mixed spaces", made_for="VEC-05", fails="VEC-05")
class MixesSpaces(ReferenceStorage):
    """A query is compared with all vectors that have its dimensions, whoever made them."""

    def comparable(self, space: str, query: SearchQuery) -> bool:
        """By the dimensions."""
        row = self.data.spaces[space]
        return query.vector is not None and len(query.vector) == row.registered.space.dimensions


@MUTANTS("fingerprint overwritten", made_for="VEC-05", fails="VEC-05 VEC-08 VEC-11")
class ReplacesFingerprint(ReferenceStorage):
    """Each start stores the fingerprint of the embedder that is there, which is then the same."""

    def registered_space(self, row: SpaceRow) -> SpaceRow:
        """The new one."""
        known = super().registered_space(row)
        self.data.spaces[row.registered.space.id] = replace(known, probes=row.probes)
        return row


@MUTANTS("silent substitute", made_for="VEC-05", fails="VEC-05 VEC-08")
class TrustsTheName(Core):
    """A model of the same name and dimensions is taken for the same."""

    def compare(self, space: Space, stored: Vectors, fresh: Vectors) -> None:
        """By the shape."""
        if stored.shape != fresh.shape:
            raise EmbedderMismatch


@MUTANTS("column for each size", made_for="VEC-06", fails="VEC-06")
class ColumnForEachSize(ReferenceStorage):
    """Vectors of a size have a column of their own, which a swap adds."""

    def registered_space(self, row: SpaceRow) -> SpaceRow:
        """With its column."""
        self.data.columns.add(f"MemoryRow.vector_{row.registered.space.dimensions}: Vector")
        return super().registered_space(row)


@MUTANTS("one size of vectors", made_for="VEC-06", fails="VEC-06 VEC-08 VEC-11 OPS-02")
class OneSize(ReferenceStorage):
    """The column of vectors has the dimensions of the first embedder."""

    def with_passages(self, row: MemoryRow, passages: Passages | None) -> MemoryRow:
        """Only vectors of the same size."""
        if passages is not None and self.data.spaces:
            size = next(iter(self.data.spaces.values())).registered.space.dimensions
            if any(len(one.vector) != size for one in passages.vectors):
                raise StorageUnavailable(f"expected {size} dimensions")
        return super().with_passages(row, passages)


@MUTANTS("dimensions not checked", made_for="VEC-06", fails="VEC-06")
class AnyDimensions(Core):
    """An embedder is registered whatever its dimensions."""

    def check_dimensions(self, space: Space, embedder: str) -> None:
        """All."""


@MUTANTS("stale vectors during an outage", made_for="VEC-07", fails="VEC-07")
class KeepsWhileDown(ReferenceStorage):
    """An edit whose vectors could not be made leaves the old ones until there are new ones."""

    def kept_passages(self, row: MemoryRow, passages: Passages) -> dict[PassageKey, Vector]:
        """All, where the new ones are not complete."""
        return super().kept_passages(row, passages) if passages.complete else dict(row.passages)


@MUTANTS("late vectors stored", made_for="VEC-07", fails="VEC-07")
class StoresLate(ReferenceStorage):
    """Vectors that were made in the background are stored whatever has become of the text."""

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        """At the present version."""
        row = self.data.memories.get(memory_id)
        return await super().store_passages(memory_id, row.version if row else version, passages)


@MUTANTS("pending taken for complete", made_for="VEC-07", fails="VEC-07")
class ForgetsPending(ReferenceStorage):
    """Whatever was written with an embedder counts as embedded, so that an outage is never healed."""

    def indexed(self, row: MemoryRow, index: Index) -> MemoryRow:
        """Complete."""
        row = super().indexed(row, index)
        return row if index.passages is None else replace(row, embedded=frozenset((index.passages.space,)))


@MUTANTS("complete when it is leased", made_for="VEC-08", fails="VEC-08 VEC-10")
class CompleteWhenLeased(ReferenceStorage):
    """A memory that somebody has begun to embed counts as done, so that nobody resumes what was killed."""

    def take_lease(self, row: MemoryRow, space: str, until: datetime) -> None:
        """Done."""
        super().take_lease(row, space, until)
        self.data.memories[row.id] = replace(row, embedded=row.embedded | {space})


@MUTANTS("space cleared for the next", made_for="VEC-08", fails="VEC-05 VEC-06 VEC-08 VEC-11")
class ClearsBeforeSwap(ReferenceStorage):
    """A new space is registered in the place of the old one, whose vectors are gone then."""

    def registered_space(self, row: SpaceRow) -> SpaceRow:
        """Without the vectors of all others."""
        if row.registered.space.id not in self.data.spaces:
            for one in list(self.data.memories.values()):
                self.data.memories[one.id] = replace(one, passages={}, embedded=frozenset[str]())
        return super().registered_space(row)


@MUTANTS("destructive failed probe", made_for="VEC-08", fails="VEC-05 VEC-06 VEC-08 OPS-02")
class ClearsBeforeProbing(Core):
    """A new embedder takes the place of the old one, whose space is dropped, and is tried then."""

    async def register(self, storage: Storage, embedder: Embedder) -> Space:
        """Drop, then probe."""
        space = await embedder.space()
        others = {one.space.id for one in await storage.list_spaces()}
        if space.id not in others:
            await storage.register_space(space, np.zeros((1, space.dimensions), dtype=np.float32))
            await storage.activate_space(space.id, embedder.name)
            for other in others:
                await storage.drop_space(other)
        return await super().register(storage, embedder)

    def compare(self, space: Space, stored: Vectors, fresh: Vectors) -> None:
        """Unless it was never tried."""
        if stored.any():
            super().compare(space, stored, fresh)


@MUTANTS("share not told", made_for="VEC-08", fails="VEC-08")
class TellsNoShare(Core):
    """A search answers from what there is, and does not say how much that is."""

    def notice(self, progress: Progress, aside: int = 0) -> str | None:
        """Nothing."""
        return None


@MUTANTS("leased to two", made_for="VEC-10", fails="VEC-10")
class LeasesToTwo(ReferenceStorage):
    """Memories are chosen first and leased then, so that who asks at the same time gets the same ones."""

    _seen: Mapping[tuple[str, str], LeaseRow]

    async def lease_unembedded(
        self, space: str, *, after: str | None, limit: int, lease: timedelta
    ) -> Sequence[Unembedded]:
        """By the leases that there are at first."""
        self._seen = dict(self.data.leases)
        return await super().lease_unembedded(space, after=after, limit=limit, lease=lease)

    def is_leased(self, row: MemoryRow, space: str, now: datetime) -> bool:
        """Whether it was at first."""
        lease = self._seen.get((space, row.id))
        return lease is not None and lease.version == row.version and lease.until > now


@MUTANTS("dropped space written into", made_for="VEC-11", fails="VEC-11")
class AnySpace(ReferenceStorage):
    """Whether a space is registered is not looked at where vectors are stored."""

    def check_space(self, space: str) -> None:
        """All are."""


@MUTANTS("lease without an end", made_for="VEC-10", fails="VEC-08 VEC-10")
class LeasesForEver(ReferenceStorage):
    """What a killed process was at is never given to another one."""

    def is_leased(self, row: MemoryRow, space: str, now: datetime) -> bool:
        """Once it was."""
        lease = self.data.leases.get((space, row.id))
        return lease is not None and lease.version == row.version


@MUTANTS("lease that outlives an edit", made_for="VEC-10", fails="VEC-07 VEC-10")
class LeaseOutlivesEdit(ReferenceStorage):
    """A memory is leased, whichever version of it was."""

    def is_leased(self, row: MemoryRow, space: str, now: datetime) -> bool:
        """In any version."""
        lease = self.data.leases.get((space, row.id))
        return lease is not None and lease.until > now


@MUTANTS("lease kept after its vectors", made_for="VEC-10", fails="VEC-10")
class KeepsItsLease(ReferenceStorage):
    """A memory of which some passages were stored stays leased."""

    def end_lease(self, memory_id: str, passages: Passages) -> None:
        """Not."""


@MUTANTS("active space dropped", made_for="VEC-11", fails="VEC-11")
class DropsTheActive(ReferenceStorage):
    """Any space can be dropped."""

    def may_go(self, space: str) -> bool:
        """All."""
        return True


@MUTANTS("vectors of all spaces dropped", made_for="VEC-11", fails="VEC-11")
class DropsAll(ReferenceStorage):
    """To drop a space empties the table of vectors."""

    def without_space(self, row: MemoryRow, space: str) -> MemoryRow:
        """Without any."""
        return replace(row, passages={}, embedded=frozenset[str]())


@MUTANTS("space dropped by its name", made_for="VEC-11", fails="VEC-11")
class DropsNothing(ReferenceStorage):
    """A space that is dropped is no longer listed, and its vectors stay."""

    def without_space(self, row: MemoryRow, space: str) -> MemoryRow:
        """With all."""
        return row


@MUTANTS("registered is active", made_for="VEC-11", fails="VEC-11")
class ActivatesWhatIsNew(ReferenceStorage):
    """The space that was registered last is the active one."""

    def registered_space(self, row: SpaceRow) -> SpaceRow:
        """Active from then on."""
        registered = replace(row.registered, embedder="new", activated_at=self.now_after_all())
        return super().registered_space(replace(row, registered=registered))


@MUTANTS("progress that lies", made_for="VEC-11", fails="VEC-11")
class CountsPassages(ReferenceStorage):
    """A memory with a vector in a space counts as complete in it."""

    def counts_as_complete(self, row: MemoryRow, space: str) -> bool:
        """By one."""
        return any(of == space for of, _ in row.passages)
