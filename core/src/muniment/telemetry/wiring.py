"""Which telemetry a server gets: what is installed, and what somebody reads."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from muniment.engine import Exposition
from muniment.engine.watching import Watch, together
from muniment.telemetry import calls

if TYPE_CHECKING:
    from muniment.telemetry.metrics import Metrics
    from muniment.telemetry.tracing import Tracing

_PROVIDER_VARIABLE = "OTEL_PYTHON_TRACER_PROVIDER"


def wired(*, measured: bool) -> tuple[Watch, Exposition | None]:
    """The watch of an engine, and its metrics where they can be read (``measured``) and the extra is installed.

    Without any of them the watch is ``unwatched``. The log has calls from level info on.
    """
    metrics = _metrics() if measured else None
    tracing = _tracing()
    watches: list[Watch] = []
    if tracing is not None:
        watches.append(tracing.watch)
    if metrics is not None:
        watches.append(metrics.watch)
    if calls.log.isEnabledFor(logging.INFO):
        watches.append(calls.watch)
    return together(*watches), metrics and metrics.exposition


def _metrics() -> Metrics | None:
    try:
        from muniment.telemetry.metrics import Metrics
    except ModuleNotFoundError:
        return None
    return Metrics()


def _tracing() -> Tracing | None:
    """Spans, if an SDK is configured; who configures one has imported the API, or named it in a variable."""
    if "opentelemetry.trace" not in sys.modules and _PROVIDER_VARIABLE not in os.environ:
        return None
    try:
        from muniment.telemetry.tracing import Tracing, provider
    except ModuleNotFoundError:
        return None
    found = provider()
    return None if found is None else Tracing(found)
