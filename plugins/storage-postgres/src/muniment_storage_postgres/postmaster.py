"""The PostgreSQL that works in a data directory, as its lock files and the system's processes tell.

Owns whether one lives, whether it was started by Muniment, how it is ended, and what a killed one leaves behind. The
number of a process alone is never believed: it may be another's since. Nothing here starts one.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from muniment.errors import ConfigurationError
from muniment_storage_postgres.waiting import Wait
from muniment_storage_postgres.watch import PID_FILE

_log = logging.getLogger(__name__)

PORT = 5432
"""The number in the socket's name; nothing listens on a network."""

SOCKET = f".s.PGSQL.{PORT}"

_PID, _STARTED, _SOCKET_DIRECTORY, _HOST, _MEMORY, _STATUS = 0, 2, 4, 5, 6, 7
"""Lines of ``postmaster.pid``; the last ones are written some moments after the first ones."""

_NOBODY = "2147483646"
"""A process id that no system gives."""

_SAME_TIME = 10.0
"""Seconds by which a server's own note of its start may differ from the system's."""

_STATE_AT, _SHUT_DOWN = 16, (1, 2)
"""Where ``pg_control`` holds the state of the data, in bytes, and the states after a shutdown (``pg_control.h``)."""

_FAST, _IMMEDIATE, _GONE = 60.0, 10.0, 10.0
"""Seconds that a shutdown may take before a harder one, and that the last of its processes may take to follow; after an
immediate one the next start recovers."""


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
    if pid is None or not _is_server(pid, directory, _line(lines, _STARTED)):
        return None
    sockets = _line(lines, _SOCKET_DIRECTORY)
    elsewhere = bool(_line(lines, _HOST)) or (bool(sockets) and _pid(_read(_socket_lock(directory))) != pid)
    return Postmaster(pid, ours=sys.platform == "win32" or not elsewhere, ready=_line(lines, _STATUS) == "ready")


def noted(directory: Path) -> int | None:
    """The process that a server noted in ``directory``, whether or not it lives; None where none has, or nobody's."""
    lines = _lines(directory)
    return None if _line(lines, _PID) == _NOBODY else _pid(lines)


def was_shut_down(directory: Path) -> bool:
    """Whether a server that is gone has ended in peace, so that there is nothing to recover."""
    with suppress(OSError, struct.error):
        (state,) = struct.unpack_from("=i", (directory / "global" / "pg_control").read_bytes(), _STATE_AT)
        return state in _SHUT_DOWN and not (directory / PID_FILE).exists()
    return not (directory / PID_FILE).exists()


def of_deleted(directory: Path) -> tuple[int, ...]:
    """The servers that Muniment started at this path in a directory that was deleted since. What they are still asked
    to write is lost; they notice it themselves within a minute."""
    place = f"{directory} (deleted)"
    return tuple(pid for pid in _processes(lambda process: _cwd(process) == place) if _is_first(pid))


def end_of_deleted(directory: Path) -> tuple[int, ...]:
    """End the servers of ``of_deleted`` as they would end themselves; which."""
    found = of_deleted(directory)
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGQUIT)
    _within(_IMMEDIATE, lambda: not set(found) & set(of_deleted(directory)), f"processes {found} to end")
    return found


def check_ours(directory: Path) -> None:
    """Raises ConfigurationError where a server lives in ``directory`` that somebody else started."""
    found = running(directory)
    if found is not None and not found.ours:
        raise ConfigurationError(
            f"A PostgreSQL that Muniment did not start already runs in {directory}, as process {found.pid}; stop it "
            f"(`kill -INT {found.pid}`), set storage to its postgresql:// URL, or choose another data directory."
        )


def clear_remains(directory: Path, given: Path) -> None:
    """Let the lock files of a server that is gone keep nobody from starting one, where ``running`` found none.

    Neither the package nor PostgreSQL recognises them where the process id was given to another process, or stays as a
    zombie because nobody waits for it. The note of the server's shared memory is kept, by which PostgreSQL itself sees
    what is left of it. ``given`` is a path to the directory that is short enough for a socket's.

    Raises StillDying while a process of the old server lives, since its memory must be gone first, and
    ConfigurationError for a server that answers and is not among the processes here.
    """
    living = _processes_in(directory)
    if living:
        raise StillDying(f"processes {sorted(living)} of a killed server are still running")
    pid_file = directory / PID_FILE
    lines = _lines(directory)
    if lines and _answers(given / SOCKET):
        raise ConfigurationError(
            f"A PostgreSQL that cannot be seen from here runs in {directory}, probably in another container that has "
            "the same volume; stop what uses it there, or choose another data directory."
        )
    if pid_file.exists():
        if len(_line(lines, _MEMORY).split()) == 2 and _pid(lines) is not None:
            told = [*lines, *[""] * (_STATUS + 1 - len(lines))]
            told[_PID] = _NOBODY
            pid_file.write_text("\n".join(told) + "\n", "utf-8")
        else:
            _log.warning("%s is damaged and no PostgreSQL runs there; it is removed", pid_file)
            pid_file.unlink()
    _socket_lock(directory).unlink(missing_ok=True)


def stop(directory: Path) -> None:
    """Shut down the server that Muniment started in ``directory``, and wait until it is gone. Not for Windows."""
    found = running(directory)
    end_of_deleted(directory)
    if found is not None and found.ours and not _ended(found, directory):
        _log.error("the PostgreSQL in %s, process %d, does not end; end it by hand", directory, found.pid)
    # Of a server that was killed before, the other processes notice it in a moment.
    last = f"the last processes of the PostgreSQL in {directory}"
    _within(_GONE, lambda: running(directory) is not None or not _processes_in(directory), last)


def _ended(found: Postmaster, directory: Path) -> bool:
    for number, patience in ((signal.SIGINT, _FAST), (signal.SIGQUIT, _IMMEDIATE)):
        with suppress(ProcessLookupError):
            os.kill(found.pid, number)
        whom = f"process {found.pid}, the PostgreSQL in {directory}, to shut down"
        if _within(patience, lambda: (now := running(directory)) is None or now.pid != found.pid, whom):
            return True
    return False


def _within(patience: float, condition: Callable[[], bool], whom: str) -> bool:
    wait = Wait(patience)
    while not condition():
        if wait.left < 0:
            return False
        if wait.is_due:
            wait.tell(whom)
        time.sleep(0.02)
    return True


def _lines(directory: Path) -> list[str]:
    return _read(directory / PID_FILE)


def _line(lines: Sequence[str], number: int) -> str:
    return lines[number].strip() if len(lines) > number else ""


def _socket_lock(directory: Path) -> Path:
    return directory / f"{SOCKET}.lock"


def _read(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def _pid(lines: Sequence[str]) -> int | None:
    first = _line(lines, _PID)
    return int(first) if first.isascii() and first.isdigit() and len(first) < 20 and int(first) > 0 else None


def _answers(place: Path) -> bool:
    """Whether somebody listens on a socket."""
    if sys.platform == "win32":
        return False
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.settimeout(5)
        client.connect(str(place))
        return True
    return False


def _is_server(pid: int, directory: Path, started: str) -> bool:
    """Whether a process is the server that noted its id and the second of its start."""
    try:
        process = psutil.Process(pid)
        if not _is_postgres(process.name()):
            return False
        try:
            return Path(process.cwd()) == directory
        except psutil.AccessDenied:
            # Root in a container may not see where another account's process works.
            return started.isdigit() and abs(process.create_time() - int(started)) < _SAME_TIME
    except psutil.Error:
        return False


def _processes_in(directory: Path) -> set[int]:
    """The PostgreSQL processes that are seen to work in a data directory."""
    return _processes(lambda process: _cwd(process) == str(directory))


def _processes(condition: Callable[[psutil.Process], bool]) -> set[int]:
    found: set[int] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if _is_postgres(process.name()) and condition(process):
                found.add(process.pid)
    return found


def _cwd(process: psutil.Process) -> str:
    """Where a process works; the system marks a directory that was deleted, and psutil hides that."""
    return os.readlink(f"/proc/{process.pid}/cwd") if sys.platform == "linux" else process.cwd()


def _is_first(pid: int) -> bool:
    """Whether a process is a server as the package starts it, with its socket in its data; the others are its own."""
    with suppress(psutil.Error, ValueError, IndexError):
        command = psutil.Process(pid).cmdline()
        return command[command.index("-D") + 1] == command[command.index("-k") + 1]
    return False


def _is_postgres(name: str) -> bool:
    return name.removesuffix(".exe") == "postgres"
