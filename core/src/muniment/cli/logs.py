"""Where the log goes and what it may say: standard error, no secrets, tracebacks only when debugging."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable
from typing import Any


class _Plain(logging.Formatter):
    """One line an entry; an exception's text may repeat contents, so without debugging only its type is named."""

    def format(self, record: logging.LogRecord) -> str:
        from muniment.config import redact

        return redact(super().format(record))

    def formatException(self, ei: Any) -> str:
        return super().formatException(ei) if debugging() else f"({ei[0].__name__})"


def start(level: str, packages: Iterable[str] = ()) -> None:
    """Log Muniment and the plugins' ``packages`` at ``level``, every other library only from warnings on."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Plain("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger().addHandler(handler)
    for name in ("muniment", *packages):
        logging.getLogger(name).setLevel(level.upper())


def debugging() -> bool:
    """Whether Muniment logs at debug level."""
    return logging.getLogger("muniment").isEnabledFor(logging.DEBUG)


def traceback_if_debugging() -> None:
    """Print the traceback of the exception that is being handled, if debugging."""
    if debugging():
        traceback.print_exc()
