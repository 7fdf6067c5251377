"""Where an embedded server may keep its data and its sockets: the checks that come before it starts.

Owns every refusal of a directory, and the path by which a directory is given to PostgreSQL. As root the server runs as
a system user of its own, and its package opens each parent directory for that user and gives it the data directory;
nobody's home may be opened so, and nobody's data taken.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import tempfile
from pathlib import Path

from muniment.errors import ConfigurationError

SYSTEM_USER = "pgserver"
"""Whom the package makes, and runs the server as, where root starts it."""

HANDLES = ".handle_pids.json"
"""What the package keeps in a data directory."""

_MAJOR = "18"
_SOCKET_MAX = 103
_OURS = {HANDLES, "log"}
_PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")
"""Paths that mean themselves to a shell, and in PostgreSQL's lists of directories."""

_OPEN = stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH


def check_place(directory: Path) -> None:
    """Raises ConfigurationError where no server may keep its data, whatever is there. Makes nothing."""
    if _is_there(directory) and not directory.is_dir():
        raise ConfigurationError(f"{directory} is a file, not a data directory; choose another data directory.")
    if _as_root():
        _check_homes(directory)
    if sys.platform != "win32":
        _check_owners(directory)


def check_contents(directory: Path) -> None:
    """Raises ConfigurationError for a directory that holds something else, or that PostgreSQL would refuse.

    Only under the lock of the directory: while another process makes it, it looks like neither.
    """
    try:
        entries = {entry.name for entry in directory.iterdir()} if directory.exists() else set[str]()
    except OSError as error:
        raise foreign(directory) from error
    version = directory / "PG_VERSION"
    if version.exists():
        _check_version(directory, version)
        _check_mode(directory)
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


def given_path(directory: Path) -> Path:
    """The path by which PostgreSQL is given a data directory, which need not be there yet: its own, or a link's.

    The programs that start a server hand its path to a shell without quoting it, and a socket's path must be short.
    Raises ConfigurationError where no link can be made.
    """
    if sys.platform == "win32" or _is_suitable(directory):
        return directory
    link = _links() / f"muniment-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}"
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


def let_through(directory: Path, given: Path) -> None:
    """As root, open the parents of a directory that is given by a link to the user that the server runs as; the package
    opens those of ``given``."""
    if not _as_root() or given == directory:
        return
    for parent in directory.parents:
        mode = stat.S_IMODE(parent.stat().st_mode)
        if not mode & stat.S_IXOTH:
            parent.chmod(mode | stat.S_IXGRP | stat.S_IXOTH)


def private_runtime() -> Path:
    """A directory for sockets and lock files that no other user can enter; made if it is not there."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    candidate = Path(given) if given else None
    if candidate is None or not _is_ours(candidate, 0o077) or _is_replaceable(candidate):
        name = f"muniment-{os.getuid()}" if sys.platform != "win32" else "muniment"
        candidate = _own_directory(name, 0o700, 0o077)
    (candidate / "python_PostgresServer").mkdir(mode=0o700, exist_ok=True)
    return candidate


def _links() -> Path:
    """The directory of the links to data directories. Root's must be open to the user that the server runs as."""
    return _own_directory("muniment-0-links", 0o755, 0o022) if _as_root() else private_runtime()


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
    """Whether another user could put something else in its place; the package would then choose one by itself."""
    modes = [parent.stat().st_mode for parent in directory.absolute().parents]
    return any(mode & 0o022 and not mode & stat.S_ISVTX for mode in modes)


def _is_suitable(directory: Path) -> bool:
    socket = directory / ".s.PGSQL.5432"
    return bool(_PLAIN.fullmatch(str(directory))) and len(os.fsencode(socket)) <= _SOCKET_MAX


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


def _check_mode(directory: Path) -> None:
    mode = stat.S_IMODE(directory.stat().st_mode)
    if sys.platform != "win32" and mode & 0o027:
        raise ConfigurationError(
            f"{directory} is open to other users (mode {mode:04o}), which PostgreSQL refuses; run "
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


def _as_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


def _check_homes(directory: Path) -> None:
    for home in _homes():
        if directory.is_relative_to(home):
            raise ConfigurationError(
                f"As root, an embedded PostgreSQL would open {home} to every user of this machine; choose another "
                "data directory, such as /var/lib/muniment, or run as an ordinary user."
            )


def _check_owners(directory: Path) -> None:
    """That nothing of another user's would be taken, or opened to others."""
    allowed = _runners()
    for place in (directory, directory / "PG_VERSION"):
        if _is_there(place) and not _allows(allowed, owner := place.stat().st_uid):
            raise _owned(directory, owner)
    if not _as_root():
        return
    for place in directory.parents:
        if place.exists() and not _allows(allowed, (status := place.stat()).st_uid):
            closed = status.st_mode & _OPEN != _OPEN
            if closed or place == directory.parent:
                raise _owned(place, status.st_uid)


def _allows(allowed: set[int], owner: int) -> bool:
    """Whether a server may use what ``owner`` has. Of a user that is not there root may be making a new one: a data
    directory outlives the container that its user was made in."""
    return owner in allowed or (len(allowed) == 1 and _as_root() and _name(owner) is None)


def _runners() -> set[int]:
    """Whose directories a server that this user starts can use."""
    if not _as_root():
        return {os.geteuid()}
    import pwd

    try:
        return {0, pwd.getpwnam(SYSTEM_USER).pw_uid}
    except KeyError:
        return {0}


def _owned(directory: Path, owner: int) -> ConfigurationError:
    name = _name(owner)
    who = f"the user {name}" if name else f"a user with the id {owner}"
    runner = f"the system user {SYSTEM_USER}, because root started it" if _as_root() else "this user"
    starter = "root, who made it" if name == SYSTEM_USER else who
    return ConfigurationError(
        f"{directory} belongs to {who}, and an embedded PostgreSQL would run as {runner}; run Muniment as {starter}, "
        "or choose another data directory."
    )


def _name(uid: int) -> str | None:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _homes() -> set[Path]:
    """The homes of root and of people; system users' lie in /var and the like, where data may be."""
    if sys.platform == "win32":
        return set()
    import pwd

    people = {Path(entry.pw_dir) for entry in pwd.getpwall() if entry.pw_uid == 0 or entry.pw_uid >= 1000}
    homes = {home for home in people if home.is_dir() and len(home.parts) > 1 and home.parts[1] not in ("var", "tmp")}
    return homes | {Path("/root"), Path("/home")}
