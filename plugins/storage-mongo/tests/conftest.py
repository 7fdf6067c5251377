"""A real server for the tests of this plugin, and values to write.

The server is a replica set of one; where it cannot be started the tests say so, and fail if
MUNIMENT_CONFORMANCE_REQUIRE=1.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import zlib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from muniment import access, lexical, limits
from muniment.agent_models import ExchangeKind
from muniment.models import Agent
from muniment.ports import (
    AuditDraft,
    Claim,
    Create,
    ExchangeAppend,
    ExchangeDraft,
    Index,
    Passages,
    PassageVector,
    Placement,
    PluginContext,
    ReceiptClaim,
    Revise,
    Space,
)
from muniment_storage_mongo.mongod import NoBinary, ReplicaSet
from muniment_storage_mongo.storage import MongoStorage, create

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)

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


def pytest_configure(config: pytest.Config) -> None:
    """Let a test that kills a server pass over a socket that PyMongo was connecting when its client was closed."""
    unclosed = r"ignore:Exception ignored in. <socket\.socket.*family=2:pytest.PytestUnraisableExceptionWarning"
    config.addinivalue_line("filterwarnings", unclosed)


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
        except NoBinary as error:
            message = f"not run: {error}"
            if os.environ.get("MUNIMENT_CONFORMANCE_REQUIRE") == "1":
                pytest.fail(message)
            pytest.skip(message)
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


class AgentCalls:
    """What the tests of agent memory do again and again."""

    ann = Agent(name="ann", instance="1")
    bob = Agent(name="bob", instance="1")
    hour = timedelta(hours=1)

    def append(self, *agents: Agent, key: str, kept: int = limits.EXCHANGES_KEPT) -> ExchangeAppend:
        """An exchange for these recipients."""
        kind = ExchangeKind.DM_CONCLUSION
        drafts = (ExchangeDraft(agent, kind, "pod", "label", (), "takeaway", 100) for agent in agents)
        return ExchangeAppend(tuple(drafts), key, kept)

    async def take(self, storage: MongoStorage, agent: Agent, *tokens: str) -> list[str]:
        """The events that a claim got."""
        claimed = await storage.claim(Claim(agent, tokens, self.hour, limits.ATTEMPTS_MAX))
        return [event.id for event in claimed.events]

    async def tell(self, process: Process, order: str) -> list[str]:
        """What a process of ``agent_process.py`` answers to an order."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(order.encode() + b"\n")
        return (await process.stdout.readline()).decode().split()


@pytest.fixture
def calls() -> AgentCalls:
    """What the tests of agent memory do again and again."""
    return AgentCalls()


@pytest.fixture
async def processes(storage: MongoStorage, url: str) -> AsyncGenerator[Callable[[], Any]]:
    """Starts processes of ``agent_process.py`` with an open storage, which are killed in the end if they still run."""
    script = Path(__file__).with_name("agent_process.py")
    async with AsyncExitStack() as stack:

        async def started() -> Process:
            process = await asyncio.create_subprocess_exec(sys.executable, script, url, stdin=PIPE, stdout=PIPE)

            async def ended() -> None:
                if process.returncode is None:
                    process.kill()
                await process.communicate()

            stack.push_async_callback(ended)
            assert process.stdout is not None
            assert await process.stdout.readline() == b"open\n"
            return process

        yield started
