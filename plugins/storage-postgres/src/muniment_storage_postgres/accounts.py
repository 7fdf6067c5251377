"""Whom an embedded server runs as. PostgreSQL does not run as root: started by root it runs as an account of its own.

For that account the package opens the directories above the data and above itself to everybody, and the account must
be made. In a container that is nobody's business; on a machine that people share, root must be asked for by name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from muniment.errors import ConfigurationError
from muniment_storage_postgres.wheel import SYSTEM_USER

_PATIENCE = 10.0
"""Seconds in which others who change the machine's accounts must be done."""

_BUSY = (1, 9, 10)
"""Exit codes of ``useradd`` while somebody else changes the accounts, or has just made this one."""

_MARKS = (".dockerenv", "run/.containerenv", "run/systemd/container")
_GROUPS = re.compile("docker|containerd|kubepods|libpod|lxc|garden")


def is_root() -> bool:
    """Whether this process is root's."""
    return sys.platform != "win32" and os.geteuid() == 0


def check(allowed: bool, root: Path = Path("/")) -> None:
    """Raises ConfigurationError for root outside containers, unless the configuration has ``allowed`` it by name.
    ``root`` is where the system's files are."""
    if is_root() and not allowed and not in_container(root):
        raise ConfigurationError(
            f"An embedded PostgreSQL is not started by root: it would run as the account {SYSTEM_USER}, which is made, "
            "and the directories above its data and its programs would be opened to every user. Run Muniment as an "
            "ordinary user, set storage to a postgresql:// URL, or allow it by as_root = true in the table "
            "[plugins.storage-postgres] of the configuration, for the demo by "
            """MUNIMENT_PLUGINS='{"storage-postgres": {"as_root": true}}' in the environment."""
        )


def in_container(root: Path = Path("/")) -> bool:
    """Whether this system is a container's, as the files of its engine and of its first process tell."""
    if any((root / mark).exists() for mark in _MARKS) or "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    if any(line.startswith("container=") for line in _read(root / "proc/1/environ").split("\0")):
        return True
    layered = any(_is_layered_root(line) for line in _read(root / "proc/self/mountinfo").splitlines())
    return layered or bool(_GROUPS.search(_read(root / "proc/1/cgroup")))


def ensure(directory: Path) -> None:
    """Make the account of a server that root starts, with the number that owns ``directory`` where that is nobody's: a
    data directory outlives the container that its account was made in. Raises ConfigurationError."""
    owner = directory.stat().st_uid
    number = () if name(owner) else ("--uid", str(owner))
    command = ("useradd", "--system", "--user-group", "--no-create-home", "--shell", "/bin/false", *number, SYSTEM_USER)
    deadline = time.monotonic() + _PATIENCE
    while system_user() is None:
        try:
            made = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise _unmade(error.strerror or type(error).__name__) from error
        if made.returncode != 0:
            if made.returncode not in _BUSY or time.monotonic() > deadline:
                raise _unmade(made.stderr.strip())
            time.sleep(0.1)


def system_user() -> int | None:
    """The number of the account, if it is there."""
    import pwd

    try:
        return pwd.getpwnam(SYSTEM_USER).pw_uid
    except KeyError:
        return None


def runners() -> set[int]:
    """The numbers of those whose directories a server that this process starts can use."""
    if not is_root():
        return {os.geteuid()}
    account = system_user()
    return {0} if account is None else {0, account}


def name(uid: int) -> str | None:
    """The account with a number."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def homes() -> set[Path]:
    """The homes of root and of people; system users' lie in /var and the like, where data may be."""
    if sys.platform == "win32":
        return set()
    import pwd

    people = {Path(entry.pw_dir) for entry in pwd.getpwall() if entry.pw_uid == 0 or entry.pw_uid >= 1000}
    found = {home for home in people if home.is_dir() and len(home.parts) > 1 and home.parts[1] not in ("var", "tmp")}
    return found | {Path("/root"), Path("/home")}


def _unmade(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Started by root, an embedded PostgreSQL runs as the account {SYSTEM_USER}, which cannot be made ({why}); "
        "make it, or run Muniment as an ordinary user."
    )


def _is_layered_root(mount: str) -> bool:
    place, _, kind = mount.partition(" - ")
    return place.split()[4:5] == ["/"] and kind.split()[:1] == ["overlay"]


def _read(file: Path) -> str:
    with suppress(OSError):
        return file.read_text("utf-8", "replace")
    return ""
