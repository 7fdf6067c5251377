"""Who uses the server of a data directory: one lock file for each process, beside the directory, and one for all.

A lock ends with the process that holds it, so one that was killed is not counted, whoever has its id now. Names are
drawn by lot because processes in different containers may have the same id. Where all users are killed, ``watch`` takes
their place: whoever begins to use the server sees to it that it watches.
"""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from muniment.errors import StorageUnavailable
from muniment_storage_postgres import directories, waiting, watch
from muniment_storage_postgres.waiting import Wait

_log = logging.getLogger(__name__)

_PATIENCE = 75.0
"""Seconds that a process waits for the lock in all; more than the start of a server may take."""

_TURN = 0.2
"""Seconds between two looks at whether the wait was given up."""

_FAREWELL = 5.0
"""Seconds that ``watch`` may take to notice that it has nothing left to watch."""


class Presence:
    """This process among those that use the server of ``directory``. ``beside`` is where the locks are."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.beside = directory.parent / f".{directory.name}-muniment"
        self._own: FileLock | None = None
        self.killed: list[int] = []
        """The processes that were killed as users, as ``others`` found by their files."""

    def begun(self) -> bool:
        """Whether a process of Muniment has ever locked this directory."""
        return self.beside.exists()

    @contextmanager
    def exclusive(self, given_up: threading.Event | None = None, patience: float | None = None) -> Generator[None]:
        """Only one process at a time starts, joins or leaves the server, and nothing that a killed one has begun goes
        on meanwhile. Raises StorageUnavailable, also once it was ``given_up``, and ConfigurationError."""
        directories.make(self.beside)
        lock, starting = self._lock(watch.EXCLUSIVE), self._lock(watch.STARTING)
        wait = Wait(_PATIENCE if patience is None else patience)
        self._acquire(lock, wait, given_up or threading.Event())
        try:
            self._acquire(starting, wait, given_up or threading.Event())
            starting.release()
            yield
        finally:
            lock.release()

    def enter(self) -> None:
        """Be counted, until ``leave`` or the end of this process, and watched. Only under ``exclusive``."""
        if self._own is None:
            own = self._lock(f"{watch.USER}{os.getpid()}-{secrets.token_hex(4)}")
            own.acquire(timeout=0)
            self._own = own
        if sys.platform != "win32" and not self._is_held(watch.WATCH):
            self._begin_to_watch()

    def leave(self) -> None:
        """Be counted no longer. Only under ``exclusive``, but for a process that cannot get it."""
        if self._own is not None:
            own, self._own = self._own, None
            own.release()
            with suppress(OSError):
                Path(own.lock_file).unlink()

    def others(self) -> tuple[int, ...]:
        """The process ids of the others that are counted, as their own systems number them; the files of those that
        were killed go. Only under ``exclusive``."""
        own = None if self._own is None else Path(self._own.lock_file)
        files = [file for file in self.beside.glob(f"{watch.USER}*") if file != own]
        alive = [_pid(file) for file in files if not self._is_dead(file)]
        return tuple(alive)

    def is_watched(self) -> bool:
        """Whether the server would be stopped if all its users were killed."""
        return self._is_held(watch.WATCH)

    def unwatched(self) -> None:
        """Wait until nobody watches any more, unless somebody has come to use the server. Not under ``exclusive``."""
        deadline = time.monotonic() + _FAREWELL
        while self._is_held(watch.WATCH) and time.monotonic() < deadline:
            if any(self.beside.glob(f"{watch.USER}*")):
                return
            time.sleep(0.01)

    def _begin_to_watch(self) -> None:
        command = (sys.executable, *watch.LIGHTLY, watch.__file__, str(self._directory), str(self.beside))
        null = subprocess.DEVNULL
        try:
            subprocess.run(
                command,
                stdin=null,
                stdout=null,
                stderr=null,
                cwd=self.beside.anchor,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(one) for one in sys.path if one)},
                start_new_session=True,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            _log.warning("the PostgreSQL in %s would go on if all its users were killed: %s", self._directory, error)

    def _is_dead(self, file: Path) -> bool:
        if self._is_held(file.name):
            return False
        with suppress(OSError):
            file.unlink()
            self.killed.append(_pid(file))
        return True

    def _is_held(self, name: str) -> bool:
        if not (self.beside / name).exists():
            return False
        lock = self._lock(name)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    def _acquire(self, lock: FileLock, wait: Wait, given_up: threading.Event) -> None:
        file = Path(lock.lock_file)
        while not self._taken(lock):
            if given_up.is_set():
                raise StorageUnavailable("The start of the storage was given up.")
            if wait.left < 0:
                raise self._kept(file)
            if wait.is_due:
                who = waiting.named(waiting.holders(file))
                wait.tell(f"{who}, which holds {file} to start or stop the PostgreSQL in {self._directory}")

    def _kept(self, file: Path) -> StorageUnavailable:
        holders = waiting.holders(file)
        who = waiting.named(holders)
        return StorageUnavailable(
            f"{who[0].upper()}{who[1:]} holds the lock {file} and does not release it, so the PostgreSQL in "
            f"{self._directory} cannot be used; {waiting.remedy(holders, file)} and try again, or choose another data "
            "directory."
        )

    def _taken(self, lock: FileLock) -> bool:
        try:
            lock.acquire(timeout=_TURN)
        except Timeout:
            return False
        except OSError as error:
            raise directories.unusable(self.beside, error) from error
        return True

    def _lock(self, name: str) -> FileLock:
        return FileLock(self.beside / name, mode=0o600, thread_local=False)


def _pid(file: Path) -> int:
    pid = file.name.split("-")[1]
    return int(pid) if pid.isdigit() else 0
