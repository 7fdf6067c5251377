"""Waits until nobody uses a data directory's server any more, and has it stopped then; run as a script.

A process that is killed cannot stop the server that it was the last to use; this one does. It sleeps in the lock of one
user after the other, and imports nothing but what Python itself has, so it costs next to nothing. When nothing is left
to stop it leaves. There is one for a data directory: whoever begins to use the server starts it where it is not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

WATCH, EXCLUSIVE, STARTING, USER = "watch", "lock", "starting", "user-"
"""Locks beside the data directory: this process's, whoever starts, joins or leaves, what starts a server, and, as the
beginning of their names, each user's."""

MAKING, PID_FILE = ".making-", "postmaster.pid"
"""How the names of data that are still being made begin, in the data directory, and what a server leaves in its own."""

LIGHTLY = ("-I", "-S")
"""Python's flags for this script: nothing that is installed is looked for."""


def main(directory: str, beside: str, held: str = "") -> None:
    """Watch in a process that belongs to nobody, and return at once, also where another process watches already; with
    the descriptor of a lock that is ``held`` already, watch in this one."""
    if held:
        watch(int(held), directory, beside)
        return
    mine = os.open(os.path.join(beside, WATCH), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(mine, wait=False)
    except OSError:
        return
    if os.fork() == 0:
        # The lock is this process's too, and stays with it.
        watch(mine, directory, beside)


def watch(mine: int, directory: str, beside: str) -> None:
    """Sleep while there are users; then leave, or become what stops the server. ``mine`` is the lock's descriptor."""
    gone: set[str] = set()
    try:
        while True:
            for user in _users(beside) - gone:
                _outlive(os.path.join(beside, user))
                gone.add(user)
            with _held(beside, EXCLUSIVE), _held(beside, STARTING):
                if _users(beside) - gone:
                    continue
                if not _servers(directory):
                    os.close(mine)
                    return
            break
    except FileNotFoundError:
        return  # the directory was removed
    os.set_inheritable(mine, True)
    command = (sys.executable, "-P", "-m", "muniment_storage_postgres.farewell", directory, beside, str(mine))
    os.execv(sys.executable, command)


def _users(beside: str) -> set[str]:
    return {name for name in os.listdir(beside) if name.startswith(USER)}


def _servers(directory: str) -> bool:
    """Whether a server may run in the data directory, or in data that are still being made below it."""
    places = [directory, *(entry.path for entry in os.scandir(directory) if entry.name.startswith(MAKING))]
    return any(_may_live(os.path.join(place, PID_FILE)) for place in places)


def _may_live(pid_file: str) -> bool:
    """Whether there is a process with the number that a server noted; whose it is, is looked at by what stops it."""
    try:
        with open(pid_file, "rb") as file:
            os.kill(int(file.readline()), 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True


def _outlive(file: str) -> None:
    """Wait until whoever holds a lock is gone."""
    try:
        opened = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        _lock(opened, shared=True)
    finally:
        os.close(opened)


def _lock(opened: int, *, shared: bool = False, wait: bool = True) -> None:
    import fcntl  # not there on Windows, where only the names above are used

    fcntl.flock(opened, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


@contextmanager
def _held(beside: str, name: str) -> Generator[None]:
    """A lock, taken as the others take it, but never made: where it is gone, so is what it was for."""
    flags = os.O_RDWR | (os.O_CREAT if name == STARTING else 0)
    opened = os.open(os.path.join(beside, name), flags, 0o600)
    try:
        _lock(opened)
        yield
    finally:
        os.close(opened)


if __name__ == "__main__":
    main(*sys.argv[1:])
