"""How a data directory comes to be: whole, or not at all, whoever is killed meanwhile.

PostgreSQL's data are made in a directory below, under a name that is used once, and moved up when a server has run in
them and stopped. ``PG_VERSION`` moves last, so where it is there the data are whole. Nothing is removed but what was
made here.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from muniment_storage_postgres import directories, postmaster
from muniment_storage_postgres.directories import MADE, VERSION
from muniment_storage_postgres.watch import MAKING


def is_made(directory: Path) -> bool:
    """Whether the data are whole."""
    return (directory / VERSION).exists()


def make(directory: Path, start: Callable[[Path], object], stop: Callable[[Path], None]) -> None:
    """Make the data, or finish what was begun. Only under the lock of the directory, where nothing else is in it.

    ``start`` makes a server in a directory and starts it, ``stop`` stops it; what they raise is raised.
    """
    directories.make(directory)
    made = directory / MADE
    if not made.exists():
        abandon(directory, stop)
        making = directory / f"{MAKING}{secrets.token_hex(4)}"
        directories.make(making)
        try:
            start(making)
            _end(making, stop)
            if postmaster.running(making) is not None:
                raise postmaster.StillDying(f"the first server in {making} does not end")
            making.rename(made)
        except BaseException:
            with suppress(Exception):
                abandon(directory, stop)
            raise
    _move_up(made, directory)


def abandon(directory: Path, stop: Callable[[Path], None]) -> None:
    """Stop what runs in data that were never finished, and remove them."""
    for begun in directory.glob(f"{MAKING}*"):
        _end(begun, stop)
        shutil.rmtree(begun, ignore_errors=True)


def _end(making: Path, stop: Callable[[Path], None]) -> None:
    stop(making)
    directories.forget(making)


def _move_up(made: Path, directory: Path) -> None:
    for entry in made.iterdir():
        if entry.name != VERSION:
            entry.replace(directory / entry.name)
    directory.chmod(0o700)
    _settle(directory)
    (made / VERSION).replace(directory / VERSION)
    made.rmdir()
    _settle(directory)


def _settle(directory: Path) -> None:
    """Let the names in a directory outlive a power cut."""
    if sys.platform == "win32":
        return
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
