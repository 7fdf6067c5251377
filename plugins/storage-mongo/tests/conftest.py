"""A real server for the tests of this plugin, and values to write.

The server is a replica set of one; where it cannot be started the tests say so, and fail if
MUNIMENT_CONFORMANCE_REQUIRE=1.
"""

from __future__ import annotations

import gc
import tempfile
import zlib
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from muniment import access, lexical
from muniment.conformance.agent_process import Process, start
from muniment.conformance.agent_races import Rivals
from muniment.conformance.pytest_front import not_run
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
from muniment_storage_mongo import agent_probe
from muniment_storage_mongo.mongod import NoBinary, NotStarted, ReplicaSet
from muniment_storage_mongo.storage import MongoStorage, create

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
AGENT_PROCESS = Path(__file__).with_name("agent_process.py")

Raw = AsyncDatabase[dict[str, Any]]


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
        made = vectors or [np.random.default_rng(zlib.crc32(one.encode())).normal(size=8).tolist() for one in hashes]
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

    def move(self, memory_id: str, expected: int, target: Placement, source: Placement | None = None) -> Revise:
        """The same memory in another scope."""
        return Revise(
            memory_id=memory_id,
            editor=self.user,
            audit=self.audit(memory_id, expected + 1, (source or self.placement).scope_key),
            expected_version=expected,
            placement=target,
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let this plugin's tests pass over a socket that PyMongo was connecting when its client was closed, as it does
    where a server was killed: it leaves the socket to the collector."""
    unclosed = r"ignore:Exception ignored in. <socket\.socket.*family=2:pytest.PytestUnraisableExceptionWarning"
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(unclosed))


@pytest.fixture(scope="module", autouse=True)
def collected() -> Generator[None]:
    """Collects what the tests left, while it is theirs."""
    yield
    gc.collect()


@pytest.fixture
def writer() -> Writer:
    """A user's mutations."""
    return Writer()


@pytest.fixture(scope="session")
def started() -> Callable[..., ReplicaSet]:
    """Makes replica sets that run, or says that none can here."""

    def start(nodes: int = 1, arguments: Sequence[str] = ()) -> ReplicaSet:
        replica_set = ReplicaSet(nodes, arguments=arguments)
        try:
            replica_set.start()
        except (NoBinary, NotStarted) as error:
            not_run(str(error))
        return replica_set

    return start


@pytest.fixture(scope="session")
def replica_set(started: Callable[..., ReplicaSet]) -> Generator[ReplicaSet]:
    """The tests' server, which runs until the last test."""
    with started() as running:
        yield running


@pytest.fixture
def database_name() -> str:
    """A database that no other test has."""
    return f"test_{uuid4().hex[:12]}"


@pytest.fixture
def url(replica_set: ReplicaSet, database_name: str) -> str:
    """The test's database as a URL."""
    return replica_set.url(database_name)


Clients = Callable[..., MongoStorage]


@pytest.fixture
async def clients(url: str) -> AsyncGenerator[Clients]:
    """Makes storages, not opened, that share the test's database and are closed after it."""
    made: list[MongoStorage] = []

    def make(**options: object) -> MongoStorage:
        made.append(create(PluginContext(url, Path(tempfile.gettempdir()), options)))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
async def storage(clients: Clients) -> MongoStorage:
    """An open storage with nothing in it but a space."""
    made = clients()
    await made.open()
    await made.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
    return made


@pytest.fixture
async def raw(url: str, database_name: str) -> AsyncGenerator[Raw]:
    """The test's database by a client that the plugin knows nothing of."""
    async with AsyncMongoClient[dict[str, Any]](url, tz_aware=True) as client:
        yield client[database_name]
        await client.drop_database(database_name)


@pytest.fixture
async def rivals(storage: MongoStorage, clients: Clients, raw: Raw) -> Rivals:
    """The storage and another client on the same data."""
    other = clients()
    await other.open()
    return Rivals(storage, other, partial(agent_probe.stored, raw), partial(agent_probe.age, raw))


@pytest.fixture
async def process(storage: MongoStorage, url: str) -> AsyncGenerator[Process]:
    """A process with another client on the same data."""
    async with start(AGENT_PROCESS, url) as started:
        yield started


@pytest.fixture
async def another_process(storage: MongoStorage, url: str) -> AsyncGenerator[Process]:
    """One more."""
    async with start(AGENT_PROCESS, url) as started:
        yield started
