"""The one-line file ``.muniment-project``, by which a directory names the project of whoever works below it."""

from __future__ import annotations

import re
from pathlib import Path

from muniment import local_paths
from muniment.errors import ConfigurationError
from muniment.limits import PROJECT_KEY_PATTERN

FILE_NAME = ".muniment-project"


def project_of(directory: Path) -> str | None:
    """The key in the nearest file, in ``directory`` or above it; None without one. Raises ConfigurationError."""
    for place in (directory, *directory.parents):
        file = place / FILE_NAME
        if local_paths.exists(file, instead="name the project with --project"):
            return _key(file)
    return None


def _key(file: Path) -> str:
    try:
        with file.open(encoding="utf-8-sig") as opened:
            key = opened.read(1_000).strip()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read ({error.strerror}); make it a readable file.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not text; write one project key into it.") from None
    # `$` alone would let a line break pass.
    if "\n" in key or not re.match(PROJECT_KEY_PATTERN, key):
        raise ConfigurationError(
            f"{file} must hold one project key in one line, 1 to 200 letters, digits or . _ / - ; correct it."
        )
    return key
