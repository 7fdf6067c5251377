"""What a person reads when the database cannot be used: one sentence with the remedy, and never the password."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from muniment.errors import ConfigurationError, Internal, MunimentError, StorageUnavailable
from muniment.ports import Audience, PluginContext
from muniment_storage_postgres import refusals, settings
from muniment_storage_postgres.storage import PostgresStorage, create

SECRET = "s3cret-Word"
Clients = Callable[..., PostgresStorage]


@pytest.fixture(scope="module")
def guarded(data_dir: Path) -> Generator[str]:
    """The query of a URL for the tests' server, which asks user ``locked`` for its password."""
    rules = data_dir / "postgres" / "pg_hba.conf"
    before = rules.read_text()
    with psycopg.connect(
        f"postgresql://postgres@/postgres?host={data_dir / 'postgres'}", autocommit=True
    ) as connection:
        connection.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        connection.execute("CREATE DATABASE bare")
        rules.write_text(f"local all locked scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        yield f"host={data_dir / 'postgres'}"
        rules.write_text(before)
        connection.execute("SELECT pg_reload_conf()")


async def refusal(spec: str, **options: object) -> MunimentError:
    """What opening says; it must not hold the password, and be one sentence."""
    with pytest.raises(MunimentError) as caught:
        await create(PluginContext(spec, Path("unused"), {"connect_timeout": 2, **options})).open()
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


async def test_nobody_listens() -> None:
    """An unreachable server is named by host and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = await refusal(f"postgresql://ann:{SECRET}@127.0.0.1:{port}/memories")
    assert isinstance(error, StorageUnavailable)
    assert f'database "memories" on 127.0.0.1:{port}' in str(error)
    assert "check that the server runs" in str(error)


async def test_no_such_host() -> None:
    """A host without an address is unreachable, not a traceback."""
    error = await refusal(f"postgresql://ann:{SECRET}@nowhere.invalid/memories")
    assert isinstance(error, StorageUnavailable)
    assert "nowhere.invalid" in str(error)


async def test_a_wrong_password(guarded: str) -> None:
    """A real server that asks for another password."""
    error = await refusal(f"postgresql://locked:{SECRET}@/postgres?{guarded}")
    assert isinstance(error, ConfigurationError)
    assert "refused the password" in str(error)


async def test_no_password_at_all(guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was refused: nothing was given."""
    monkeypatch.delenv("PGPASSWORD", raising=False)
    error = await refusal(f"postgresql://locked@/postgres?{guarded}")
    assert isinstance(error, ConfigurationError)
    assert "none is given" in str(error)


async def test_an_unknown_database(guarded: str) -> None:
    """The database is named."""
    error = await refusal(f"postgresql://postgres@/missing?{guarded}")
    assert isinstance(error, ConfigurationError)
    assert '"missing"' in str(error)
    assert "createdb" in str(error)


async def test_an_unknown_user(guarded: str) -> None:
    """A role that is not there is a matter of the URL."""
    error = await refusal(f"postgresql://nobody_here@/postgres?{guarded}")
    assert isinstance(error, ConfigurationError)
    assert "refused the user" in str(error)


async def test_a_missing_extension_that_this_user_may_not_make(guarded: str) -> None:
    """The command is named, and who must run it."""
    error = await refusal(f"postgresql://locked:right@/bare?{guarded}")
    assert isinstance(error, ConfigurationError)
    assert "CREATE EXTENSION vector" in str(error)


async def test_a_missing_extension_that_is_not_installed(guarded: str) -> None:
    """A server without pgvector."""
    error = await refusal(f"postgresql://postgres@/bare?{guarded}&options=-c%20extension_control_path%3D/nowhere")
    assert isinstance(error, ConfigurationError)
    assert "install pgvector" in str(error)


@pytest.mark.parametrize("spec", [f"postgresql://ann:{SECRET}@host:port/x", f"postgresql://ann:{SECRET}@h/x?flavour"])
async def test_a_malformed_url(spec: str) -> None:
    """libpq would repeat the whole URL."""
    error = await refusal(spec)
    assert isinstance(error, ConfigurationError)
    assert "postgresql://USER:PASSWORD@HOST" in str(error)


@pytest.mark.parametrize(
    "password", ["p@{}", "p/{}", "p@ss/{}", "p#{}", "12#{}", "p?{}", "12?{}", "12?a={}", "p%{}", "p[{}", "p@ss?x={}"]
)
async def test_a_password_that_is_not_escaped(password: str) -> None:
    """A special character would end it, and the rest be shown as a host or a database; the escapes are named."""
    error = await refusal(f"postgresql://ann:{password.format(SECRET)}@127.0.0.1:54999/good")
    assert isinstance(error, ConfigurationError)
    assert "%-escaped" in str(error)


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("embedded:", {"pool_sise": 3}, r"pool_sise, set in \[plugins.storage-postgres\].*did you mean pool_size\?"),
        ("postgresql://ann@db/x", {"shema": "m"}, r"shema, set in \[plugins.storage-postgres\].*mean schema\?"),
        ("postgresql://ann@db/x?schemo=m", {}, r"schemo, set in the storage URL.*did you mean schema\?"),
        ("postgresql://ann@db/x?sslmod=require", {}, r"sslmod, set in the storage URL.*did you mean sslmode\?"),
        ("postgresql://ann@db/x?flavour=1", {}, r"flavour, set in the storage URL.*there are .*busy_timeout, "),
        ("postgresql://ann@db/x?pool_size=many", {}, r"pool_size, set in the storage URL"),
        ("postgresql://ann@db/x", {"pool_size": 0}, r"pool_size, set in \[plugins.storage-postgres\]"),
    ],
)
def test_a_wrong_option(spec: str, options: dict[str, object], words: str) -> None:
    """It is named, with where it was set and what was probably meant."""
    with pytest.raises(ConfigurationError, match=words):
        create(PluginContext(spec, Path("unused"), options))


def test_options_in_the_url_win_and_the_rest_is_libpqs() -> None:
    """`migrate` and the like are ours, `sslmode` is libpq's."""
    context = PluginContext(
        "postgres://ann@db/memories?migrate=false&sslmode=require&pool_size=3", Path("unused"), {"pool_size": 5}
    )
    found = settings.parse(context)
    assert (found.options.migrate, found.options.pool_size) == (False, 3)
    assert found.url == "postgresql://ann@db/memories?sslmode=require"


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (errors.DiskFull, StorageUnavailable, "full disk"),
        (errors.TooManyConnections, StorageUnavailable, "max_connections"),
        (errors.AdminShutdown, StorageUnavailable, "shut down"),
        (errors.CrashShutdown, StorageUnavailable, "crashed"),
        (errors.DeadlockDetected, StorageUnavailable, "try again"),
        (errors.InsufficientPrivilege, ConfigurationError, "grant"),
        (errors.ReadOnlySqlTransaction, ConfigurationError, "primary"),
        (errors.UndefinedTable, ConfigurationError, "muniment migrate"),
        (errors.IoError, StorageUnavailable, "log"),
        (errors.SyntaxError, Internal, "42601"),
    ],
)
def test_failed_statements(failure: type[psycopg.Error], kind: type[MunimentError], words: str) -> None:
    """Each SQLSTATE has its sentence; the driver's text, which may hold data, is not in it."""
    error = refusals.of_statement(failure("the text of a memory"), "db")
    assert type(error) is kind
    assert words in str(error)
    assert "the text of a memory" not in str(error)


def test_a_killed_server_was_not_shut_down() -> None:
    """PostgreSQL gives the same SQLSTATE where its first process was killed, and where somebody shut it down."""
    killed = errors.AdminShutdown("terminating connection due to unexpected postmaster exit")
    assert "was killed" in str(refusals.of_statement(killed, "db"))


async def test_a_dropped_idle_connection_is_not_noticed(storage: PostgresStorage, url: str, writer: Any) -> None:
    """Connections that the server closed while they were idle harm neither a read nor a write."""
    await storage.apply(writer.create("m1"))
    await drop_connections(url)
    assert await storage.load(Audience("ann"), "m1") is not None
    await drop_connections(url)
    assert (await storage.apply(writer.edit("m1", 1, "second"))).version == 2


async def test_a_write_that_was_sent_is_never_repeated(storage: PostgresStorage, url: str, writer: Any) -> None:
    """A connection that breaks while a write waits for a lock: refused, and applied at most once."""
    await storage.apply(writer.create("m1"))
    schema = (await storage.describe())["schema"].split()[0]
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(f"SELECT FROM {schema}.memory FOR UPDATE".encode())
        write = asyncio.ensure_future(storage.apply(writer.edit("m1", 1, "second")))
        read = asyncio.ensure_future(storage.load(Audience("ann"), "m1"))
        await asyncio.sleep(0.2)
        await drop_connections(url)
        with pytest.raises(StorageUnavailable):
            await write
        assert await read is not None
    facts = await storage.load(Audience("ann"), "m1")
    assert facts is not None
    assert facts.memory.version == 1


async def drop_connections(url: str) -> None:
    """End every connection of a storage on the server, and let them be gone."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        await other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'muniment'"
        )
