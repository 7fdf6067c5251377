"""What the approximate index finds, and what it saves, for one owner with PASSAGES passages (default 100,000).

On a PostgreSQL of its own. Vectors have 384 dimensions; they lie around 200 topics, once spread as widely in every
direction ("even", the harder case for an index), once mostly in a few directions as a model's are ("uneven"). Queries
lie between two topics and are answered by meaning alone, since words find exactly in any case. Recall is against the
exact first ten; times are medians, with the tenth fastest of a hundred in brackets, and only their ratio counts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import Vector
from pgvector.psycopg import register_vector

from muniment import access, ranking
from muniment.ports import Audience, PluginContext, SearchQuery, Selector, Space
from muniment_storage_postgres.embedded import server
from muniment_storage_postgres.storage import PostgresStorage, create

PASSAGES = int(os.environ.get("PASSAGES", "100000"))
BESIDE = PASSAGES // 5
"""Passages of others in the same partition."""
EACH = 2
"""Passages of a memory."""
DIMENSIONS = 384
TOPICS = 200
QUERIES = 100
SPACE = Space("bench:384", "bench", "bench", DIMENSIONS, "mean", True, 256)
SETTINGS = ("shared_buffers = '2GB'", "max_wal_size = '8GB'")
Floats = NDArray[np.float32]


async def main() -> None:
    """Both kinds of vectors."""
    directory = Path(tempfile.mkdtemp(prefix="muniment-bench-"))
    running = server(directory / "postgres")
    try:
        with psycopg.connect(running.start(), autocommit=True) as connection:
            for setting in SETTINGS:
                connection.execute(f"ALTER SYSTEM SET {setting}".encode())
        running.stop()
        conninfo = running.start()
        print(f"{PASSAGES:,} passages of one owner, {BESIDE:,} of others in the partition")
        for kind in ("uneven", "even"):
            await measure(directory, conninfo, kind)
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


async def measure(directory: Path, conninfo: str, kind: str) -> None:
    """Load, ask exactly, build, ask again, print."""
    schema = f"bench_{kind}"
    options = {"schema": schema, "partitions": 1}
    storage = create(PluginContext(f"embedded:{directory / 'postgres'}", directory, options))
    await storage.open()
    try:
        await storage.register_space(SPACE, np.eye(DIMENSIONS, dtype=np.float32)[:1])
        draw = Draw(kind)
        mine = load(conninfo, schema, draw)
        queries = draw.between(QUERIES)
        wanted = [exact(mine, query) for query in queries]
        before = await asked(storage, queries, wanted)
        start = perf_counter()
        for sentence in await storage.optimize():
            print(f"  {sentence}")
        built = perf_counter() - start
        after = await asked(storage, queries, wanted)
        print(f"{kind}: optimize took {built:.0f} s")
        for name, (recall, least, times) in (("exact", before), ("index", after)):
            print(f"  {name}: recall {recall:.3f}, least {least:.1f}, {median(times):.1f} ms ({tenth(times):.1f})")
        ratios = [of(after[2]) / of(before[2]) for of in (median, tenth)]
        print(f"  ratio {ratios[0]:.2f} ({ratios[1]:.2f})", flush=True)
    finally:
        await storage.close()


class Draw:
    """Unit vectors around topics."""

    def __init__(self, kind: str) -> None:
        self.random = np.random.default_rng(7)
        self.centres = self.random.normal(size=(TOPICS, DIMENSIONS)).astype(np.float32)
        spread = np.ones(DIMENSIONS) if kind == "even" else 1 / np.arange(1, DIMENSIONS + 1) ** 0.7
        spread *= np.sqrt(DIMENSIONS / (spread**2).sum())
        turned = np.linalg.qr(self.random.normal(size=(DIMENSIONS, DIMENSIONS)))[0]
        self.noise = (spread[:, None] * turned).astype(np.float32)

    def around(self, count: int) -> Floats:
        """Each around one topic, shape ``(count, DIMENSIONS)``."""
        return unit(self.centres[self.random.integers(TOPICS, size=count)] + self._noise(count))

    def between(self, count: int) -> Floats:
        """Each between two topics, nearer to one."""
        near, far = self.random.integers(TOPICS, size=(2, count))
        return unit(self.centres[near] + 0.5 * self.centres[far] + self._noise(count))

    def _noise(self, count: int) -> Floats:
        return self.random.normal(size=(count, DIMENSIONS)).astype(np.float32) @ self.noise


def unit(vectors: NDArray[np.floating[Any]]) -> Floats:
    """Of length one."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def load(conninfo: str, schema: str, draw: Draw) -> Floats:
    """Fill the tables, owners in turn as they would arrive; the first owner's vectors, of which memory n has the n-th
    ``EACH``."""
    vectors, others = draw.around(PASSAGES), draw.around(BESIDE)
    arrivals = [("ann", number, vectors[EACH * number : EACH * number + EACH]) for number in range(PASSAGES // EACH)]
    arrivals += [(f"other{number % 50}", number, others[number : number + 1]) for number in range(BESIDE)]
    order: list[int] = np.random.default_rng(3).permutation(len(arrivals)).tolist()
    scopes = {owner: place for place, owner in enumerate(sorted({owner for owner, *_ in arrivals}), start=1)}
    rows = [(place, *arrivals[one]) for place, one in enumerate(order, start=1)]
    with psycopg.connect(conninfo, autocommit=True) as connection:
        register_vector(connection)
        connection.execute("SELECT set_config('search_path', %s, false)", (f"{schema}, public",))
        numbered = [(place, access.user_key(owner)) for owner, place in scopes.items()]
        copy(connection, "scope (number, key)", "int4 text", numbered)
        with connection.cursor().copy(
            "COPY memory (id, number, scope_number, scope_key, scope, user_name, content, tags, version, "
            "last_edited_by, created_at, updated_at, deleted, embedded_in) FROM STDIN"
        ) as sink:
            for number, owner, which, _ in rows:
                of = (f"{owner}-{which}", number, scopes[owner], access.user_key(owner), "user", owner)
                sink.write_row((*of, "words", [], 1, owner, "2024-01-01Z", "2024-01-01Z", False, [1]))
        entries = [(scopes[owner], number, 1, 0, "none", 0) for number, owner, _, _ in rows]
        copy(connection, "search_entry", "int4 int8 int4 int4 text int8", entries)
        passages = [
            (scopes[owner], 1, number, f"{part:032x}", Vector(vector))
            for number, owner, _, made in rows
            for part, vector in enumerate(made)
        ]
        copy(connection, "passage", "int4 int4 int8 text vector", passages)
        for table in ("memory", "search_entry", "passage"):
            connection.execute(f"VACUUM ANALYZE {table}".encode())
    return vectors


def copy(connection: psycopg.Connection[Any], table: str, types: str, rows: list[tuple[Any, ...]]) -> None:
    """Store rows."""
    with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as sink:
        sink.set_types(types.split())
        for row in rows:
            sink.write_row(row)


def exact(vectors: Floats, query: Floats) -> set[str]:
    """The memories of the first ten by their best passages."""
    best = (vectors @ query).reshape(-1, EACH).max(axis=1)
    return {f"ann-{place}" for place in np.argsort(-best)[:10]}


async def asked(storage: PostgresStorage, queries: Floats, wanted: list[set[str]]) -> tuple[float, float, list[float]]:
    """The mean and the least recall, and each query's milliseconds; one round before it counts."""
    recalls: list[float] = []
    times: list[float] = []
    for query in queries[:10]:
        await search(storage, query)
    for query, right in zip(queries, wanted, strict=True):
        start = perf_counter()
        found = await search(storage, query)
        times.append((perf_counter() - start) * 1e3)
        recalls.append(len(found & right) / len(right))
    return float(np.mean(recalls)), min(recalls), times


async def search(storage: PostgresStorage, query: Floats) -> set[str]:
    """The first ten by meaning."""
    page = await storage.search(
        Audience("ann"),
        Selector(),
        SearchQuery(
            terms={},
            tags=frozenset(),
            vector=query,
            space=SPACE.id,
            fusion=ranking.Fusion.weighted,
            min_score=None,
            offset=0,
            limit=10,
        ),
    )
    return {one.memory.id for one in page}


def tenth(times: list[float]) -> float:
    """The tenth fastest of a hundred."""
    return sorted(times)[len(times) // 10]


if __name__ == "__main__":
    asyncio.run(main())
