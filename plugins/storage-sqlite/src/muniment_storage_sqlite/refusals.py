"""What SQLite reports, as the refusals of Muniment: each names the file and the remedy."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from muniment.errors import ConfigurationError, MunimentError, StorageUnavailable

_PRIMARY = 0xFF
"""The bits of a result code without its details."""


def refusal(error: sqlite3.Error, path: Path, *, wait: float) -> MunimentError:
    """The refusal for an error of SQLite at ``path``, where a locked database is waited for ``wait`` seconds."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageUnavailable(
            f"{path} was locked by another process for more than {wait:g} s; try again, or end that process. The "
            "option busy_timeout of [plugins.storage-sqlite] says how long to wait."
        )
    if code == sqlite3.SQLITE_FULL:
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
