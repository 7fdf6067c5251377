"""The connections to one file, and the threads that use them: one writes, a few read, none is the event loop's. One
more writes what nobody waits for.

A write has SQLite's write lock from its first statement on and is all or nothing; a read sees one snapshot, and neither
waits for the other. What SQLite reports leaves here as a refusal. A call that was cancelled is over when CancelledError
leaves it, whichever it is.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from muniment import cancellation
from muniment.errors import ConfigurationError, StorageUnavailable
from muniment_storage_sqlite.place import prepare
from muniment_storage_sqlite.refusals import REPORTED, refusal, replaced
from muniment_storage_sqlite.schema import STEPS, bring_up_to_date, roll_back, version_of

T = TypeVar("T")
Connection = sqlite3.Connection
Work = Callable[[Connection], T]
Threads = tuple[ThreadPoolExecutor, ThreadPoolExecutor, ThreadPoolExecutor]
"""That of the writer, those of the readers, and that of what is written beside."""

READERS: Final = 4
"""How many reads run at once; further ones wait."""
OLDEST: Final = (3, 37, 0)
"""The first SQLite with all that the schema and the statements use."""
_SETTINGS: Final = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA cache_size = -16000",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA trusted_schema = OFF",
)
_TO_WRITE: Final = "BEGIN IMMEDIATE"
LOG_MAX: Final = 32_000_000
"""Bytes of the write-ahead log from which on a write waits for the readers to begin it anew; SQLite leaves it at 16 MB
where nobody reads."""
_LOG_WAIT_MS: Final = 200
"""Milliseconds that it waits for them. In vain, it tries again when the log is twice as long."""
_LEAST: Final = 0.05
"""Seconds that a write waits for another process however long it waited for its turn."""
_RETRY: Final = 0.02
"""Seconds between attempts to switch a new file to its log, for which SQLite does not wait by itself."""


class Database:
    """One file, opened by ``open``; a locked one is waited for at most ``wait`` seconds."""

    def __init__(self, path: Path, data_dir: Path, wait: float) -> None:
        self.path = path
        self._data_dir = data_dir
        self._wait = wait
        self._life = asyncio.Lock()
        self._threads: Threads | None = None
        self._writer: Connection | None = None
        self._idle: deque[Connection] = deque()
        self._file: tuple[int, int] | None = None
        self._log_max = LOG_MAX

    async def open(self) -> None:
        """Make the file where there is none and bring it up to date; nothing where it is open already.

        Raises ConfigurationError, StorageUnavailable. Cancelled, it leaves nothing open.
        """
        async with self._life:
            if self._threads is not None:
                return
            threads = (
                ThreadPoolExecutor(1, thread_name_prefix="muniment-sqlite-writer"),
                ThreadPoolExecutor(READERS, thread_name_prefix="muniment-sqlite-reader"),
                ThreadPoolExecutor(1, thread_name_prefix="muniment-sqlite-beside"),
            )
            try:
                await _run(threads[0], self._start)
            except BaseException:
                await _apart(lambda: self._end(threads))
                raise
            self._threads = threads

    async def migrate(self) -> tuple[str, ...]:
        """The steps that bringing the file up to date took, with a connection of its own."""
        return await _apart(self._migrate)

    async def read(self, work: Work[T]) -> T:
        """What ``work`` reads in one snapshot. Raises StorageUnavailable, and what ``work`` raises."""
        until = time.monotonic() + self._wait
        return await _run(self._open_threads()[1], lambda: self._pooled("BEGIN", work, until))

    async def write(self, work: Work[T]) -> T:
        """What ``work`` returns, its changes committed; none of them where it raises. Raises as ``read``."""
        until = time.monotonic() + self._wait
        return await _run(self._open_threads()[0], lambda: self._writing(work, until))

    async def write_beside(self, work: Work[T]) -> T:
        """As ``write``, but on a thread of its own: while it waits for another process, no write waits for it."""
        until = time.monotonic() + self._wait
        return await _run(self._open_threads()[2], lambda: self._pooled(_TO_WRITE, work, until))

    async def close(self) -> None:
        """End what runs, then the threads and the connections."""
        async with self._life:
            threads, self._threads = self._threads, None
            if threads is not None:
                await _apart(lambda: self._end(threads))

    def _open_threads(self) -> Threads:
        if self._threads is None:
            raise StorageUnavailable(f"{self.path} is not open; open the storage first.")
        return self._threads

    def _start(self) -> None:
        self._writer, _ = self._connect_up_to_date()
        self._file = _file_at(self.path)

    def _migrate(self) -> tuple[str, ...]:
        connection, steps = self._connect_up_to_date()
        connection.close()
        return steps

    def _end(self, threads: Threads) -> None:
        for one in threads:
            one.shutdown()
        connections = [*self._idle, *([self._writer] if self._writer else [])]
        self._idle.clear()
        self._writer = self._file = None
        for connection in connections:
            connection.close()

    def _connect_up_to_date(self) -> tuple[Connection, tuple[str, ...]]:
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigurationError(
                f"This Python has SQLite {sqlite3.sqlite_version}, and storage sqlite: needs "
                f"{'.'.join(map(str, OLDEST))} or newer; use a newer Python."
            )
        prepare(self.path, data_dir=self._data_dir)
        try:
            connection = self._connect()
            try:
                version_of(connection, self.path)  # before another program's file is switched to a log
                self._use_log(connection)
                return connection, bring_up_to_date(connection, self.path)
            except BaseException:
                connection.close()
                raise
        except REPORTED as error:
            raise refusal(error, self.path, wait=self._wait) from error

    def _connect(self) -> Connection:
        """A connection to the file that is there; none is made, for it could be read by everybody."""
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw",
            uri=True,
            timeout=self._wait,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.row_factory = sqlite3.Row
            for setting in _SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def _use_log(self, connection: Connection) -> None:
        """Switch the file to a write-ahead log, so that reads and writes do not wait for each other."""
        until = time.monotonic() + self._wait
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                if mode != "wal":
                    raise ConfigurationError(
                        f"{self.path} is where SQLite can have no write-ahead log; name a file on a local disk."
                    )
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(_RETRY)

    def _pooled(self, begin: str, work: Work[T], until: float) -> T:
        try:
            self._check_file()
            connection = self._idle_one()
            try:
                _wait_until(connection, until)
                return self._transaction(connection, begin, work)
            finally:
                if _is_sound(connection):
                    self._idle.append(connection)
        except REPORTED as error:
            raise refusal(error, self.path, wait=self._wait) from error

    def _idle_one(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _writing(self, work: Work[T], until: float) -> T:
        """Write; another process is waited for until then, so that those who wait behind each other wait together."""
        try:
            self._check_file()
            connection = self._writer = self._writer or self._connect()
            try:
                _wait_until(connection, until)
                done = self._transaction(connection, _TO_WRITE, work)
            finally:
                if not _is_sound(connection):
                    self._writer = None
        except REPORTED as error:
            raise refusal(error, self.path, wait=self._wait) from error
        self._shorten_log(connection)
        return done

    def _check_file(self) -> None:
        """Raises StorageUnavailable where the path is no longer that of the file that was opened."""
        if _file_at(self.path) != self._file:
            raise replaced(self.path)

    def _transaction(self, connection: Connection, begin: str, work: Work[T]) -> T:
        connection.execute(begin)
        try:
            if begin == _TO_WRITE and connection.execute("PRAGMA user_version").fetchone()[0] != len(STEPS):
                version_of(connection, self.path)
            done = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        return done

    def _shorten_log(self, connection: Connection) -> None:
        """Begin the log anew once it is long. SQLite does so of its own accord only when nobody reads, and while
        searches overlap somebody always does; so readers are waited for, for a moment."""
        with suppress(OSError, sqlite3.Error):
            size = os.stat(f"{self.path}-wal").st_size
            if size <= self._log_max:
                return
            connection.execute(f"PRAGMA busy_timeout = {_LOG_WAIT_MS}")
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._log_max = 2 * size if busy else LOG_MAX


def _file_at(path: Path) -> tuple[int, int] | None:
    """What tells the file from any other that may be at its path; None where there is none."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _wait_until(connection: Connection, until: float) -> None:
    left = max(_LEAST, until - time.monotonic())
    connection.execute(f"PRAGMA busy_timeout = {round(1_000 * left)}")


def _is_sound(connection: Connection) -> bool:
    """Whether a connection can have another transaction; one that could not end its last is closed."""
    if connection.in_transaction:
        connection.close()
        return False
    return True


async def _run(threads: Executor, work: Callable[[], T], *, always: bool = False) -> T:
    """What ``work`` returns on one of ``threads``.

    Cancelled, it has ended, or it has not begun and never will; ``always`` rules the second out.
    """
    job = threads.submit(work)
    ended = asyncio.wrap_future(job)
    try:
        await asyncio.wait((ended,))
    except asyncio.CancelledError:
        if always or not job.cancel():
            await cancellation.over(ended)
        raise
    return ended.result()


async def _apart(work: Callable[[], T]) -> T:
    """What ``work`` returns on a thread of its own; it is done always."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="muniment-sqlite-life")
    try:
        return await _run(thread, work, always=True)
    finally:
        thread.shutdown()  # what it did has ended
