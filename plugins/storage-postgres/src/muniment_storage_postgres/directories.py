"""Where an embedded server may keep its data and its sockets: the checks that come before it starts.

Owns every refusal of a directory. As root the server runs as a system user of its own, and its package opens each
parent directory for that user; nobody's home may be opened so.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

from muniment.errors import ConfigurationError

_MAJOR = "18"
_SOCKET_MAX = 107
_OURS = {".handle_pids.json", "log"}


def check_place(directory: Path) -> None:
    """Raises ConfigurationError where no server may keep its data, whatever is there. Makes nothing."""
    if directory.exists() and not directory.is_dir():
        raise ConfigurationError(f"{directory} is a file, not a data directory; choose another data directory.")
    if _as_root():
        _check_as_root(directory)


def check_contents(directory: Path) -> None:
    """Raises ConfigurationError for a directory that holds something else, or somebody else's data.

    Only under the lock of the directory: while another process makes it, it looks like neither.
    """
    try:
        entries = {entry.name for entry in directory.iterdir()} if directory.exists() else set[str]()
    except OSError as error:
        raise foreign(directory) from error
    version = directory / "PG_VERSION"
    if version.exists():
        _check_version(directory, version)
    elif entries - _OURS:
        raise ConfigurationError(
            f"{directory} holds other files and no PostgreSQL data; choose another data directory, or an empty one."
        )


def make(directory: Path) -> None:
    """Make a private directory, and the parents that are not there. Raises ConfigurationError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except PermissionError as error:
        raise foreign(directory.parent) from error
    except OSError as error:
        raise ConfigurationError(
            f"{directory} cannot be made ({error.strerror}); choose another data directory."
        ) from error


def foreign(directory: Path) -> ConfigurationError:
    """A directory that belongs to somebody else."""
    return ConfigurationError(
        f"{directory} cannot be used by this user (permission denied); choose another data directory, or run as the "
        "user that owns it."
    )


def private_runtime() -> Path:
    """A directory for sockets and lock files that no other user can enter; made if it is not there."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    candidate = Path(given) if given else None
    if candidate is None or not _is_private(candidate):
        name = f"muniment-{os.getuid()}" if sys.platform != "win32" else "muniment"
        candidate = Path(tempfile.gettempdir()) / name
        candidate.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(candidate):
            raise ConfigurationError(
                f"{candidate} does not belong to this user alone; remove it, or set XDG_RUNTIME_DIR to a directory "
                "that only this user can enter."
            )
    (candidate / "python_PostgresServer").mkdir(mode=0o700, exist_ok=True)
    return candidate


def _is_private(directory: Path) -> bool:
    if sys.platform == "win32":
        return directory.is_dir()
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _check_version(directory: Path, version: Path) -> None:
    try:
        major = version.read_text().strip()
    except OSError as error:
        raise foreign(directory) from error
    if major != _MAJOR:
        raise ConfigurationError(
            f"{directory} was made by PostgreSQL {major}, and this release embeds {_MAJOR}; choose another data "
            f"directory, or move the data with pg_dump and pg_restore."
        )
    if sys.platform != "win32" and not _as_root() and directory.stat().st_uid != os.getuid():
        raise foreign(directory)


def _as_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


def _check_as_root(directory: Path) -> None:
    for home in _homes():
        if directory.is_relative_to(home):
            raise ConfigurationError(
                f"As root, an embedded PostgreSQL would open {home} to every user of this machine; choose another "
                "data directory, such as /var/lib/muniment, or run as an ordinary user."
            )
    if len(os.fsencode(directory / ".s.PGSQL.5432")) > _SOCKET_MAX:
        raise ConfigurationError(
            f"{directory} is too long for the socket of an embedded PostgreSQL that root starts; choose a data "
            f"directory of at most {_SOCKET_MAX - len('/.s.PGSQL.5432')} bytes."
        )


def _homes() -> set[Path]:
    """The homes of root and of people; system users' lie in /var and the like, where data may be."""
    if sys.platform == "win32":
        return set()
    import pwd

    people = {Path(entry.pw_dir) for entry in pwd.getpwall() if entry.pw_uid == 0 or entry.pw_uid >= 1000}
    homes = {home for home in people if home.is_dir() and len(home.parts) > 1 and home.parts[1] not in ("var", "tmp")}
    return homes | {Path("/root"), Path("/home")}
