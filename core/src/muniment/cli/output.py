"""Standard output that cannot be written, such as on a disk that is full."""

from __future__ import annotations

import os
import sys
import traceback
from types import CodeType

import click


def lost(error: OSError) -> bool:
    """Whether it is what kept the output from being written; what is left of that is dropped."""
    return given_up() or _innermost(error) is click.echo.__code__


def _innermost(error: OSError) -> CodeType | None:
    """The code that raised; a stream without a buffer fails as it is written to, and has nothing left."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return frames[-1][0].f_code if frames else None


def given_up() -> bool:
    """Whether standard output holds what cannot be written; that is dropped, or it would fail again at the exit."""
    return _dropped(sys.stdout, 1)


def complaints_given_up() -> bool:
    """The same of standard error."""
    return _dropped(sys.stderr, 2)


def _dropped(stream: object, descriptor: int) -> bool:
    try:
        if stream is not None:
            stream.flush()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
        return True
    return False
