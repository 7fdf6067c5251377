"""The primary of a three-node replica set dies under load: nothing acknowledged is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast

import pytest

from muniment.conformance.mutants import MUTANTS
from muniment.conformance.pytest_front import not_run
from muniment.engine import Engine
from muniment.errors import NotFound, StorageUnavailable
from muniment.ports import NewEvent, PluginContext, Storage
from muniment.reference import HashEmbedder, ReferenceStorage
from muniment_storage_mongo.mongod import NoBinary, ReplicaSet, binary
from muniment_storage_mongo.storage import create
from tests.failover.load import Load, check

SECONDS = 80
PRIMARY_TIMEOUT = 1.0
"""Seconds that a call waits for a primary; an election takes longer, so callers see it and have to send again."""
CAUGHT = (
    "idempotency key ignored",
    "keys of exchanges and events ignored",
    "read-modify-write append",
    "claim without a lock",
    "delivery persists the revision",
)


@pytest.fixture
def three_nodes() -> Generator[ReplicaSet]:
    """A replica set of three, one of which is the primary."""
    try:
        binary()
    except NoBinary as missing:
        not_run(str(missing))
    with ReplicaSet(3) as replica_set:
        yield replica_set


async def test_a_primary_killed_under_load_loses_and_doubles_nothing(three_nodes: ReplicaSet, tmp_path: Path) -> None:
    """Of 2,000 concurrent writes, appends, events and acks each that was acknowledged is there, once; revisions have no
    gap, the newest 50 exchanges are kept, what counts as seen was carried; refusals were ``storage_unavailable``."""
    url = three_nodes.url("muniment")
    await create(PluginContext(url, tmp_path)).migrate()
    storage = create(PluginContext(url, tmp_path, {"primary_timeout": PRIMARY_TIMEOUT}))
    async with asyncio.timeout(SECONDS), Engine(storage, HashEmbedder(), background=False) as engine:
        load = Load(engine)
        killed = three_nodes.primary()

        async def kill() -> None:
            await load.due.wait()
            killed.kill()

        await asyncio.gather(load.run(), kill())
        assert load.done == load.total
        assert load.unavailable, "the kill interrupted nobody"
        assert three_nodes.primary() is not killed
        await check(load)


class Unreliable:
    """A storage of which one call in twenty is ``storage_unavailable``, before it was done or after."""

    def __init__(self, storage: ReferenceStorage) -> None:
        self._storage = storage
        self._random = Random(5)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage, name)

        async def unreliable(*positional: Any, **named: Any) -> Any:
            fate = self._random.randrange(40)
            if fate == 0:
                raise StorageUnavailable
            answer = await method(*positional, **named)
            if fate == 1:
                raise StorageUnavailable
            return answer

        return method if name in ("open", "close") else unreliable


async def loaded(storage: ReferenceStorage) -> Load:
    """The load on an unreliable storage, checked."""
    async with asyncio.timeout(SECONDS), Engine(cast("Storage", Unreliable(storage)), None, background=False) as engine:
        load = Load(engine, part=5, lease=1)
        await load.run()
        await check(load)
        return load


async def test_a_caller_that_sends_again_does_nothing_twice() -> None:
    """The same load and check on the reference, whose answers are lost again and again."""
    load = await loaded(ReferenceStorage())
    assert load.done == load.total
    assert load.unavailable > 20


@pytest.mark.parametrize("name", CAUGHT)
async def test_a_storage_that_loses_or_doubles_is_caught(name: str) -> None:
    """The check can fail: by what was told or read, not by a crash."""
    (broken,) = (mutant.plugin for mutant in MUTANTS if mutant.name == name)
    assert issubclass(broken, ReferenceStorage)
    assert await kinds_raised(broken()) == {AssertionError}


class Raises(ReferenceStorage):
    """An enqueue that raises what no caller may see."""

    error: ClassVar[Exception]

    async def enqueue(self, event: NewEvent) -> datetime:
        """Raise it."""
        raise self.error


@pytest.mark.parametrize(("error", "kind"), [(NotFound(), AssertionError), (OSError("reset"), OSError)])
async def test_a_caller_is_told_success_or_storage_unavailable(error: Exception, kind: type[Exception]) -> None:
    """Another refusal is found, and a foreign exception comes out as itself, so it counts as no finding."""

    class Broken(Raises):
        pass

    Broken.error = error
    assert await kinds_raised(Broken()) == {kind}


async def kinds_raised(storage: ReferenceStorage) -> set[type[BaseException]]:
    """The kinds of all exceptions that end the load or its check, in groups or not."""
    try:
        await loaded(storage)
    except Exception as raised:
        return {type(error) for error in alone(raised)}
    return set()


def alone(error: BaseException) -> list[BaseException]:
    """An exception, or those in a group and in the groups within it."""
    if isinstance(error, BaseExceptionGroup):
        return [one for inner in cast("tuple[BaseException, ...]", error.exceptions) for one in alone(inner)]
    return [error]
