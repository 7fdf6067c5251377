"""Get, write and update of the storage, beside the bare driver with the same rows and beside the seed's one table."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
from estate import Estate, Text
from pgvector import Vector
from pgvector.psycopg import register_vector_async
from seed_shape import INSERT, SeedShape

from muniment import access, lexical
from muniment.ports import Audience, AuditDraft, Create, Index, Passages, PassageVector, Revise
from muniment_storage_postgres.storage import PostgresStorage

USER = "writer"
ROUNDS = 200
_CREATE = """
WITH m AS (
    INSERT INTO memory (
        id, scope_number, scope_key, scope, user_name, content, tags, version, last_edited_by, created_at, updated_at,
        deleted, embedded_in
    )
    VALUES (
        %(id)s, %(scope)s, %(key)s, 'user', %(user)s, %(content)s, %(tags)s, 1, %(user)s, now(), now(), false, '{1}'
    )
    RETURNING number
), e AS (
    INSERT INTO search_entry
    SELECT %(scope)s::int, number, %(length)s::int, %(analyser)s, %(terms)s::text[], %(counts)s::int[] FROM m
), t AS (
    INSERT INTO posting SELECT m.number, %(scope)s::int, u.c, u.t
    FROM m, unnest(%(terms)s::text[], %(counts)s::int[]) AS u (t, c)
), p AS (
    INSERT INTO passage SELECT %(scope)s::int, 1, m.number, u.h, u.v
    FROM m, unnest(%(hashes)s::text[], %(vectors)s::vector[]) AS u (h, v)
)
INSERT INTO audit (id, at, actor, surface, action, memory_id, version, changed, scope_key)
SELECT %(audit)s, now(), %(user)s, 'bench', 'memory.write', %(id)s, 1, '{content}', %(key)s FROM m
"""
_GET = """
SELECT id, scope, project_id, content, tags, version, last_edited_by, created_at, updated_at FROM memory
WHERE id = %(id)s AND user_name = %(user)s
"""


class Writes:
    """Mutations of one user, made of the estate's texts."""

    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        self._next = 0
        self._place = access.own_placement(USER)

    def text(self) -> Text:
        """The next text."""
        self._next += 1
        return self._estate.texts[self._next % len(self._estate.texts)]

    def index(self, text: Text) -> Index:
        """Its search entries, with two passages."""
        vectors = self._estate.vectors(text.topic, 2)
        fresh = tuple(PassageVector(uuid4().hex, vector) for vector in vectors)
        hashes = frozenset(one.hash for one in fresh)
        return Index(lexical.ANALYSER, text.terms, Passages("bench:384", hashes, fresh, complete=True))

    def audit(self, memory: str, version: int) -> AuditDraft:
        """Its audit entry."""
        key = self._place.scope_key
        return AuditDraft(str(uuid4()), USER, None, "bench", "memory.write", memory, None, version, ("content",), key)

    def create(self) -> Create:
        """A new memory."""
        memory, text = str(uuid4()), self.text()
        return Create(
            memory_id=memory,
            editor=USER,
            audit=self.audit(memory, 1),
            placement=self._place,
            content=text.content,
            tags=("one", "two"),
            index=self.index(text),
        )

    def edit(self, memory: str, version: int) -> Revise:
        """Quite another content."""
        text = self.text()
        return Revise(
            memory_id=memory,
            editor=USER,
            audit=self.audit(memory, version + 1),
            expected_version=version,
            content=text.content,
            index=self.index(text),
        )

    def patch(self, memory: str, version: int, text: Text) -> Revise:
        """The same content with one word more, and one passage made anew."""
        content = f"{text.content} addition{version}"
        return Revise(
            memory_id=memory,
            editor=USER,
            audit=self.audit(memory, version + 1),
            expected_version=version,
            content=content,
            index=self.index(Text(content, text.topic)),
        )


async def compare_writes(storage: PostgresStorage, seed: SeedShape, conninfo: str, schema: str, estate: Estate) -> None:
    """Print medians and p10 of each, taken in turn."""
    writes = Writes(estate)
    first = writes.create()
    await storage.apply(first)
    await storage.apply(writes.patch(first.memory_id, 1, Text(first.content, 0)))
    version = 2
    raw = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    await register_vector_async(raw)
    await raw.execute("SELECT set_config('search_path', %s, false)", (f"{schema}, public",))
    answer = await (await raw.execute("SELECT number FROM scope WHERE key = %s", (f"u:{USER}",))).fetchone()
    assert answer is not None
    spent: defaultdict[str, list[float]] = defaultdict(list)

    async def clock(name: str, work: Callable[[], Awaitable[object]]) -> None:
        start = perf_counter()
        await work()
        spent[name].append((perf_counter() - start) * 1e3)

    for _ in range(ROUNDS):
        made, bare = writes.create(), _bare(writes.create(), answer[0])
        edited = writes.edit(first.memory_id, version)
        patched = writes.patch(first.memory_id, version + 1, Text(edited.content or "", 0))
        version += 2
        await clock("get, ours", lambda: storage.load(Audience(USER), first.memory_id))
        await clock("get, raw", lambda: _fetched(raw, {"id": first.memory_id, "user": USER}))
        await clock("write, ours", lambda made=made: storage.apply(made))
        await clock("write, raw", lambda bare=bare: raw.execute(_CREATE.encode(), bare, prepare=True))
        await clock("update, ours", lambda edited=edited: storage.apply(edited))
        await clock("small edit, ours", lambda patched=patched: storage.apply(patched))
        await clock("write, seed", lambda made=made: _to_seed(seed, made))
    await raw.close()
    for name, times in spent.items():
        print(f"{'':>8}  {name:<20}{median(times):>9.2f}{float(np.quantile(times, 0.1)):>9.2f}", flush=True)
    for name in ("get", "write"):
        ratio = median(spent[f"{name}, ours"]) / median(spent[f"{name}, raw"])
        print(f"{'':>8}  {name}: {ratio:.2f} of the bare driver's time")


def _bare(made: Create, scope: int) -> dict[str, Any]:
    terms = sorted(made.index.terms.frequencies.items())
    passages = made.index.passages
    assert passages is not None
    return {
        "id": made.memory_id,
        "scope": scope,
        "key": made.placement.scope_key,
        "user": USER,
        "content": made.content,
        "tags": list(made.tags),
        "length": made.index.terms.length,
        "analyser": made.index.analyser,
        "terms": [*(term for term, _ in terms), *(f" {tag}" for tag in made.tags)],
        "counts": [*(count for _, count in terms), *(1 for _ in made.tags)],
        "hashes": [one.hash for one in passages.vectors],
        "vectors": [Vector(one.vector) for one in passages.vectors],
        "audit": made.audit.id,
    }


async def _fetched(raw: psycopg.AsyncConnection[Any], parameters: dict[str, Any]) -> object:
    return await (await raw.execute(_GET.encode(), parameters, prepare=True, binary=True)).fetchone()


async def _to_seed(seed: SeedShape, made: Create) -> None:
    passages = made.index.passages
    assert passages is not None
    row = (made.memory_id, USER, made.content, list(made.tags), Vector(passages.vectors[0].vector))
    seed.connection.execute(INSERT.encode(), row)
    await asyncio.sleep(0)
