"""Why a server does not start, in a sentence with the remedy: from its log, and from what its programs said."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from muniment.errors import ConfigurationError, MunimentError, StorageUnavailable
from muniment_storage_postgres import directories, waiting
from muniment_storage_postgres.directories import LOG

STILL_THERE = "pre-existing shared memory block"
"""What PostgreSQL says while processes of a killed server live."""

_ROOM = 64 * 1024 * 1024
"""Bytes that a new data directory needs; with less, a start that failed is put down to the full disk."""

_TAIL = 4000
"""Bytes of the log that are looked at."""

_WORDS = re.compile(r"(?:FATAL|PANIC|ERROR|error):\s*(.+)")


def log_size(directory: Path) -> int:
    """Where the log ends now, in bytes."""
    with suppress(OSError):
        return (directory / LOG).stat().st_size
    return 0


def logged(directory: Path, begin: int) -> str:
    """What the server has logged since its log was ``begin`` bytes long, or the end of that."""
    with suppress(OSError), (directory / LOG).open("rb") as log:
        log.seek(max(begin, log_size(directory) - _TAIL))
        return log.read().decode("utf-8", "replace")
    return ""


def check_room(directory: Path) -> None:
    """Raises StorageUnavailable where a server in use will soon have no room."""
    free = _free_bytes(directory)
    if free < _ROOM:
        raise StorageUnavailable(
            f"The volume of {directory} has {free / 1e6:.0f} MB left, and a full one refuses writes; free space on it."
        )


def refusal(directory: Path, said: str) -> MunimentError:
    """The sentence for what was ``said``, by the log since the start began, or by what should have started a server."""
    for words, of in _OF_WORDS.items():
        if re.search(words, said):
            return of(directory)
    if _free_bytes(directory) < _ROOM:
        return directories.full(directory)
    log = directory / LOG
    look = f"look at {log}" if log.exists() else "there is no log yet; run muniment doctor"
    return StorageUnavailable(
        f"The PostgreSQL in {directory} does not start ({_last_word(said) or 'it gave no reason'}); {look}, or choose "
        "another data directory."
    )


def recovering(directory: Path, seconds: float) -> StorageUnavailable:
    """A server that is there and not ready."""
    return StorageUnavailable(
        f"The PostgreSQL in {directory} is still recovering what was written before it was killed, after {seconds:.0f} "
        "seconds; it goes on by itself: try again in a while."
    )


def dying(directory: Path, what: Exception) -> StorageUnavailable:
    """A server that was killed and is not gone."""
    return StorageUnavailable(f"The PostgreSQL in {directory} cannot start: {what}; end them.")


def silent(directory: Path, pid: int) -> StorageUnavailable:
    """A server that is there, and takes no connection."""
    how = f"let it go on (`kill -CONT {pid}`)" if waiting.is_stopped(pid) else f"end it (`kill -QUIT {pid}`)"
    return StorageUnavailable(
        f"The PostgreSQL in {directory}, {waiting.named([pid])}, does not answer; {how} and try again."
    )


def _damaged_control(directory: Path) -> MunimentError:
    return ConfigurationError(
        f"{directory / 'global' / 'pg_control'} is damaged or missing, without which PostgreSQL cannot know its data; "
        "restore the directory from a backup, or choose another data directory."
    )


def _damaged_log(directory: Path) -> MunimentError:
    return ConfigurationError(
        f"What the PostgreSQL in {directory} wrote last cannot be read ({directory / 'pg_wal'} is damaged or "
        "incomplete); restore the directory from a backup, or choose another data directory. Copy it before anybody "
        "tries pg_resetwal on it."
    )


def _other_build(directory: Path) -> MunimentError:
    return ConfigurationError(
        f"{directory} was made by a PostgreSQL of another build or another kind of machine, or its global/pg_control "
        "is damaged; open it where it was made and move the data with pg_dump and pg_restore, restore it from a "
        "backup, or choose another data directory."
    )


def _shared_memory(directory: Path) -> MunimentError:
    return StorageUnavailable(
        f"The PostgreSQL in {directory} gets no shared memory; free space in /dev/shm, or give the container more "
        "(--shm-size), and try again."
    )


def _memory(directory: Path) -> MunimentError:
    return StorageUnavailable(
        f"The PostgreSQL in {directory} gets no memory; end other programs, or give this machine more, and try again."
    )


def _files(directory: Path) -> MunimentError:
    return StorageUnavailable(
        f"The PostgreSQL in {directory} may not open more files; raise the limit (ulimit -n) and try again."
    )


_OF_WORDS: Mapping[str, Callable[[Path], MunimentError]] = {
    "shared memory segment.*No space left": _shared_memory,
    "No space left on device|Disk quota exceeded": directories.full,
    "Read-only file system": directories.read_only,
    "ermission denied|wrong ownership": directories.foreign,
    r"control file|pg_control|could not find the database system": _damaged_control,
    "database files are incompatible": _other_build,
    "checkpoint record|pg_wal|could not locate required|WAL file": _damaged_log,
    "[Oo]ut of memory|Cannot allocate memory": _memory,
    "Too many open files": _files,
}
"""In the order in which they are looked for: a cause comes before what it leads to."""


def _free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory if directory.exists() else directory.parent).free


def _last_word(said: str) -> str:
    """What is said last about why it ended, and of a file with errors the error."""
    lines = [line.strip() for line in said.splitlines() if line.strip(" -")]
    for before, line in reversed(list(zip(["", *lines], lines, strict=False))):
        if found := _WORDS.search(line):
            error = before.partition("LOG:")[2].strip() if "contains errors" in line else ""
            return error or found[1].strip()
    return lines[-1] if lines else ""
