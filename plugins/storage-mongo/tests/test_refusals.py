"""What a person reads when the database cannot be used: one sentence with the remedy, and never the password."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient, errors

from muniment.errors import ConfigurationError, Internal, MunimentError, PayloadTooLarge, StorageUnavailable
from muniment.ports import Audience, PluginContext, Selector
from muniment_storage_mongo import refusals, settings
from muniment_storage_mongo.mongod import Node, ReplicaSet
from muniment_storage_mongo.storage import MongoStorage, create

SECRET = "s3cret-Word"
Started = Callable[..., ReplicaSet]


async def refusal(spec: str, **options: object) -> MunimentError:
    """What opening says; it must not hold the password, and be one sentence."""
    with pytest.raises(MunimentError) as caught:
        await create(
            PluginContext(spec, Path("unused"), {"connect_timeout": 2, "primary_timeout": 2, **options})
        ).open()
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def single(started: Started, tmp_path: Path) -> Generator[Callable[[str | None], Node]]:
    """Starts single servers, of no replica set or of one that was never made."""
    with started():
        pass
    nodes: list[Node] = []

    def start(replica_set: str | None) -> Node:
        nodes.append(Node(tmp_path / str(len(nodes)), replica_set))
        nodes[-1].start()
        return nodes[-1]

    yield start
    for node in nodes:
        node.kill()


@pytest.fixture(scope="module")
def guarded(started: Started, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a server that knows ``reader``, who may read and nothing else, by the password ``right``."""
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text("muniment" * 4)
    os.chmod(key, 0o400)
    with started(arguments=("--auth", "--keyFile", str(key))) as running:
        address = running.primary().address
        with MongoClient[dict[str, Any]](f"mongodb://{address}/", directConnection=True) as client:
            client.admin.command("createUser", "root", pwd="root", roles=["root"])
        with MongoClient[dict[str, Any]](f"mongodb://root:root@{address}/", directConnection=True) as client:
            client.admin.command("createUser", "reader", pwd="right", roles=["readAnyDatabase"])
        yield address


async def test_a_standalone_is_refused_with_the_command_that_mends_it(single: Callable[[str | None], Node]) -> None:
    """With and without a replica set in the URL."""
    node = single(None)
    for query in ("", "?replicaSet=rs0"):
        error = await refusal(f"mongodb://{node.address}/memories{query}")
        assert isinstance(error, ConfigurationError)
        assert f'database "memories" on {node.address}' in str(error)
        assert "mongod --replSet rs0" in str(error)
        assert "rs.initiate()" in str(error)


async def test_a_replica_set_that_was_never_made(single: Callable[[str | None], Node]) -> None:
    """The one command that is missing."""
    error = await refusal(f"mongodb://{single('rs0').address}/")
    assert isinstance(error, ConfigurationError)
    assert "rs.initiate()" in str(error)
    assert "--replSet" not in str(error)


async def test_a_wrong_replica_set_name(replica_set: ReplicaSet) -> None:
    """The option is named."""
    error = await refusal(f"mongodb://{replica_set.nodes[0].address}/?replicaSet=other")
    assert isinstance(error, ConfigurationError)
    assert "correct replicaSet" in str(error)


async def test_no_primary(started: Started) -> None:
    """A set that lost its majority: unavailable, and again available when it is back."""
    with started(nodes=3) as running:
        storage = create(PluginContext(running.url(), Path("unused"), {"primary_timeout": 2}))
        await storage.open()
        primary = running.primary()
        for node in running.nodes:
            if node is not primary:
                node.kill()
        async with asyncio.timeout(60):
            while await lists(storage):  # until the primary notices that it is alone
                continue
        error = await refusal(running.url())
        assert isinstance(error, StorageUnavailable)
        assert "has no primary now" in str(error)
        assert "majority" in str(error)
        await asyncio.to_thread(running.start)
        assert await lists(storage)
        await storage.close()


async def lists(storage: MongoStorage) -> bool:
    """Whether a call is answered; StorageUnavailable is the only refusal."""
    try:
        await storage.list_memories(Audience("ann"), Selector(), after=None, limit=1)
    except StorageUnavailable:
        return False
    return True


async def test_nobody_listens() -> None:
    """An unreachable server is named by host and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = await refusal(f"mongodb://ann:{SECRET}@127.0.0.1:{port}/memories")
    assert isinstance(error, StorageUnavailable)
    assert f'database "memories" on 127.0.0.1:{port}' in str(error)
    assert "connection refused" in str(error)


async def test_no_such_host() -> None:
    """A host without an address is unreachable; one that DNS does not list is a setting to correct."""
    error = await refusal(f"mongodb://ann:{SECRET}@nowhere.invalid/memories")
    assert isinstance(error, StorageUnavailable)
    assert "nowhere.invalid" in str(error)


async def test_a_wrong_password(guarded: str) -> None:
    """A real server that knows another one."""
    error = await refusal(f"mongodb://reader:{SECRET}@{guarded}/?authSource=admin")
    assert isinstance(error, ConfigurationError)
    assert "refused the user or its password" in str(error)


async def test_a_user_without_the_right(guarded: str) -> None:
    """Whoever may only read cannot make the collections; the role that is missing is named."""
    error = await refusal(f"mongodb://reader:right@{guarded}/memories?authSource=admin")
    assert isinstance(error, ConfigurationError)
    assert "readWrite" in str(error)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (f"mongodb://ann:{SECRET}@host/db?replicaset=rs0&pol_size=3", "did you mean pool_size"),
        (f"mongodb://ann:{SECRET}@host/db?w=1", "w, set in the storage URL, must be majority"),
        (f"mongodb://ann:{SECRET}@host/db?readPreference=secondary", "must be primary"),
        (f"mongodb://ann:{SECRET}@host/db?retryWrites=false", "must be true"),
        (f"mongodb://ann:{SECRET}@host/db?journal=false", "must be true"),
        (f"mongodb://ann:{SECRET}@host/db?readConcernLevel=local", "must be majority"),
        (f"mongodb://ann:{SECRET}@host/db?timeoutMS=1", "set primary_timeout of the storage instead"),
        (f"mongodb://ann:{SECRET}@host/db?maxPoolSize=1", "set pool_size of the storage instead"),
        (f"mongodb://ann:{SECRET}@host/db?datetime_conversion=bogus", "cannot be understood"),
        (f"mongodb://ann:{SECRET}@host/admin", "authSource=admin"),
        (f"mongodb://ann:{SECRET}@host/local", "a database of MongoDB's own"),
        (f"mongodb://ann:{SECRET}@host/db?pool_size=0", "pool_size, set in the storage URL"),
        (f"mongodb://ann:{SECRET}@host/a.b", "cannot be the name of a database"),
        (f"mongodb://ann:{SECRET}@host:port/", "cannot be understood"),
        (f"mongodb://ann:p@{SECRET}@host/", "cannot be understood"),
        (f"mongodb://ann:p/{SECRET}@host/", "cannot be understood"),
        (f"mongodb://ann:p#{SECRET}@host/", "cannot be understood"),
        (f"mongodb://ann:p?{SECRET}@host/", "cannot be understood"),
        (f"mongodb://ann:p%{SECRET}@host/", "cannot be understood"),
        ("mongodb://", "cannot be understood"),
    ],
)
def test_a_wrong_setting_is_named_without_the_password(spec: str, named: str) -> None:
    """In the URL."""
    with pytest.raises(ConfigurationError, match=named) as caught:
        create(PluginContext(spec, Path("unused")))
    assert SECRET not in str(caught.value)


def test_options_of_the_table() -> None:
    """The URL wins over the table; an unknown name is refused with the one that was meant."""
    options = {"pool_size": 4, "vector_cache_mb": 8}
    parsed = settings.parse(PluginContext("mongodb://h1,h2:2/?replicaSet=r&pool_size=5", Path("unused"), options))
    assert (parsed.database, parsed.options.pool_size, parsed.options.vector_cache_mb) == ("muniment", 5, 8)
    assert parsed.place == 'database "muniment" on h1,h2:2'
    with pytest.raises(ConfigurationError, match="did you mean vector_cache_mb"):
        settings.parse(PluginContext("mongodb://h/", Path("unused"), {"vector_cache": 1}))


def bulk(**codes: int) -> errors.BulkWriteError:
    """What several writes in one command end in."""
    named = {kind: [{"index": 0, "code": code, "errmsg": SECRET}] for kind, code in codes.items()}
    return errors.BulkWriteError({"writeErrors": [], "writeConcernErrors": [], **named})


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (errors.OperationFailure(SECRET, 14031), StorageUnavailable, "full disk"),
        (errors.OperationFailure(SECRET, 64), StorageUnavailable, "majority"),
        (errors.OperationFailure(SECRET, 121, {"codeName": "DocumentValidationFailure"}), Internal, "code 121"),
        (bulk(writeErrors=14031), StorageUnavailable, "full disk"),
        (bulk(writeErrors=121), Internal, "code 121"),
        (bulk(writeConcernErrors=11602), StorageUnavailable, "did not say in time"),
        (errors.AutoReconnect(SECRET), StorageUnavailable, "same idempotency key"),
        (errors.NetworkTimeout(SECRET), StorageUnavailable, "same idempotency key"),
        (errors.WaitQueueTimeoutError(SECRET), StorageUnavailable, "raise pool_size"),
        (errors.DocumentTooLarge(SECRET), PayloadTooLarge, "16 MB"),
        (errors.PyMongoError(SECRET), Internal, "PyMongoError"),
    ],
)
def test_what_the_driver_says_is_not_repeated(error: errors.PyMongoError, kind: type[Exception], words: str) -> None:
    """Its text may hold data; the class, the code and the remedy are shown."""
    refused = refusals.of_error(error, "place")
    assert type(refused) is kind
    assert words in str(refused)
    assert SECRET not in str(refused)


async def test_what_no_document_can_hold_is_refused(storage: MongoStorage, writer: Any) -> None:
    """By the driver itself, whose error for that is of another family than its others."""
    with pytest.raises(PayloadTooLarge, match="16 MB"):
        await storage.apply(writer.create("m1", "x" * 17_000_000))


async def test_a_closed_storage_says_so(storage: MongoStorage) -> None:
    """Not a driver's error."""
    await storage.close()
    await storage.close()
    with pytest.raises(StorageUnavailable, match="open it first"):
        await storage.find_receipt("ann", "key")
