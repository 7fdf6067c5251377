"""What SQLite reports, as the refusals of Muniment: each names the file and the remedy."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Final, TypeAlias

from muniment.errors import ConfigurationError, MunimentError, StorageUnavailable

Reported: TypeAlias = sqlite3.Error | UnicodeDecodeError | json.JSONDecodeError
REPORTED: Final = (sqlite3.Error, UnicodeDecodeError, json.JSONDecodeError)
"""What reading a file may raise. Python's module decodes texts, and what SQLite says of damaged ones, as UTF-8."""
_PRIMARY = 0xFF
"""The bits of a result code without its details."""


def refusal(error: Reported, path: Path, *, wait: float) -> MunimentError:
    """The refusal for what was ``REPORTED`` at ``path``, where a locked database is waited for ``wait`` seconds."""
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    code = extended & _PRIMARY if isinstance(error, sqlite3.Error) else sqlite3.SQLITE_CORRUPT
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageUnavailable(
            f"{path} was locked by another process for more than {wait:g} s; try again, or end that process. The "
            "option busy_timeout of [plugins.storage-sqlite] says how long to wait."
        )
    if code == sqlite3.SQLITE_FULL or extended == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StorageUnavailable(f"{path} cannot grow, its disk is full; free space there. Nothing was written.")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return StorageUnavailable(
            f"{path} cannot be written ({error}); let this user write it and its directory, where SQLite keeps its log."
        )
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return ConfigurationError(
            f"{path} is no SQLite database, or a damaged one ({error}); name another file, or restore it from a backup."
        )
    return StorageUnavailable(f"SQLite failed at {path} ({error}); check the disk, and try again.")


def replaced(path: Path) -> StorageUnavailable:
    """The refusal where another file, or none, is at ``path`` since it was opened."""
    return StorageUnavailable(
        f"{path} was removed or replaced while it was open, and what is written now would be lost; put it back, or "
        "restart what has it open."
    )
