"""The connections to a file: failures that leave them usable, and locks that no other client in the process takes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from muniment.errors import ConfigurationError, StorageUnavailable
from muniment.ports import Create, Storage
from muniment_storage_sqlite import database, schema
from muniment_storage_sqlite.database import Database
from muniment_storage_sqlite.schema import Step

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
Creation = Callable[[str, str], Create]
COUNT = "SELECT count(*) FROM scopes"
_COUNT_MEMORIES = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM memories").fetchone()[0])
connection.close()
"""


@pytest.fixture
async def file(path: Path) -> AsyncGenerator[Database]:
    """An open file."""
    made = Database(path, path.parent / "data", 5.0)
    await made.open()
    yield made
    await made.close()


async def test_those_who_wait_for_another_process_wait_together(
    file: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait of a write begins when it is asked for: its turn may come when that is over, and then it only tries."""
    times = iter([100.0, 100.0, 100.0, 105.5])
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=lambda: next(times)))
    waits = [await file.write(lambda on: on.execute("PRAGMA busy_timeout").fetchone()[0]) for _ in range(2)]
    assert waits == [5_000, 50]


async def migrated(storage: Storage, path: Path, opened: Opened) -> None:
    await storage.migrate()


async def opened_again(storage: Storage, path: Path, opened: Opened) -> None:
    async with opened(path):
        pass


@pytest.mark.parametrize("other_use", [migrated, opened_again])
async def test_another_use_in_the_process_leaves_the_locks(
    path: Path, opened: Opened, creation: Creation, other_use: Callable[[Storage, Path, Opened], Awaitable[None]]
) -> None:
    """The operating system drops all locks that a process has on a file when it closes any descriptor of it. Without
    them another process that ends takes the log away, with whatever is written afterwards."""
    async with opened(path) as storage:
        await storage.apply(creation("m-1", "one"))
        await other_use(storage, path, opened)
        assert in_another_process(path) == 1
        await storage.apply(creation("m-2", "two"))
        assert in_another_process(path) == 2


@pytest.mark.parametrize("is_write", [True, False])
async def test_a_transaction_that_cannot_be_rolled_back_is_not_carried_along(file: Database, is_write: bool) -> None:
    """What it failed with is raised, the next one gets another connection, and nothing of the first is stored."""
    call = file.write if is_write else file.read

    def fail(connection: sqlite3.Connection) -> None:
        if is_write:
            connection.execute("INSERT INTO scopes (key, generation) VALUES ('u:ann', 1)")
        connection.set_authorizer(without_rollback)
        raise StorageUnavailable("the first failure")

    with pytest.raises(StorageUnavailable, match="the first failure"):
        await call(fail)
    assert await call(lambda connection: connection.execute(COUNT).fetchone()[0]) == 0
    await file.write(lambda connection: connection.execute("DELETE FROM scopes"))


def test_a_step_that_fails_says_why(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where SQLite has rolled back by itself, what it did so for is the error that is raised."""
    step = Step("1: fails", "CREATE TABLE t (n INTEGER UNIQUE);\nINSERT OR ROLLBACK INTO t VALUES (1), (1);\n")
    monkeypatch.setattr(schema, "STEPS", (step,))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            schema.bring_up_to_date(connection, path)
        assert not connection.in_transaction
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)


async def test_a_file_that_was_taken_away_is_not_made_anew(file: Database) -> None:
    """It would be empty, and anybody could read it."""
    file.path.rename(file.path.with_suffix(".moved"))
    with pytest.raises(StorageUnavailable, match="was removed or replaced"):
        await file.read(lambda connection: connection.execute(COUNT).fetchone()[0])
    assert not file.path.exists()


@pytest.mark.parametrize("is_write", [True, False])
async def test_another_file_at_the_path_is_noticed(file: Database, is_write: bool) -> None:
    """What were written to the one that is gone would be lost; put back, it is used again."""
    call, away = file.write if is_write else file.read, file.path.with_suffix(".moved")
    file.path.rename(away)
    file.path.touch(mode=0o600)
    with pytest.raises(StorageUnavailable, match="was removed or replaced"):
        await call(lambda connection: connection.execute(COUNT).fetchone()[0])
    away.rename(file.path)
    assert await call(lambda connection: connection.execute(COUNT).fetchone()[0]) == 0


async def test_a_file_that_a_newer_version_brought_further_is_not_written(file: Database) -> None:
    """Although it was open before."""
    with closing(sqlite3.connect(file.path, isolation_level=None)) as newer:
        newer.execute(f"PRAGMA user_version = {len(schema.STEPS) + 1}")
        for call in (file.write, file.write_beside):
            with pytest.raises(ConfigurationError, match="upgrade"):
                await call(
                    lambda connection: connection.execute("INSERT INTO scopes (key, generation) VALUES ('x', 1)")
                )
        newer.execute(f"PRAGMA user_version = {len(schema.STEPS)}")
    assert await file.write(lambda connection: connection.execute(COUNT).fetchone()[0]) == 0


async def test_the_log_is_begun_anew_although_somebody_always_reads(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write waits for those who read while it is long, for a moment, and again when it is twice as long."""
    monkeypatch.setattr(database, "LOG_MAX", 200_000)
    monkeypatch.setattr(database, "_LOG_WAIT_MS", 1)
    file, log = Database(path, path.parent / "data", 5.0), path.with_name(f"{path.name}-wal")
    await file.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute(COUNT).fetchone() == (0,)
        sizes = [await grown(file, log) for _ in range(8)]
        assert sizes == sorted(sizes)
        reader.execute("COMMIT")
        later = [await grown(file, log) for _ in range(16)]
    assert min(later) == 0
    assert max(later[later.index(0) :]) < 400_000
    await file.close()


async def test_what_is_written_beside_waits_together(file: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As writes do: of many that wait for another process none waits for all that were before it."""
    times = iter([100.0, 100.0, 100.0, 105.5])
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=lambda: next(times)))
    waits = [await file.write_beside(lambda on: on.execute("PRAGMA busy_timeout").fetchone()[0]) for _ in range(2)]
    assert waits == [5_000, 50]


async def test_a_place_without_a_log_is_refused(path: Path) -> None:
    """SQLite keeps another journal there without a word, and then reads and writes wait for each other."""
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(ConfigurationError, match="local disk"):
        Database(path, path.parent, 1.0)._use_log(connection)  # pyright: ignore[reportPrivateUsage]


async def grown(file: Database, log: Path) -> int:
    """How large the log is after a write of some 100,000 bytes."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT INTO scopes (key, generation) VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET key = excluded.key",
            (f"{connection.execute(COUNT).fetchone()[0]:0100000}",),
        )

    await file.write(write)
    return log.stat().st_size


def without_rollback(action: int, argument: str | None, *_: str | None) -> int:
    """An authorizer of SQLite."""
    refused = action == sqlite3.SQLITE_TRANSACTION and argument == "ROLLBACK"
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def in_another_process(path: Path) -> int:
    """How many memories a process sees that opens the file and closes it."""
    done = subprocess.run(
        [sys.executable, "-c", _COUNT_MEMORIES, str(path)], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    return int(done.stdout)
