"""Files and directories that a command writes: whole or not at all, and refused before the work that they hold."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from muniment.errors import ConfigurationError


def check(option: str, path: Path) -> None:
    """Refuse a path that cannot be written. Raises ConfigurationError, naming the option."""
    if path.is_dir():
        raise ConfigurationError(f"{option} {path} cannot be written: it is a directory; name a file.")
    if _special(path):
        return
    try:
        os.unlink(_beside(path))
    except OSError as error:
        raise _refusal(option, path, error) from None


def write(option: str, path: Path, text: str) -> None:
    """Put ``text`` into the file, in the place of what it held. Raises ConfigurationError, naming the option."""
    try:
        if _special(path):
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        made = Path(_beside(path))
        try:
            made.write_text(text, encoding="utf-8", newline="\n")
            made.chmod(0o666 & ~_umask())
            made.replace(os.path.realpath(path))
        except BaseException:
            made.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _refusal(option, path, error) from None


@contextmanager
def directory(path: Path, remedy: str) -> Generator[Path]:
    """An empty directory to fill, which becomes ``path`` once the block is left well; otherwise nothing of it is left.

    Raises ConfigurationError, ending in the ``remedy``, where ``path`` holds something or cannot be made.
    """
    place = Path(os.path.realpath(path))
    try:
        if place.exists() and not (place.is_dir() and not any(place.iterdir())):
            raise ConfigurationError(f"{path} is there already, and no empty directory; {remedy}.")
        place.parent.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f".{place.name[:40]}.", dir=place.parent))
    except OSError as error:
        raise _unwritable(path, error, remedy) from None
    try:
        yield staged
        staged.chmod(0o777 & ~_umask())
        if place.is_dir():
            place.rmdir()
        staged.rename(place)
    except BaseException as error:
        shutil.rmtree(staged, ignore_errors=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error, remedy) from None
        raise


def _beside(path: Path) -> str:
    """A new empty file in the same directory."""
    place = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{place.name[:40]}.", dir=place.parent)
    os.close(handle)
    return name


def _special(path: Path) -> bool:
    """Whether it is a pipe or a device, such as ``/dev/stdout``, which nothing can be put in the place of."""
    return path.exists() and not path.is_file()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refusal(option: str, path: Path, error: OSError) -> ConfigurationError:
    return _unwritable(f"{option} {path}", error, "name a file in a directory that you can write to")


def _unwritable(what: Path | str, error: OSError, remedy: str) -> ConfigurationError:
    cause = (error.strerror or type(error).__name__).lower()
    return ConfigurationError(f"{what} cannot be written: {cause}; {remedy}.")
