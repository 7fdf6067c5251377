"""What the suite says of a server that is missing or will not start, and of one that is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pymongo.errors import OperationFailure

from muniment.conformance.target import NotRun
from muniment.errors import Internal, StorageUnavailable
from muniment_storage_mongo import mongod
from muniment_storage_mongo.conformance import OwnTarget
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.storage import MongoStorage


async def opened(target: OwnTarget) -> None:
    """Open a subject and close it."""
    async with target.open():
        pass


@pytest.fixture
def ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``mongod`` that cannot run here."""
    script = tmp_path / "mongod"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(mongod, "binary", lambda: script)


@pytest.mark.usefixtures("ends_at_once")
async def test_a_server_that_cannot_start_here_is_not_run() -> None:
    """Its absence says nothing about the storage."""
    with pytest.raises(NotRun, match="mongod did not start"):
        await opened(OwnTarget())


async def test_a_defect_of_starting_is_no_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else goes wrong is an error."""

    def broken(_: ReplicaSet) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(ReplicaSet, "start", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        await opened(OwnTarget())


@pytest.mark.parametrize("refusal", [Internal, StorageUnavailable])
async def test_a_storage_that_does_not_open_on_a_server_that_runs_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, refusal: type[Exception]
) -> None:
    """The component is there; the storage is what fails."""

    def started(_: ReplicaSet) -> None:
        """As if it ran."""

    async def refused(_: MongoStorage) -> None:
        raise refusal

    monkeypatch.setattr(ReplicaSet, "start", started)
    monkeypatch.setattr(MongoStorage, "open", refused)
    with pytest.raises(refusal):
        await opened(OwnTarget())


def test_a_set_that_the_server_refuses_is_told(started: Callable[..., ReplicaSet]) -> None:
    """Of what a server says to a configuration only that it has one already is as good as done."""
    with started():
        pass
    replica_set = ReplicaSet()
    replica_set.name = "another than that of its nodes"
    try:
        with pytest.raises(OperationFailure):
            replica_set.start()
    finally:
        replica_set.remove()


def test_a_set_that_is_made_already_is_found(started: Callable[..., ReplicaSet]) -> None:
    """Made by somebody who did not come to note it."""
    with started() as replica_set:
        replica_set._initiated = False  # pyright: ignore[reportPrivateUsage]
        replica_set.start()
        assert replica_set.primary() is replica_set.nodes[0]
