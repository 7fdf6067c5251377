"""A real server for the tests of this plugin, and values to write.

The server is the embedded one; where it cannot be started the tests say so, and fail if MUNIMENT_CONFORMANCE_REQUIRE=1.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
import pytest

from muniment import access, lexical
from muniment.conformance.agent_process import Process, start
from muniment.conformance.agent_races import Rivals
from muniment.errors import MunimentError
from muniment.ports import (
    AuditDraft,
    Create,
    Index,
    Passages,
    PassageVector,
    Placement,
    PluginContext,
    ReceiptClaim,
    Revise,
    Space,
)
from muniment_storage_postgres import agent_probe
from muniment_storage_postgres.embedded import server as embedded
from muniment_storage_postgres.sql import STATEMENTS
from muniment_storage_postgres.storage import PostgresStorage, create

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
AGENT_PROCESS = Path(__file__).with_name("agent_process.py")


class Writer:
    """Makes mutations of one user's memories, with distinct vectors for distinct passages."""

    def __init__(self, user: str = "ann") -> None:
        self.user = user
        self.placement = access.own_placement(user)

    def audit(self, memory_id: str | None, version: int, scope_key: str | None = None) -> AuditDraft:
        """An audit entry."""
        key = scope_key or self.placement.scope_key
        return AuditDraft(
            str(uuid4()), self.user, None, "test", "memory.write", memory_id, None, version, ("content",), key
        )

    def index(self, content: str, hashes: Sequence[str] = ("h",), vectors: Sequence[Sequence[float]] = ()) -> Index:
        """Search entries, complete in the test's space."""
        made = vectors or [np.random.default_rng(abs(hash(one))).normal(size=8).tolist() for one in hashes]
        fresh = tuple(
            PassageVector(one, np.array(vector, dtype=np.float32)) for one, vector in zip(hashes, made, strict=True)
        )
        return Index(
            lexical.ANALYSER, lexical.analyse(content), Passages(SPACE.id, frozenset(hashes), fresh, complete=True)
        )

    def create(
        self,
        memory_id: str,
        content: str = "some words",
        *,
        tags: Sequence[str] = (),
        index: Index | None = None,
        claim: ReceiptClaim | None = None,
        placement: Placement | None = None,
    ) -> Create:
        """A new memory."""
        where = placement or self.placement
        return Create(
            memory_id=memory_id,
            editor=self.user,
            audit=self.audit(memory_id, 1, where.scope_key),
            claim=claim,
            placement=where,
            content=content,
            tags=tuple(tags),
            index=index or self.index(content),
        )

    def edit(self, memory_id: str, expected: int, content: str, index: Index | None = None) -> Revise:
        """New content."""
        return Revise(
            memory_id=memory_id,
            editor=self.user,
            audit=self.audit(memory_id, expected + 1),
            expected_version=expected,
            content=content,
            index=index or self.index(content),
        )


@pytest.fixture
def writer() -> Writer:
    """A user's mutations."""
    return Writer()


@pytest.fixture(scope="session")
def data_dir() -> Generator[Path]:
    """The data directory of the tests' server, which runs until the last test."""
    directory = Path(tempfile.mkdtemp(prefix="muniment-test-"))
    running = embedded(directory / "postgres")
    try:
        running.start()
    except MunimentError as error:
        message = f"not run: no embedded PostgreSQL here: {error}"
        if os.environ.get("MUNIMENT_CONFORMANCE_REQUIRE") == "1":
            pytest.fail(message)
        pytest.skip(message)
    yield directory
    running.stop()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def url(data_dir: Path) -> str:
    """The tests' server as a URL."""
    return f"postgresql://postgres@/postgres?host={data_dir / 'postgres'}"


Clients = Callable[..., PostgresStorage]


@pytest.fixture
def clients(url: str) -> Clients:
    """Makes storages, not opened, that share one new schema."""
    schema = f"test_{uuid4().hex[:12]}"

    def made(**options: object) -> PostgresStorage:
        given = {"schema": schema, "partitions": 2, **options}
        return create(PluginContext(url, Path(tempfile.gettempdir()), given))

    return made


@pytest.fixture
async def storage(clients: Clients) -> AsyncGenerator[PostgresStorage]:
    """An open storage with nothing in it but a space."""
    made = clients()
    await made.open()
    await made.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
    yield made
    await made.close()


@pytest.fixture
async def schema(storage: PostgresStorage) -> str:
    """The schema that the storage's tables are in."""
    return (await storage.describe())["schema"].split()[0]


@pytest.fixture
async def raw(schema: str, url: str) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
    """A connection that the plugin knows nothing of."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"SET search_path = {schema}, public".encode())
        yield connection


LookedAt = Callable[..., Awaitable[float]]


@pytest.fixture
def looked_at(raw: psycopg.AsyncConnection[Any]) -> LookedAt:
    """How many rows of a table a named statement looks at."""

    async def count(table: str, statement: str, parameters: Mapping[str, Any]) -> float:
        cursor = await raw.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + STATEMENTS[statement], parameters)
        ((plan,),) = await cursor.fetchall()
        scans = [node for node in _nodes(plan[0]["Plan"]) if node.get("Relation Name") == table]
        assert scans, f"{statement} does not look at {table}"
        return sum(map(_rows_of, scans))

    return count


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def _rows_of(node: Mapping[str, Any]) -> float:
    removed = sum(node.get(f"Rows Removed by {how}", 0) for how in ("Filter", "Index Recheck"))
    return (node["Actual Rows"] + removed) * node["Actual Loops"]


@pytest.fixture
async def rivals(
    storage: PostgresStorage, clients: Clients, raw: psycopg.AsyncConnection[Any]
) -> AsyncGenerator[Rivals]:
    """The storage and another client on the same data."""
    other = clients()
    await other.open()
    yield Rivals(storage, other, partial(agent_probe.stored, raw), partial(agent_probe.age, raw))
    await other.close()


@pytest.fixture
async def process(url: str, schema: str) -> AsyncGenerator[Process]:
    """A process with another client on the same data."""
    async with start(AGENT_PROCESS, url, schema) as started:
        yield started


@pytest.fixture
async def another_process(url: str, schema: str) -> AsyncGenerator[Process]:
    """One more."""
    async with start(AGENT_PROCESS, url, schema) as started:
        yield started


@pytest.fixture
def fresh_dir() -> Generator[Path]:
    """A short data directory of its own; a test's directory may lie too deep for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="mt-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


async def soon(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether a condition comes true in time."""
    for _ in range(int(seconds * 20)):
        if condition():
            return True
        await asyncio.sleep(0.05)
    return condition()


@pytest.fixture(name="soon")
def soon_fixture() -> Callable[..., object]:
    """``soon`` for tests."""
    return soon
