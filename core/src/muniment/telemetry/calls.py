"""One line of the log for each call: which operation, how it ended and how long it took."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from muniment.engine.watching import Part
from muniment.models import CallContext
from muniment.telemetry.outcomes import ending

log = logging.getLogger(__name__)


@contextmanager
def watch(part: Part, name: str, context: CallContext | None = None) -> Generator[None]:
    """Log operations, at level info."""
    if part is not Part.OPERATION or not log.isEnabledFor(logging.INFO):
        yield
        return

    def note(outcome: str, seconds: float) -> None:
        milliseconds = round(seconds * 1_000, 1)
        fields: dict[str, object] = {"operation": name, "outcome": outcome, "milliseconds": milliseconds}
        if context is not None:
            fields["surface"] = context.surface
            if context.request_id is not None:
                fields["request_id"] = context.request_id
        said = f", request {context.request_id}" if context is not None and context.request_id is not None else ""
        log.info("%s: %s in %s ms%s", name, outcome, milliseconds, said, extra=fields)

    with ending(note):
        yield
