"""Spans of OpenTelemetry through the engine and what it calls, for whoever has configured an SDK.

A span tells the operation, its outcome and the surface. An error is its code: its message may repeat what a caller
sent.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from muniment import __version__
from muniment.engine.watching import Part
from muniment.models import CallContext
from muniment.telemetry.outcomes import OK, is_failure, outcome_of

_CLIENT = TraceContextTextMapPropagator()

OUTCOME = "muniment.outcome"
OPERATION = "muniment.operation"
SURFACE = "muniment.surface"
RANKERS = "muniment.rankers"


def provider() -> TracerProvider | None:
    """The process's tracer provider, if an SDK has one there."""
    found = trace.get_tracer_provider()
    return None if isinstance(found, trace.ProxyTracerProvider | trace.NoOpTracerProvider) else found


class Tracing:
    """Spans of one provider."""

    def __init__(self, spans: TracerProvider) -> None:
        self._tracer = spans.get_tracer("muniment", __version__)

    @contextmanager
    def watch(self, part: Part, name: str, context: CallContext | None = None) -> Generator[None]:
        """A span around one thing, within the one that is there; else within the one that the client named."""
        with self._tracer.start_as_current_span(
            _span_name(part, name),
            context=_outer(context),
            attributes=_attributes(part, name, context),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            outcome = OK
            try:
                yield
            except BaseException as error:
                outcome = outcome_of(error)
                if is_failure(error):
                    span.set_status(Status(StatusCode.ERROR, outcome))
                raise
            finally:
                span.set_attribute(OUTCOME, outcome)


def _outer(context: CallContext | None) -> Context | None:
    """The span of the client; None for the one that is there."""
    if context is None or context.traceparent is None or trace.get_current_span().get_span_context().is_valid:
        return None
    return _CLIENT.extract({"traceparent": context.traceparent})


def _span_name(part: Part, name: str) -> str:
    match part:
        case Part.OPERATION:
            return name
        case Part.SEARCH:
            return part.value
        case _:
            return f"{part.value} {name}"


def _attributes(part: Part, name: str, context: CallContext | None) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    if part is Part.OPERATION:
        found[OPERATION] = name
    if part is Part.SEARCH:
        found[RANKERS] = name
    if context is not None:
        found[SURFACE] = context.surface
    return found
