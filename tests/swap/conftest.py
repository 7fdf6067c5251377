"""The grounds: a server of each kind."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from muniment.conformance.pytest_front import not_run
from muniment_storage_mongo.mongod import NoBinary, ReplicaSet, binary
from tests.swap.grounds import Ground, Mongo, Postgres


@pytest.fixture(params=["postgres", "mongo"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Ground]:
    """A server of each kind."""
    if request.param == "postgres":
        yield Postgres(tmp_path)
        return
    try:
        binary()
    except NoBinary as missing:
        not_run(str(missing))
    with ReplicaSet(1) as replica_set:
        yield Mongo(tmp_path, replica_set)
