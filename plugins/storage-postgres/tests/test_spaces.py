"""The registry of spaces, and how a space fills: what several clients do at once, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import psycopg
import pytest

from muniment.errors import ConfigurationError
from muniment.ports import (
    Audience,
    Index,
    Passages,
    PassageVector,
    Progress,
    Remove,
    Restore,
    Space,
    Unembedded,
)
from muniment_storage_postgres.agent_probe import age
from muniment_storage_postgres.sql import STATEMENTS
from muniment_storage_postgres.storage import PostgresStorage

Clients = Callable[..., PostgresStorage]
Raw = psycopg.AsyncConnection[Any]

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
OTHER = Space("other:8", "test", "other", 8, "mean", True, 100)
PROBES = np.eye(8, dtype=np.float32)[:2]
HOUR = timedelta(hours=1)
ANN = Audience("ann")


@pytest.fixture
async def second(storage: PostgresStorage, clients: Clients) -> AsyncGenerator[PostgresStorage]:
    """Another client on the same data."""
    made = clients()
    await made.open()
    yield made
    await made.close()


def vectors(space: str, *hashes: str, complete: bool = True, kept: frozenset[str] = frozenset()) -> Passages:
    """Passages of which all but ``kept`` come with a vector."""
    fresh = tuple(PassageVector(one, np.ones(8, dtype=np.float32)) for one in hashes)
    return Passages(space, frozenset(hashes) | kept, fresh, complete)


def pending(writer: Any, content: str = "some words") -> Index:
    """Search entries without vectors."""
    return replace(writer.index(content), passages=None)


async def leased(storage: PostgresStorage, *, after: str | None = None, limit: int = 100) -> list[str]:
    """The ids of what one call leases for an hour."""
    found = await storage.lease_unembedded(SPACE.id, after=after, limit=limit, lease=HOUR)
    return [one.memory_id for one in found]


# ------------------------------------------------------------ the registry


async def test_a_space_that_two_register_at_once_is_there_once(
    storage: PostgresStorage, second: PostgresStorage
) -> None:
    """Both are given the same vectors of the probe sentences, those of one of them."""
    mine, theirs = PROBES, 2 * PROBES
    answers = await asyncio.gather(
        *(one.register_space(OTHER, probes) for _ in range(4) for one, probes in ((storage, mine), (second, theirs)))
    )
    assert len({answer.tobytes() for answer in answers}) == 1
    assert [one.space for one in await storage.list_spaces()] == [SPACE, OTHER]


async def test_the_registry_tells_when_a_space_came_and_whose_it_was_when_activated(storage: PostgresStorage) -> None:
    """A space that was never active has neither a time nor an embedder."""
    (registered,) = await storage.list_spaces()
    assert (registered.space, registered.embedder, registered.activated_at) == (SPACE, None, None)
    assert await storage.activate_space(SPACE.id, "test:one")
    (active,) = await storage.list_spaces()
    assert (active.embedder, active.registered_at) == ("test:one", registered.registered_at)
    assert active.activated_at is not None
    assert active.activated_at > active.registered_at
    assert not await storage.activate_space(SPACE.id, "test:two")
    assert await storage.list_spaces() == [active]
    with pytest.raises(ConfigurationError, match="other:8"):
        await storage.activate_space(OTHER.id, "test:two")


async def test_what_is_activated_is_the_active_space_whatever_the_clock_does(
    storage: PostgresStorage, raw: Raw
) -> None:
    """Its time is after every other one's, although those are in the future."""
    await storage.register_space(OTHER, PROBES)
    await storage.activate_space(SPACE.id, "test:one")
    await raw.execute("UPDATE space SET activated_at = activated_at + interval '1 year'")
    assert await storage.activate_space(OTHER.id, "test:two")
    first, other = await storage.list_spaces()
    assert first.activated_at is not None
    assert other.activated_at is not None
    assert other.activated_at > first.activated_at


async def test_spaces_that_are_activated_at_once_have_different_times(
    storage: PostgresStorage, second: PostgresStorage
) -> None:
    """One of them is the active one for everybody, however many activate."""
    spaces = [Space(f"test:{number}", "test", "test", 8, "mean", True, 100) for number in range(8)]
    for one in spaces:
        await storage.register_space(one, PROBES)
    done = await asyncio.gather(
        *((storage, second)[number % 2].activate_space(one.id, "test") for number, one in enumerate(spaces))
    )
    assert all(done)
    times = [one.activated_at for one in await storage.list_spaces() if one.space != SPACE]
    assert len(set(times)) == len(spaces)


# ------------------------------------------------------------ leases


async def test_of_callers_at_once_each_memory_goes_to_one_and_nobody_goes_away_empty(
    storage: PostgresStorage, second: PostgresStorage, writer: Any
) -> None:
    """As many callers as there are batches get one full batch each."""
    for number in range(40):
        await storage.apply(writer.create(f"m{number:02}", index=pending(writer)))
    batches = await asyncio.gather(*(leased((storage, second)[number % 2], limit=5) for number in range(8)))
    assert [len(batch) for batch in batches] == [5] * 8
    assert sorted(one for batch in batches for one in batch) == [f"m{number:02}" for number in range(40)]
    assert all(batch == sorted(batch) for batch in batches)
    assert await leased(storage) == []


async def test_leases_begin_after_a_memory_and_are_of_one_space(storage: PostgresStorage, writer: Any) -> None:
    """``after`` leaves out what is before it; a lease in one space is none in another."""
    await storage.register_space(OTHER, PROBES)
    for one in ("a", "b", "c"):
        await storage.apply(writer.create(one, index=pending(writer)))
    assert await leased(storage, after="a", limit=1) == ["b"]
    assert await leased(storage) == ["a", "c"]
    found = await storage.lease_unembedded(OTHER.id, after=None, limit=9, lease=HOUR)
    assert [one.memory_id for one in found] == ["a", "b", "c"]


async def test_a_lease_ends_with_its_time(storage: PostgresStorage, raw: Raw, writer: Any) -> None:
    """By the server's clock."""
    await storage.apply(writer.create("m1", index=pending(writer)))
    assert await leased(storage) == ["m1"]
    await age(raw, 3599)
    assert await leased(storage) == []
    await age(raw, 3600)
    assert await leased(storage) == ["m1"]


async def test_a_lease_ends_with_the_vectors_and_with_a_mutation(storage: PostgresStorage, writer: Any) -> None:
    """It is of one version of a memory; vectors that leave it incomplete end it too."""
    await storage.apply(writer.create("m1", index=pending(writer)))
    assert await leased(storage) == ["m1"]
    assert await storage.store_passages("m1", 1, vectors(SPACE.id, "x", complete=False))
    (again,) = await storage.lease_unembedded(SPACE.id, after=None, limit=9, lease=HOUR)
    assert again == Unembedded("m1", 1, "some words", frozenset({"x"}))
    await storage.apply(writer.edit("m1", 1, "new words", pending(writer, "new words")))
    (changed,) = await storage.lease_unembedded(SPACE.id, after=None, limit=9, lease=HOUR)
    assert changed == Unembedded("m1", 2, "new words", frozenset())
    assert await leased(storage) == []
    assert await storage.store_passages("m1", 2, vectors(SPACE.id, "y"))
    assert await leased(storage) == []
    assert await storage.space_progress(SPACE.id) == Progress(1, 1)


async def test_what_is_deleted_or_complete_is_not_leased(storage: PostgresStorage, writer: Any) -> None:
    """Restored without vectors it is."""
    await storage.apply(writer.create("m1", index=pending(writer)))
    await storage.apply(writer.create("m2"))
    await storage.apply(Remove(memory_id="m1", editor="ann", audit=writer.audit("m1", 2), expected_version=1))
    assert await leased(storage) == []
    assert await storage.space_progress(SPACE.id) == Progress(1, 1)
    await storage.apply(
        Restore(memory_id="m1", editor="ann", audit=writer.audit("m1", 3), expected_version=2, index=pending(writer))
    )
    assert await leased(storage) == ["m1"]
    assert await storage.space_progress(SPACE.id) == Progress(1, 2)
    assert (await storage.backlog(SPACE.id, attempts_max=3)).embeddings_pending == 1


async def test_a_lease_keeps_no_write_waiting(storage: PostgresStorage, raw: Raw, writer: Any) -> None:
    """While a lease is being taken, and not committed yet, its memory is edited."""
    await storage.apply(writer.create("m1", index=pending(writer)))
    async with raw.transaction():
        parameters = {"space": SPACE.id, "after": None, "limit": 9, "lease": HOUR}
        await raw.execute(STATEMENTS["lease_unembedded"], parameters)
        async with asyncio.timeout(10):
            await storage.apply(writer.edit("m1", 1, "new words", writer.index("new words")))
    assert await storage.space_progress(SPACE.id) == Progress(1, 1)


async def test_spaces_fill_side_by_side(storage: PostgresStorage, second: PostgresStorage, writer: Any) -> None:
    """Vectors of two spaces that come for one memory at once are both stored; an edit leaves those of its space."""
    await storage.register_space(OTHER, PROBES)
    for number in range(8):
        await storage.apply(writer.create(f"m{number}", index=pending(writer)))
    stored = await asyncio.gather(
        *(
            client.store_passages(f"m{number}", 1, vectors(space.id, "x"))
            for number in range(8)
            for client, space in ((storage, SPACE), (second, OTHER))
        )
    )
    assert all(stored)
    assert await storage.space_progress(SPACE.id) == await storage.space_progress(OTHER.id) == Progress(8, 8)
    await storage.apply(writer.edit("m1", 1, "new words"))
    assert await storage.space_progress(OTHER.id) == Progress(7, 8)
    assert [one.memory_id for one in await storage.unembedded(OTHER.id, limit=9)] == ["m1"]


async def test_a_space_that_nobody_registered_has_nothing_complete(storage: PostgresStorage, writer: Any) -> None:
    """Every live memory waits, and none can be leased."""
    await storage.apply(writer.create("m1"))
    assert await storage.space_progress(OTHER.id) == Progress(0, 1)
    assert [one.memory_id for one in await storage.unembedded(OTHER.id, limit=9)] == ["m1"]
    assert (await storage.backlog(OTHER.id, attempts_max=3)).embeddings_pending == 1
    with pytest.raises(ConfigurationError, match="other:8"):
        await storage.lease_unembedded(OTHER.id, after=None, limit=9, lease=HOUR)


# ------------------------------------------------------------ what it costs

MANY = """
INSERT INTO memory (
    id, scope_number, scope_key, scope, user_name, content, tags, version, last_edited_by, created_at, updated_at,
    deleted, embedded_in
)
SELECT
    format('%s-%s', md5(n::text), n), 1, 'u:ann', 'user', 'ann', repeat('words ', 150), '{}', 1, 'ann', now(), now(),
    false,
    CASE n % 4 WHEN 0 THEN ARRAY[1] WHEN 1 THEN ARRAY[1, 2] WHEN 2 THEN ARRAY[1, 3] ELSE ARRAY[1, 2, 3] END
FROM generate_series(1, 20000) n
"""
"""Memories that are complete in the first space, half of them in the second."""


@pytest.mark.parametrize("statement", ["lease_unembedded", "unembedded", "embeddings_pending"])
async def test_what_is_complete_costs_nothing(
    storage: PostgresStorage, raw: Raw, writer: Any, looked_at: Any, statement: str
) -> None:
    """With 20,000 complete memories in three spaces, no more rows are looked at than wait, and one of each set."""
    for number in range(3):
        await storage.apply(writer.create(f"m{number}", index=pending(writer)))
    await raw.execute(MANY.encode())
    await raw.execute("VACUUM ANALYZE memory")
    parameters = {"space": SPACE.id, "after": None, "limit": 50, "lease": HOUR}
    assert await looked_at("memory", statement, parameters) < 30
    assert (await storage.backlog(SPACE.id, attempts_max=3)).embeddings_pending == 3
