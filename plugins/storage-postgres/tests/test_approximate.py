"""Approximate indexes: made where they pay, online and once, asked only for who outgrew exact search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
import psycopg
import pytest

from muniment import access, ranking
from muniment.ports import Audience, SearchQuery, Selector, Space
from muniment_storage_postgres import approximate, keys, settling, upkeep
from muniment_storage_postgres.approximate import Large, Place
from muniment_storage_postgres.sql import STATEMENTS
from muniment_storage_postgres.storage import PostgresStorage

Clients = Callable[..., PostgresStorage]
Raw = psycopg.AsyncConnection[Any]

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
WIDE = Space("wide:2500", "test", "wide", 2500, "mean", True, 100)
WIDEST = Space("widest:4096", "test", "widest", 4096, "mean", True, 100)
OTHER = Space("other:8", "test", "other", 8, "mean", True, 100)
LEAST = 600
ANN, BOB = Audience("ann"), Audience("bob")

FILL = """
WITH made AS (
    INSERT INTO memory (
        id, scope_number, scope_key, scope, user_name, content, tags, version, last_edited_by, created_at, updated_at,
        deleted, embedded_in
    )
    SELECT
        %(user)s::text || '-' || to_char(n, 'FM00000'), %(scope)s, %(key)s, 'user', %(user)s, 'words',
        CASE WHEN n <= 5 THEN ARRAY['rare'] ELSE '{}'::text[] END, 1, %(user)s, now(), now(), false,
        ARRAY[%(space)s::int]
    FROM generate_series(1, %(count)s) n
    RETURNING number, id, tags
), entries AS (
    INSERT INTO search_entry SELECT %(scope)s, number, 1, 0, 'none', 0 FROM made
), keyed AS (
    INSERT INTO search_keys
    SELECT %(scope)s, number, %(scope)s, '', CASE WHEN tags <> '{}' THEN %(rare)s ELSE ''::bytea END FROM made
)
INSERT INTO passage
SELECT %(scope)s, %(space)s, m.number, 'h', v.vector
FROM made m JOIN unnest(%(ids)s::text[], %(vectors)s::text[]::vector[]) AS v (id, vector) ON v.id = m.id
"""


@pytest.fixture
async def storage(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[PostgresStorage]:
    """One partition and a low threshold, so that few passages outgrow exact search; no words to settle."""
    monkeypatch.setattr(settling, "BATCH", 1_000_000)
    made = clients(approximate_from=LEAST, partitions=1)
    await made.open()
    await made.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
    yield made
    await made.close()


async def fill(raw: Raw, user: str, count: int, *, space: int = 1, dimensions: int = 8) -> Any:
    """Give a user memories of one passage each, at random; the unit vectors, in the order of the ids."""
    key = access.user_key(user)
    await raw.execute("INSERT INTO scope (key) VALUES (%s) ON CONFLICT DO NOTHING", (key,))
    row = await (await raw.execute("SELECT number FROM scope WHERE key = %s", (key,))).fetchone()
    assert row is not None
    drawn = np.random.default_rng(count).normal(size=(count, dimensions))
    vectors = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    await raw.execute(
        FILL.encode(),
        {
            "user": user,
            "key": key,
            "scope": row[0],
            "space": space,
            "count": count,
            "ids": [f"{user}-{number:05}" for number in range(1, count + 1)],
            "rare": (keys.tag_key("rare") << keys.FREQUENCY_BITS | 1).to_bytes(8),
            "vectors": [str(vector.tolist()) for vector in vectors],
        },
    )
    await raw.execute("ANALYZE passage")
    return vectors


async def indexes(raw: Raw) -> list[str]:
    """The indexes of spaces that there are."""
    cursor = await raw.execute("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1")
    return [name for (name,) in await cursor.fetchall() if approximate.place(name)]


def by_meaning(vector: Any, space: str = SPACE.id) -> SearchQuery:
    """A query that only meaning answers."""
    return SearchQuery(
        terms={},
        tags=frozenset(),
        vector=np.asarray(vector, dtype=np.float32),
        space=space,
        fusion=ranking.Fusion.weighted,
        min_score=None,
        offset=0,
        limit=10,
    )


async def found(storage: PostgresStorage, audience: Audience, vector: Any, **selector: Any) -> list[str]:
    """The ids of the first ten."""
    page = await storage.search(audience, Selector(**selector), by_meaning(vector))
    return [one.memory.id for one in page]


def exact(user: str, vectors: Any, query: Any) -> list[str]:
    """The ids that an exact search gives; what points away from the query is no match."""
    cosines = vectors.astype(np.float64) @ np.asarray(query, dtype=np.float64)
    return [f"{user}-{place + 1:05}" for place in np.argsort(-cosines)[:10] if cosines[place] > 0]


def queries(count: int) -> Any:
    """Unit vectors."""
    drawn = np.random.default_rng(1).normal(size=(count, 8))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


async def test_who_outgrew_exact_search_is_found_by_an_index_with_exact_scores(
    storage: PostgresStorage, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least 95% of the exact first ten, each with its exact cosine; a small owner beside is searched exactly."""
    large, small = await fill(raw, "ann", 3_000), await fill(raw, "bob", 300)
    (told,) = await storage.optimize()
    assert "passage_0_near_1" in told
    assert await indexes(raw) == ["passage_0_near_1"]
    asked: list[int] = []
    nearest = approximate.nearest

    def counted(scope: int, space: int, dimensions: int) -> bytes:
        asked.append(scope)
        return nearest(scope, space, dimensions)

    monkeypatch.setattr(approximate, "nearest", counted)
    hits = 0
    for query in queries(20):
        page = await storage.search(ANN, Selector(), by_meaning(query))
        wanted = exact("ann", large, query)
        hits += len({one.memory.id for one in page} & set(wanted))
        for one in page:
            assert one.ranked.meaning is not None
            cosine = float(large[int(one.memory.id[4:]) - 1] @ query)
            assert one.ranked.meaning.score == pytest.approx(cosine, abs=1e-5)
    assert hits >= 190
    assert len(asked) == 20
    for query in queries(5):
        assert await found(storage, BOB, query) == exact("bob", small, query)
    assert len(asked) == 20


async def test_the_index_is_what_postgresql_reads(storage: PostgresStorage, raw: Raw) -> None:
    """The query spells its vector as the index does."""
    await fill(raw, "ann", 3_000)
    await storage.optimize()
    async with raw.transaction():
        await raw.execute(approximate.SETTINGS)
        statement = b"EXPLAIN " + approximate.nearest(1, 1, 8)
        cursor = await raw.execute(statement, {"vector": str([1.0] * 8)})
        plan = "\n".join(line for (line,) in await cursor.fetchall())
    assert "Index Scan using passage_0_near_1" in plan


async def test_what_is_done_is_done_once(storage: PostgresStorage, clients: Clients, raw: Raw) -> None:
    """Of several who optimize at once one builds; later there is nothing to do."""
    await fill(raw, "ann", 1_000)
    done = await asyncio.gather(*(storage.optimize() for _ in range(3)))
    assert sum(map(len, done)) == 1
    assert await storage.optimize() == []


async def test_what_another_process_is_at_is_told(
    storage: PostgresStorage, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for in bounds, and not taken for nothing to do."""
    monkeypatch.setattr(upkeep, "_PATIENCE", 0.1)
    await raw.execute(STATEMENTS["try_upkeep"])
    assert await storage.optimize() == ("Nothing was done: another process does it just now.",)


async def test_below_the_threshold_there_is_no_index(storage: PostgresStorage, raw: Raw) -> None:
    """Nor for many small owners together."""
    for number in range(4):
        await fill(raw, f"user{number}", LEAST - 1)
    assert await storage.optimize() == []
    assert await indexes(raw) == []


async def test_an_index_that_nobody_needs_any_more_goes(storage: PostgresStorage, raw: Raw) -> None:
    """Whoever shrank is searched exactly again."""
    vectors = await fill(raw, "ann", 1_000)
    await storage.optimize()
    await raw.execute("DELETE FROM passage WHERE memory > (SELECT min(number) + 99 FROM memory)")
    (told,) = await storage.optimize()
    assert told.startswith("Dropped")
    assert await indexes(raw) == []
    for query in queries(3):
        assert await found(storage, ANN, query) == exact("ann", vectors[:100], query)


async def test_what_an_interrupted_build_left_is_mended(storage: PostgresStorage, raw: Raw) -> None:
    """An index that is not valid is dropped and built again."""
    await fill(raw, "ann", 1_000)
    await storage.optimize()
    await raw.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'passage_0_near_1'::regclass")
    done = await storage.optimize()
    assert [one.split()[0] for one in done] == ["Dropped", "Built"]
    row = await (
        await raw.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'passage_0_near_1'::regclass")
    ).fetchone()
    assert row == (True,)


async def test_memories_with_a_certain_tag_are_compared_all(storage: PostgresStorage, raw: Raw) -> None:
    """The nearest passages of a large owner may be of memories without it; those with it are found all the same."""
    vectors = await fill(raw, "ann", 3_000)
    await storage.optimize()
    for query in queries(5):
        assert await found(storage, ANN, query, tags=("rare",)) == exact("ann", vectors[:5], query)


async def test_a_search_does_not_rely_on_an_index_that_gives_up(
    storage: PostgresStorage, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the index finds too few among the passages of others, the scope is searched exactly."""
    vectors = await fill(raw, "ann", 3_000)
    await storage.optimize()

    def nothing(scope: int, space: int, dimensions: int) -> bytes:
        return b"SELECT -1, NULL, NULL, NULL WHERE %(vector)s::vector IS NULL"

    monkeypatch.setattr(approximate, "nearest", nothing)
    for query in queries(3):
        assert await found(storage, ANN, query) == exact("ann", vectors, query)


@pytest.mark.parametrize(("space", "built"), [(WIDE, True), (WIDEST, False)])
async def test_wide_vectors_are_indexed_in_half_precision_and_the_widest_not_at_all(
    storage: PostgresStorage, raw: Raw, space: Space, built: bool
) -> None:
    """Above 2,000 dimensions and above 4,000; both are found."""
    await storage.register_space(space, np.zeros((0, space.dimensions), dtype=np.float32))
    vectors = await fill(raw, "ann", 700, space=2, dimensions=space.dimensions)
    done = await storage.optimize()
    assert len(done) == len(await indexes(raw)) == int(built)
    page = await storage.search(ANN, Selector(), by_meaning(vectors[7], space.id))
    assert page[0].memory.id == "ann-00008"


async def test_a_dropped_space_takes_its_indexes_along(storage: PostgresStorage, raw: Raw) -> None:
    """And no other's; the search then has nothing to find by."""
    await storage.register_space(OTHER, np.eye(8, dtype=np.float32)[:2])
    await fill(raw, "ann", 1_000)
    await fill(raw, "bob", 1_000, space=2)
    await storage.optimize()
    await storage.activate_space(SPACE.id, "test")
    await storage.activate_space(OTHER.id, "other")
    assert await indexes(raw) == ["passage_0_near_1", "passage_0_near_2"]
    assert await storage.drop_space(SPACE.id)
    assert await indexes(raw) == ["passage_0_near_2"]
    assert await found(storage, ANN, queries(1)[0]) == []


@pytest.mark.parametrize(
    ("passages", "beside", "pays"),
    [
        (10_000, 10_000, True),
        (9_999, 9_999, False),
        (10_000, 100_000, False),
        (40_000, 100_000, True),
        (300_000, 300_000, False),
    ],
)
def test_an_index_pays_for_who_is_large_also_among_its_neighbours(passages: int, beside: int, pays: bool) -> None:
    """What passes by the passages of others costs more than a look at one's own."""
    assert Large(Place(0, 1), 1, passages, beside).pays(10_000, known=False) is pays


def test_who_has_an_index_keeps_it_until_clearly_too_small() -> None:
    """So that an index does not come and go."""
    one = Large(Place(0, 1), 1, 6_000, 6_000)
    assert one.pays(10_000, known=True)
    assert not one.pays(10_000, known=False)
