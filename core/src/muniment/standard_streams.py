"""The process's standard streams, claimed once for a protocol that is spoken over them.

What is printed by a library, a plugin or a child process must not reach a client that expects protocol there. The
command line claims the streams before anything else runs; a transport over stdio gets the same descriptors.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator

from muniment.errors import ConfigurationError

_claimed: list[tuple[int, int]] = []


def claim() -> tuple[int, int]:
    """Private descriptors of standard input and output; the same ones at every call.

    For the rest of the process standard input is empty and standard output goes to standard error, children
    included. They are not given back: what is still printed while the process leaves must not get there either.
    Raises ConfigurationError if one is closed.
    """
    if not _claimed:
        _claimed.append(_claim())
    return _claimed[0]


@contextlib.contextmanager
def aside() -> Generator[None]:
    """For a while, send what is printed, by whatever means, to standard error; the output is a command's own."""
    saved = _saved_output()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if saved is not None:
            _flush_output()
            _redirect(1, saved)


def _saved_output() -> int | None:
    """A copy of standard output, which now goes to standard error; None where it is closed."""
    _flush_output()
    try:
        saved = os.dup(1)
    except OSError:
        return None
    _redirect(1, _standard_error())
    return saved


def _flush_output() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()  # pyright: ignore[reportOptionalMemberAccess]


def _claim() -> tuple[int, int]:
    try:
        sys.stdout.flush()
        source, sink = os.dup(0), os.dup(1)
        _redirect(0, os.open(os.devnull, os.O_RDONLY))
        _redirect(1, _standard_error())
    except (OSError, AttributeError):
        raise ConfigurationError(
            "Standard input or output is closed, so there is no client to talk to; let an MCP client start "
            "this command, or start it in a terminal."
        ) from None
    if os.name == "posix":
        for descriptor in (source, sink):
            os.set_blocking(descriptor, True)
    return source, sink


def _standard_error() -> int:
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _redirect(descriptor: int, target: int) -> None:
    os.dup2(target, descriptor)
    os.close(target)
