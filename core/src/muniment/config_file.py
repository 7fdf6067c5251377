"""Changing one key of the configuration's TOML file, with its comments and its order as they are."""

from __future__ import annotations

from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from muniment.config import Settings, variable
from muniment.errors import ConfigurationError


def settable(settings: Settings, key: str) -> Path | None:
    """The file in which a new value of ``key`` takes effect; None where it is set otherwise, or by no file."""
    file = settings.file
    if file is None:
        return None
    return file if settings.origin(key) in (str(file), "default") else None


def by_hand(settings: Settings, key: str, value: str) -> str:
    """What whoever runs this is to do where ``settable`` names no file, as a sentence without its full stop."""
    origin = settings.origin(key)
    if origin == variable(key):
        return f"set {origin} to {value}"
    if origin == "default":
        return f'write {key} = "{value}" into muniment.toml, or set {variable(key)} to {value}'
    return f"give {origin} {value}"


def with_value(file: Path, key: str, value: str) -> str:
    """The file's text with ``key`` set to ``value`` at its top level. Raises ConfigurationError."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        document = tomlkit.parse(text)
        if key not in document:
            # In front: behind the last table it would belong to that table.
            return f"{key} = {tomlkit.string(value).as_string()}\n{text}"
        document[key] = value
        return tomlkit.dumps(document)
    except (OSError, UnicodeDecodeError, TOMLKitError) as error:
        raise ConfigurationError(f'{file} cannot be changed ({error}); write {key} = "{value}" into it.') from None
