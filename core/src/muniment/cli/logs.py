"""Where the log goes and what it may say: standard error, no secrets, tracebacks only when debugging."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

FIELDS = ("operation", "outcome", "milliseconds", "surface", "method", "status", "code", "reason", "request_id")
"""What an entry may say besides its message, where whoever logs it gives it as ``extra``."""


class _Formatter(logging.Formatter):
    """An exception's text may repeat contents, so without debugging only its type is named."""

    def formatException(self, ei: Any) -> str:
        return super().formatException(ei) if debugging() else f"({ei[0].__name__})"


class _Text(_Formatter):
    """One line an entry."""

    def format(self, record: logging.LogRecord) -> str:
        from muniment.config import redact

        return redact(super().format(record))


class _Json(_Formatter):
    """One JSON object a line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: vars(record)[name] for name in FIELDS if name in vars(record)}
        if record.exc_info and record.exc_info[0] is not None:
            entry["exception"] = self.formatException(record.exc_info) if debugging() else record.exc_info[0].__name__
        return json.dumps({name: _shown(value) for name, value in entry.items()})


def _shown(value: object) -> object:
    """A field's value as it may be written: a number as it is, all else as text without secrets."""
    from muniment.config import redact

    return value if isinstance(value, int | float | None) else redact(str(value))


def _text() -> _Text:
    return _Text("%(asctime)s %(levelname)s %(name)s: %(message)s")


def start(level: str, packages: Iterable[str] = ()) -> None:
    """Log Muniment and the plugins' ``packages`` at ``level``, every other library only from warnings on."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_text())
        logging.getLogger().addHandler(handler)
    for name in ("muniment", *packages):
        logging.getLogger(name).setLevel(level.upper())


def write_as(log_format: str) -> None:
    """Write entries as ``text`` or as ``json`` from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _Formatter):
            handler.setFormatter(_Json() if log_format == "json" else _text())


def debugging() -> bool:
    """Whether Muniment logs at debug level."""
    return logging.getLogger("muniment").isEnabledFor(logging.DEBUG)


def traceback_if_debugging() -> None:
    """Print the traceback of the exception that is being handled, if debugging."""
    if debugging():
        traceback.print_exc()
