"""Who uses the server of a data directory: one lock file for each process, beside the directory, and one for all.

A lock ends with the process that holds it, so one that was killed is not counted, whoever has its id now. Names are
drawn by lot because processes in different containers may have the same id.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from muniment.errors import StorageUnavailable
from muniment_storage_postgres import directories

_log = logging.getLogger(__name__)

_PROMPT = 2.0
"""Seconds after which a wait for the lock is told."""

_PATIENCE = 45.0
"""Seconds that a process waits for the lock in all."""

_TURN = 0.2
"""Seconds between two looks at whether the wait was given up."""

_USER = "user-"


class Presence:
    """This process among those that use the server of ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._beside = directory.parent / f".{directory.name}-muniment"
        self._own: FileLock | None = None

    def begun(self) -> bool:
        """Whether a process of Muniment has ever locked this directory."""
        return self._beside.exists()

    @contextmanager
    def exclusive(self, given_up: threading.Event | None = None) -> Generator[None]:
        """Only one process at a time starts, joins or leaves the server. Raises StorageUnavailable, also once it was
        ``given_up``, and ConfigurationError."""
        directories.make(self._beside)
        lock = self._lock("lock")
        try:
            self._acquire(lock, given_up or threading.Event())
        except PermissionError as error:
            raise directories.foreign(self._directory) from error
        except OSError as error:
            raise StorageUnavailable(
                f"The lock {lock.lock_file} cannot be made ({error.strerror}); free space on its volume, or choose "
                "another data directory."
            ) from error
        try:
            yield
        finally:
            lock.release()

    def enter(self) -> None:
        """Be counted, until ``leave`` or the end of this process. Only under ``exclusive``."""
        if self._own is None:
            own = self._lock(f"{_USER}{os.getpid()}-{secrets.token_hex(4)}")
            own.acquire(timeout=0)
            self._own = own

    def leave(self) -> None:
        """Be counted no longer. Only under ``exclusive``."""
        if self._own is not None:
            own, self._own = self._own, None
            own.release()
            with suppress(OSError):
                Path(own.lock_file).unlink()

    def others(self) -> bool:
        """Whether another process is counted; the files of those that were killed go. Only under ``exclusive``."""
        own = None if self._own is None else Path(self._own.lock_file)
        held = [self._held(file) for file in self._beside.glob(f"{_USER}*") if file != own]
        return any(held)

    def _held(self, file: Path) -> bool:
        lock = self._lock(file.name)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        with suppress(OSError):
            file.unlink()
        return False

    def _acquire(self, lock: FileLock, given_up: threading.Event) -> None:
        begun, told = time.monotonic(), False
        while not _taken(lock):
            waited = time.monotonic() - begun
            if given_up.is_set():
                raise StorageUnavailable("The start of the storage was given up.")
            if waited > _PATIENCE:
                raise StorageUnavailable(
                    f"Another process has held the lock {lock.lock_file} for over {_PATIENCE:g} seconds, so the "
                    f"PostgreSQL in {self._directory} cannot be used; end that process (`fuser {lock.lock_file}` names "
                    "it) and try again, or choose another data directory."
                )
            if waited > _PROMPT and not told:
                told = True
                _log.warning(
                    "waiting for another process to release %s, at most %g s: it is starting or stopping the "
                    "PostgreSQL in %s",
                    lock.lock_file,
                    _PATIENCE,
                    self._directory,
                )

    def _lock(self, name: str) -> FileLock:
        return FileLock(self._beside / name, mode=0o600, thread_local=False)


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=_TURN)
    except Timeout:
        return False
    return True
