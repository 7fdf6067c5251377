"""What searches read by owner lies together on disk after an ``optimize``, which keeps nobody waiting for long."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
import psycopg
import pytest

from muniment.ports import Audience, Space
from muniment_storage_postgres import order
from muniment_storage_postgres.storage import PostgresStorage

Clients = Callable[..., PostgresStorage]
Raw = psycopg.AsyncConnection[Any]

SPACE = Space("test:100", "test", "test", 100, "mean", True, 100)
OWNERS, EACH = 50, 80
IN_TURN = """
WITH numbered AS (
    INSERT INTO scope (key) SELECT 'u:user' || n FROM generate_series(1, %(owners)s) n RETURNING number, key
), made AS (
    INSERT INTO memory (
        id, scope_number, scope_key, scope, user_name, content, tags, version, last_edited_by, created_at, updated_at,
        deleted, embedded_in
    )
    SELECT
        o.key || '-' || n, o.number, o.key, 'user', substr(o.key, 3), 'words', '{}', 1, 'loader', now(), now(), false,
        '{1}'
    FROM generate_series(1, %(each)s) n CROSS JOIN numbered o
    RETURNING id, number, scope_number
)
INSERT INTO passage
SELECT m.scope_number, 1, m.number, 'h', array_fill((m.number %% 7 + 1)::float4, ARRAY[100])::vector
FROM made m ORDER BY split_part(m.id, '-', 2)::int, m.number
"""
PAGES = """
SELECT count(DISTINCT (p.ctid::text::point)[0])
FROM passage p JOIN scope s ON s.number = p.scope WHERE s.key = 'u:user7'
"""
ROWS = "SELECT scope, space, memory, hash, embedding::text FROM passage ORDER BY scope, space, memory, hash"


@pytest.fixture
async def storage(clients: Clients) -> AsyncGenerator[PostgresStorage]:
    """One partition, and an approximate index for nobody."""
    made = clients(approximate_from=100_000, partitions=1)
    await made.open()
    await made.register_space(SPACE, np.eye(100, dtype=np.float32)[:2])
    yield made
    await made.close()


@pytest.fixture
async def scattered(storage: PostgresStorage, raw: Raw) -> PostgresStorage:
    """Passages of many owners who wrote in turn."""
    await raw.execute(IN_TURN.encode(), {"owners": OWNERS, "each": EACH})
    await raw.execute("VACUUM (ANALYZE) passage")
    assert await pages(raw) == EACH
    return storage


async def pages(raw: Raw) -> int:
    """On how many pages one owner's passages lie."""
    ((count,),) = await (await raw.execute(PAGES.encode())).fetchall()
    return count


async def passages(raw: Raw) -> list[tuple[Any, ...]]:
    """Every passage."""
    return await (await raw.execute(ROWS.encode())).fetchall()


async def test_an_owners_passages_lie_together_afterwards(scattered: PostgresStorage, raw: Raw) -> None:
    """None is lost or changed, and there is nothing to do the next time."""
    before = await passages(raw)
    (told,) = await scattered.optimize()
    assert told.startswith("Sorted passage_0 by owner")
    assert await pages(raw) < EACH / 8
    assert await passages(raw) == before
    assert await scattered.optimize() == []


async def test_a_table_in_use_is_left_as_it_is(
    scattered: PostgresStorage, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads meanwhile goes on, and the next time it is sorted."""
    monkeypatch.setattr(order, "_PATIENCE", "50ms")
    async with raw.transaction():
        await raw.execute("SELECT FROM passage LIMIT 1")
        (told,) = await scattered.optimize()
        assert "in use for more than 50ms" in told
        assert await scattered.load(Audience("user7"), "u:user7-1", space=SPACE.id) is not None
    assert await pages(raw) == EACH
    (told,) = await scattered.optimize()
    assert told.startswith("Sorted")


async def test_what_takes_long_is_left_as_it_is(
    scattered: PostgresStorage, clients: Clients, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that is too large, or has an approximate index, which would have to be made anew."""
    with monkeypatch.context() as short:
        short.setattr(order, "_LARGE", 129)
        assert await scattered.optimize() == []
    indexing = clients(approximate_from=1, partitions=1)
    await indexing.open()
    (told,) = await indexing.optimize()
    assert told.startswith("Built the index passage_0_near_1")
    assert await indexing.optimize() == []
    await indexing.close()
    assert await pages(raw) == EACH
