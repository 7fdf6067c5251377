"""Paths on this machine that the configuration names: made absolute, and looked at without surprises.

Which configured values are paths is known here by their scheme and spelling alone, so that no plugin has to be loaded
to pass a configuration on to a process that is started elsewhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from muniment.errors import ConfigurationError

_NAMES_A_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:(?=[.~])|(?:embedded|sqlite):(?=[^:]))(.+)")
"""What begins with ``.`` or ``~`` below any scheme; below these two whatever else there is."""


def absolute(path: str, directory: str | Path = "") -> str:
    """``path``, relative to ``directory`` (by default the working directory), as an absolute one; ``~`` is a home."""
    try:
        expanded = Path(path).expanduser()
    except RuntimeError:
        # Nobody's home: whoever uses the path refuses it by the name that was written.
        return path
    return os.path.abspath(os.path.join(directory, expanded))


def absolute_in(value: str, directory: str | Path = "") -> str:
    """A configured storage or embedder with the path that it names, if it names one, made absolute."""
    match = _NAMES_A_PATH.fullmatch(value)
    return match[1] + absolute(match[2], directory) if match else value


def working_directory() -> Path:
    """The directory that this process was started in. Raises ConfigurationError if it is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigurationError(
            f"The working directory cannot be used ({error.strerror}); start this in another one."
        ) from None


def exists(path: Path, *, instead: str) -> bool:
    """Whether ``path`` is there. Raises ConfigurationError, with the remedy ``instead``, where nobody can tell."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be looked for ({error.strerror}); let this user enter the directories above it, or "
            f"{instead}."
        ) from None
    return True
