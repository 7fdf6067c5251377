"""Who works on which memory while a space is filled: leases, and the walk over the memories that lack vectors.

A storage that keeps a registry of spaces gives the leases, to all processes. For one of an older contract they are
kept here, so several processes may then do the same work; what they store is right all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from muniment.engine.spaces import registry_of
from muniment.ports import Passages, Storage, Unembedded


class Lessor(Protocol):
    """Gives out the memories that lack vectors, and takes the vectors; as in ``SpaceStorage`` and ``Storage``."""

    async def lease_unembedded(
        self, space: str, *, after: str | None, limit: int, lease: timedelta
    ) -> Sequence[Unembedded]:
        """Memories that lack vectors and that nobody works on."""
        ...

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        """Store vectors if they are not late; the lease ends."""
        ...


def lessor_of(storage: Storage) -> Lessor:
    """The storage, or leases in this process for one that gives none."""
    return LeasesHere(storage) if registry_of(storage) is None else storage


class LeasesHere:
    """Leases of one process, over a storage that gives none. It finds memories in the storage's order, not by id."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._leased: dict[tuple[str, int], float] = {}
        """By memory and version; until when, by the event loop's clock."""

    async def lease_unembedded(
        self, space: str, *, after: str | None, limit: int, lease: timedelta
    ) -> Sequence[Unembedded]:
        """Memories that lack vectors and have no lease, wherever ``after`` is."""
        now = asyncio.get_running_loop().time()
        self._leased = {key: until for key, until in self._leased.items() if until > now}
        found = await self._storage.unembedded(space, limit=limit + len(self._leased))
        fresh = [one for one in found if (one.memory_id, one.version) not in self._leased][:limit]
        self._leased |= {(one.memory_id, one.version): now + lease.total_seconds() for one in fresh}
        return fresh

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        """Store vectors; the lease ends."""
        stored = await self._storage.store_passages(memory_id, version, passages)
        self._leased.pop((memory_id, version), None)
        return stored


class Walk:
    """Leases memory after memory, by id, round and round, until a whole round found nothing to do.

    ``done_with`` says which memories are not to be tried again: they are leased, and left alone. A round that found no
    fewer than the one before it is the last, since what is stored then does not stay stored.
    """

    def __init__(
        self, lessor: Lessor, space: str, *, lease: timedelta, done_with: Callable[[Unembedded], bool]
    ) -> None:
        self._lessor = lessor
        self._space = space
        self._lease = lease
        self._done_with = done_with
        self._after: str | None = None
        self._found = 0
        self._found_before: int | None = None

    async def next(self, limit: int) -> Sequence[Unembedded]:
        """At least one memory and at most ``limit``, each under a lease; none at the end."""
        while True:
            leased = await self._lessor.lease_unembedded(self._space, after=self._after, limit=limit, lease=self._lease)
            if not leased:
                if self._found == 0 or (self._found_before is not None and self._found >= self._found_before):
                    return []
                self._found_before, self._found, self._after = self._found, 0, None
                continue
            self._after = leased[-1].memory_id
            if found := [one for one in leased if not self._done_with(one)]:
                self._found += len(found)
                return found
