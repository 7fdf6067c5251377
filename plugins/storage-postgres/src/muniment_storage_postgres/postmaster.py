"""The PostgreSQL that works in a data directory, as its lock files and the system's processes tell.

Owns whether one lives, whether it was started by Muniment, how it is ended, and what a killed one leaves behind.
Nothing here starts one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from muniment.errors import ConfigurationError

_log = logging.getLogger(__name__)

PORT = 5432
"""The number in the socket's name; nothing listens on a network."""

_SOCKET_LOCK = f".s.PGSQL.{PORT}.lock"
_SOCKET_DIRECTORY, _HOST, _STATUS = 4, 5, 7
"""Lines of ``postmaster.pid``; they are written some moments after the first ones."""

_FAST, _IMMEDIATE = 60.0, 10.0
"""Seconds that a shutdown may take before a harder one; after an immediate one the next start recovers."""


class StillDying(Exception):
    """A server was killed and is not quite gone."""


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A live server. It is ``ours`` unless it listens elsewhere than a server of Muniment's does, and ``ready`` once it
    has recovered and until it shuts down."""

    pid: int
    ours: bool
    ready: bool


def running(directory: Path) -> Postmaster | None:
    """The server that lives in ``directory``, which must be a resolved path."""
    lines = _lines(directory)
    pid = _pid(lines)
    if pid is None or not _lives(pid, directory):
        return None
    sockets, host, status = (
        lines[line].strip() if len(lines) > line else "" for line in (_SOCKET_DIRECTORY, _HOST, _STATUS)
    )
    elsewhere = bool(host) or (bool(sockets) and _pid(_read(directory / _SOCKET_LOCK)) != pid)
    return Postmaster(pid, ours=sys.platform == "win32" or not elsewhere, ready=status == "ready")


def check_ours(directory: Path) -> None:
    """Raises ConfigurationError where a server lives in ``directory`` that somebody else started."""
    found = running(directory)
    if found is not None and not found.ours:
        raise ConfigurationError(
            f"A PostgreSQL that Muniment did not start already runs in {directory}, as process {found.pid}; stop it "
            f"(`kill -INT {found.pid}`), set storage to its postgresql:// URL, or choose another data directory."
        )


def clear_remains(directory: Path) -> None:
    """Remove the lock files of a server that is gone, which neither the package nor PostgreSQL recognises where the
    process id was given to another process, or stays as a zombie because nobody waits for it.

    Raises StillDying while a process of the old server lives, since its memory must be gone first, and
    ConfigurationError for a damaged lock file of which this system does not tell whether it may go.
    """
    pid_file = directory / "postmaster.pid"
    lines = _lines(directory)
    living = _processes_in(directory)
    damaged = bool(lines) and _pid(lines) is None
    if living is None:
        if damaged:
            raise ConfigurationError(
                f"{pid_file} is damaged, so whether a PostgreSQL runs there cannot be known; if none does, remove it."
            )
        return
    if _pid(lines) in living:
        return
    if living:
        raise StillDying(f"processes {sorted(living)} of a killed server are still running")
    if damaged:
        _log.warning("%s is damaged and no PostgreSQL runs there; it is removed", pid_file)
    sockets = {directory, *(Path(line) for line in lines[_SOCKET_DIRECTORY:_HOST] if line and not damaged)}
    for leftover in (pid_file, *(place / _SOCKET_LOCK for place in sockets)):
        leftover.unlink(missing_ok=True)


def stop(directory: Path) -> None:
    """Shut down the server that Muniment started in ``directory``, and wait until it is gone. Not for Windows."""
    found = running(directory)
    if found is None or not found.ours:
        return
    for number, patience in ((signal.SIGINT, _FAST), (signal.SIGQUIT, _IMMEDIATE)):
        with suppress(ProcessLookupError):
            os.kill(found.pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            now = running(directory)
            if now is None or now.pid != found.pid:
                return
            time.sleep(0.02)
    _log.error("the PostgreSQL in %s, process %d, does not end; end it by hand", directory, found.pid)


def _lines(directory: Path) -> list[str]:
    return _read(directory / "postmaster.pid")


def _read(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def _pid(lines: list[str]) -> int | None:
    first = lines[0].strip() if lines else ""
    return int(first) if first.isascii() and first.isdigit() and len(first) < 20 and int(first) > 0 else None


def _lives(pid: int, directory: Path) -> bool:
    if sys.platform == "win32":
        return True
    living = _processes_in(directory)
    if living is not None:
        return pid in living
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _processes_in(directory: Path) -> set[int] | None:
    """The PostgreSQL processes that work in a data directory; None where this system does not tell."""
    if not Path("/proc/self/cwd").exists():
        return None
    found: set[int] = set()
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            there = process.name.isdigit() and (process / "cwd").readlink() == directory
            if there and (process / "comm").read_bytes().strip() == b"postgres":
                found.add(int(process.name))
    return found
