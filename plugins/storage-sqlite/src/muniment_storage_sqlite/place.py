"""Which file a configured value means, and whether it can be one; made readable by its owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from muniment.errors import ConfigurationError

SCHEME: Final = "sqlite:"
FILE: Final = "muniment.db"
"""The file in the data directory that ``sqlite:`` without a path means."""


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
        return Path(os.path.abspath(Path(named).expanduser()))
    except (RuntimeError, ValueError) as error:
        raise ConfigurationError(f"storage {spec}: the path cannot be used ({error}); write another one.") from None


def prepare(path: Path, *, data_dir: Path) -> None:
    """Make the file, with mode 0600, unless it is there; and the data directory, if it is in that.

    Raises ConfigurationError, with the path and the remedy, where it cannot be read and written.
    """
    try:
        if path.parent == Path(os.path.abspath(data_dir)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except IsADirectoryError:
        raise ConfigurationError(f"{path} is a directory; name a file in it, such as {path / FILE}.") from None
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        raise ConfigurationError(f"{path.parent} is no directory; create it, or name a file somewhere else.") from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be opened for writing ({error.strerror}); let this user write it and its directory, or "
            "name another file."
        ) from None
    try:
        regular = stat.S_ISREG(os.fstat(opened).st_mode)
    finally:
        os.close(opened)
    if not regular:
        raise ConfigurationError(f"{path} is no regular file; name another one.")
