"""Which file a configured value means, and whether it can be one; made readable by its owner alone."""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from muniment.errors import ConfigurationError

SCHEME: Final = "sqlite:"
FILE: Final = "muniment.db"
"""The file in the data directory that ``sqlite:`` without a path means."""
_MAKING: Final = threading.Lock()
"""Who makes a file has closed it before another connection of this process can have a lock on it."""


def locate(spec: str, data_dir: Path) -> Path:
    """The absolute path that ``sqlite:`` or ``sqlite:PATH`` means. Raises ConfigurationError."""
    named = spec.partition(":")[2]
    if named == ":memory:":
        raise ConfigurationError(
            f"storage {spec}: a database in memory is what the storage memory: is; configure that."
        )
    if not named:
        return Path(os.path.abspath(data_dir / FILE))
    try:
        if "\0" in named:
            raise ValueError("it holds a NUL character")
        os.fsencode(named)
        return Path(os.path.abspath(Path(named).expanduser()))
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigurationError(f"storage {spec}: the path cannot be used ({error}); write another one.") from None


def prepare(path: Path, *, data_dir: Path) -> None:
    """Make the file, with mode 0600, unless it is there; and the data directory, if it is in that.

    A file that is there is not opened: closing it would drop the locks that other connections of this process have on
    it (sqlite.org, "How To Corrupt An SQLite Database File", 2.2). Raises ConfigurationError, with the path and the
    remedy, where it cannot be read and written.
    """
    try:
        if path.parent == Path(os.path.abspath(data_dir)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _MAKING:
            if not path.exists():
                _make(path)
        mode = path.stat().st_mode
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        parent = Path(os.path.realpath(path)).parent
        raise ConfigurationError(f"{parent} is no directory; create it, or name a file somewhere else.") from None
    except OSError as error:
        raise _closed(path, error.strerror or "no reason given") from None
    if stat.S_ISDIR(mode):
        raise ConfigurationError(f"{path} is a directory; name a file in it, such as {path / FILE}.")
    if not stat.S_ISREG(mode):
        raise ConfigurationError(f"{path} is no regular file; name another one.")
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise _closed(path, os.strerror(errno.EACCES))


def _make(path: Path) -> None:
    with suppress(FileExistsError):  # another process was sooner
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _closed(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} cannot be opened for writing ({reason}); let this user write it and its directory, or name another "
        "file."
    )
