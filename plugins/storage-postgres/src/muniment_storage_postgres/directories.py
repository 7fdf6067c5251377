"""Where an embedded server may keep its data and its sockets: the checks that come before it starts.

Owns every refusal of a directory, and the path by which a directory is given to PostgreSQL. As root the server runs as
an account of its own, and its package opens each parent directory for that account and gives it the data directory;
nobody's home may be opened so, and nobody's data taken.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from muniment.errors import ConfigurationError, MunimentError, StorageUnavailable
from muniment_storage_postgres import accounts
from muniment_storage_postgres.postmaster import SOCKET
from muniment_storage_postgres.watch import MAKING
from muniment_storage_postgres.wheel import HANDLES, MAJOR, SYSTEM_USER

VERSION = "PG_VERSION"
"""The file by which a directory is known to hold PostgreSQL's data, and whose."""

MADE = ".made"
"""Where data lie that were made, until all of them are moved up."""

LOG = "log"

_SOCKET_MAX = 103
_OURS = {HANDLES, LOG, MADE}
_PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")
"""Paths that mean themselves to a shell, and in PostgreSQL's lists of directories."""

_OPEN = stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH


def check_place(directory: Path) -> None:
    """Raises ConfigurationError where no server may keep its data, whatever is there. Makes nothing."""
    if _is_there(directory) and not directory.is_dir():
        raise ConfigurationError(f"{directory} is a file, not a data directory; choose another data directory.")
    above = next(one for one in directory.parents if _is_there(one))
    if not above.is_dir():
        raise ConfigurationError(f"{above} is a file, so {directory} cannot be in it; choose another data directory.")
    if accounts.is_root():
        _check_homes(directory)
    if sys.platform != "win32":
        _check_owners(directory)


def check_contents(directory: Path) -> None:
    """Raises ConfigurationError for a directory that holds something else, or that PostgreSQL would refuse, and
    StorageUnavailable for one that cannot be read.

    Only under the lock of the directory: while another process makes it, it looks like neither.
    """
    try:
        entries = {entry.name for entry in directory.iterdir()} if directory.exists() else set[str]()
        made_by = (directory / VERSION).read_text("utf-8", "replace").strip() if VERSION in entries else None
    except OSError as error:
        raise unusable(directory, error) from error
    if made_by is not None:
        _check_version(directory, made_by)
        _check_mode(directory)
    elif MADE not in entries and any(entry not in _OURS and not entry.startswith(MAKING) for entry in entries):
        raise ConfigurationError(
            f"{directory} holds other files and no PostgreSQL data; choose another data directory, or an empty one."
        )


def make(directory: Path) -> None:
    """Make a private directory, and the parents that are not there. Raises ConfigurationError, StorageUnavailable."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(directory, error) from error


def unusable(place: Path, error: OSError) -> MunimentError:
    """Why something at a place cannot be made, read or locked, with what to do."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return foreign(place)
    if error.errno == errno.EROFS:
        return read_only(place)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full(place)
    reason = error.strerror or type(error).__name__
    return ConfigurationError(f"{place} cannot be used ({reason}); choose another data directory.")


def foreign(place: Path) -> ConfigurationError:
    """A place that belongs to somebody else, or that its owner may not use."""
    there = next((one for one in (place, *place.parents) if os.access(one, os.F_OK)), place)
    if not accounts.is_root():
        return ConfigurationError(
            f"{place} cannot be used by this user (permission denied{_owner(there)}); give this user the rights to "
            "read, write and enter it, run as the user that owns it, or choose another data directory."
        )
    closed = next((one for one in there.parents if not one.stat().st_mode & stat.S_IXOTH), None)
    remedy = f"run `chmod o+x {closed}`, which somebody has closed again" if closed else "give it that account"
    return ConfigurationError(
        f"{place} cannot be used by the account {SYSTEM_USER}, as which root starts PostgreSQL (permission denied"
        f"{_owner(there)}); {remedy}, run Muniment as an ordinary user, or choose another data directory."
    )


def read_only(place: Path) -> ConfigurationError:
    """A volume that nothing can be written to."""
    return ConfigurationError(
        f"{place} is on a read-only file system; mount it for writing, or choose another data directory."
    )


def full(place: Path) -> StorageUnavailable:
    """A volume without room."""
    return StorageUnavailable(
        f"{place} cannot be written to because the disk is full; free space on its volume and try again."
    )


def given_path(directory: Path) -> Path:
    """The path by which PostgreSQL is given a data directory, which need not be there yet: its own, or a link's.

    The programs that start a server hand its path to a shell without quoting it, and a socket's path must be short.
    Raises ConfigurationError where no link can be made.
    """
    if _needs_no_link(directory):
        return directory
    link = _link(directory)
    if not _is_suitable(link):
        raise ConfigurationError(
            f"{directory} cannot be given to PostgreSQL, because its path is too long or holds other characters than "
            f"letters, digits and / . _ + -, and so does that of the temporary directory {link.parent}; choose "
            "another data directory, or set TMPDIR to a plain one."
        )
    if not (link.is_symlink() and link.readlink() == directory):
        fresh = link.with_name(f"{link.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(directory)
        fresh.replace(link)
    return link


def forget(directory: Path) -> None:
    """Remove the link to a directory that nobody will use again."""
    if not _needs_no_link(directory):
        _link(directory).unlink(missing_ok=True)


def let_through(directory: Path, given: Path) -> None:
    """As root, open the parents of a directory that is given by a link to the user that the server runs as; the package
    opens those of ``given``."""
    if not accounts.is_root() or given == directory:
        return
    for parent in directory.parents:
        mode = stat.S_IMODE(parent.stat().st_mode)
        if not mode & stat.S_IXOTH:
            parent.chmod(mode | stat.S_IXGRP | stat.S_IXOTH)


def private_runtime() -> Path:
    """A directory for links that no other user can enter; made if it is not there."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    candidate = Path(given) if given else None
    if candidate is None or not _is_ours(candidate, 0o077) or _is_replaceable(candidate):
        name = f"muniment-{os.getuid()}" if sys.platform != "win32" else "muniment"
        candidate = _own_directory(name, 0o700, 0o077)
    return candidate


def _needs_no_link(directory: Path) -> bool:
    return sys.platform == "win32" or _is_suitable(directory)


def _link(directory: Path) -> Path:
    return _links() / f"muniment-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}"


def _links() -> Path:
    """The directory of the links to data directories. Root's must be open to the user that the server runs as."""
    return _own_directory("muniment-0-links", 0o755, 0o022) if accounts.is_root() else private_runtime()


def _own_directory(name: str, mode: int, closed: int) -> Path:
    candidate = Path(tempfile.gettempdir()) / name
    candidate.mkdir(mode=mode, exist_ok=True)
    if not _is_ours(candidate, closed):
        raise ConfigurationError(
            f"{candidate} does not belong to this user alone; remove it, or set XDG_RUNTIME_DIR to a directory "
            "that only this user can enter."
        )
    if sys.platform != "win32":
        candidate.chmod(mode)
    return candidate


def _is_ours(directory: Path, closed: int) -> bool:
    """Whether it is a directory of this user's, without the permissions of ``closed``."""
    if sys.platform == "win32":
        return directory.is_dir()
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & closed


def _is_replaceable(directory: Path) -> bool:
    """Whether another user could put something else in its place."""
    modes = [parent.stat().st_mode for parent in directory.absolute().parents]
    return any(mode & 0o022 and not mode & stat.S_ISVTX for mode in modes)


def _is_suitable(directory: Path) -> bool:
    return bool(_PLAIN.fullmatch(str(directory))) and len(os.fsencode(directory / SOCKET)) <= _SOCKET_MAX


def _check_version(directory: Path, made_by: str) -> None:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", made_by):
        raise ConfigurationError(
            f"{directory / VERSION} is damaged and does not tell which PostgreSQL made {directory}; restore the "
            "directory from a backup, or choose another data directory."
        )
    if made_by != MAJOR:
        raise ConfigurationError(
            f"{directory} was made by PostgreSQL {made_by}, and this release embeds {MAJOR}; choose another data "
            "directory, or move the data with pg_dump and pg_restore."
        )


def _check_mode(directory: Path) -> None:
    mode = stat.S_IMODE(directory.stat().st_mode)
    if sys.platform != "win32" and mode & 0o077:
        raise ConfigurationError(
            f"{directory} is open to other users (mode {mode:04o}), who could connect as the database's superuser; run "
            f"`chmod 700 {directory}`."
        )


def _is_there(directory: Path) -> bool:
    try:
        directory.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError as error:
        raise foreign(directory) from error
    return True


def _check_homes(directory: Path) -> None:
    for home in accounts.homes():
        if directory.is_relative_to(home):
            raise ConfigurationError(
                f"As root, an embedded PostgreSQL would open {home} to every user of this machine; choose another "
                "data directory, such as /var/lib/muniment, or run as an ordinary user."
            )


def _check_owners(directory: Path) -> None:
    """That nothing of another user's would be taken, or opened to others."""
    allowed = accounts.runners()
    for place in (directory, directory / VERSION):
        if _is_there(place) and not _allows(allowed, owner := place.stat().st_uid):
            raise _owned(directory, owner)
    if not accounts.is_root():
        return
    for place in directory.parents:
        if place.exists() and not _allows(allowed, (status := place.stat()).st_uid):
            closed = status.st_mode & _OPEN != _OPEN
            if closed or place == directory.parent:
                raise _owned(place, status.st_uid)


def _allows(allowed: set[int], owner: int) -> bool:
    """Whether a server may use what ``owner`` has. Of a number that is nobody's root can make the account."""
    return owner in allowed or (len(allowed) == 1 and accounts.is_root() and accounts.name(owner) is None)


def _owned(directory: Path, owner: int) -> ConfigurationError:
    name = accounts.name(owner)
    who = f"the user {name}" if name else f"a user with the id {owner}"
    runner = f"the system user {SYSTEM_USER}, because root started it" if accounts.is_root() else "this user"
    starter = "root, who made it" if name == SYSTEM_USER else who
    return ConfigurationError(
        f"{directory} belongs to {who}, and an embedded PostgreSQL would run as {runner}; run Muniment as {starter}, "
        "or choose another data directory."
    )


def _owner(place: Path) -> str:
    if sys.platform == "win32":
        return ""
    with suppress(OSError):
        owner = place.stat().st_uid
        return f"; {place} belongs to {accounts.name(owner) or owner}"
    return ""
