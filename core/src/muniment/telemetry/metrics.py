"""Metrics for Prometheus: what was asked, how it ended, how long each part took, and what waits.

Labels are names of operations, methods and rankers, and codes of refusals: there are few of each, and nobody who calls
can make another. What waits is counted in the storage when somebody reads the metrics, at most every
``COUNTED_SECONDS``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muniment.engine import CountBacklog
from muniment.engine.watching import Part
from muniment.models import CallContext
from muniment.ports import Backlog
from muniment.telemetry.outcomes import OK, ending, outcome_of

log = logging.getLogger(__name__)

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
COUNTED_SECONDS = 15.0
"""How long a count of what waits is good."""
COUNTING_SECONDS = 5.0
"""How long counting may take; the metrics are given without it then."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: from a look-up by a key to what is waited for an embedder, and longer."""

_EMBEDDING = ("embed_passages", "embed_query")
"""What an embedder does that takes time; the other methods are about it."""


class Metrics:
    """The measurements of one engine, in a registry of their own. ``clock`` counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter("muniment_requests", "Operations that were called.", "operation", "outcome")
        self._refused = self._counter("muniment_entry_refusals", "Requests that came to no operation.", "code")
        self._of_requests = self._histogram("muniment_request_seconds", "How long operations took.", "operation")
        self._of_searches = self._histogram("muniment_search_seconds", "How long ranking took.", "rankers")
        self._of_embedding = self._histogram(
            "muniment_embed_seconds", "How long the embedder took.", "method", "outcome"
        )
        self._of_storage = self._histogram("muniment_storage_seconds", "How long the storage took.", "method")
        self._series: dict[tuple[Part, str, str], tuple[Counter | None, Histogram | None]] = {}
        self._waiting = _Waiting()
        self._counted_at: float | None = None
        self._counting = asyncio.Lock()
        self._count: asyncio.Task[Backlog | None] | None = None
        self._clock = clock
        self.registry.register(self._waiting)
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(name, says, labels, registry=self.registry)

    def _histogram(self, name: str, says: str, *labels: str) -> Histogram:
        return Histogram(name, says, labels, registry=self.registry, buckets=BUCKETS)

    def watch(self, part: Part, name: str, context: CallContext | None = None) -> AbstractContextManager[None]:
        """Measure one thing."""
        return ending(lambda outcome, seconds: self._note(part, name, outcome, seconds))

    def _note(self, part: Part, name: str, outcome: str, seconds: float) -> None:
        series = self._series.get((part, name, outcome))
        if series is None:
            series = self._series[part, name, outcome] = self._series_of(part, name, outcome)
        counted, timed = series
        if counted is not None:
            counted.inc()
        if timed is not None:
            timed.observe(seconds)

    def _series_of(self, part: Part, name: str, outcome: str) -> tuple[Counter | None, Histogram | None]:
        """What one thing is counted by, and what its time goes to."""
        match part:
            case Part.OPERATION:
                return self._requests.labels(name, outcome), self._of_requests.labels(name)
            case Part.SEARCH:
                return None, self._of_searches.labels(name)
            case Part.STORAGE:
                return None, self._of_storage.labels(name)
            case Part.EMBEDDER if name in _EMBEDDING:
                return None, self._of_embedding.labels(name, outcome)
            case Part.ENTRY if outcome != OK:
                return self._refused.labels(outcome), None
            case _:
                return None, None

    async def exposition(self, count: CountBacklog) -> bytes:
        """All of it as text of ``MEDIA_TYPE``; without what waits where that cannot be counted now."""
        async with self._counting:
            if self._counted_at is None or self._clock() - self._counted_at >= COUNTED_SECONDS:
                self._waiting.backlog = await self._backlog(count)
                self._counted_at = self._clock()
        return generate_latest(self.registry)

    async def _backlog(self, count: CountBacklog) -> Backlog | None:
        """What waits, if it is counted in time; a storage that hangs is not waited for until it has given up."""
        self._count = asyncio.create_task(_counted(count), name="muniment-count-backlog")
        counted, _ = await asyncio.wait({self._count}, timeout=COUNTING_SECONDS)
        if counted:
            return self._count.result()
        self._count.cancel()
        log.warning("what waits in the storage was not counted in time")
        return None


async def _counted(count: CountBacklog) -> Backlog | None:
    try:
        return await count()
    except Exception as error:
        log.warning("what waits in the storage was not counted: %s", outcome_of(error))
        return None


class _Waiting(Collector):
    """What waits, as it was counted last."""

    backlog: Backlog | None = None

    def collect(self) -> Iterable[Metric]:
        """Nothing where it was not counted: no number is better than an old one."""
        if self.backlog is None:
            return
        for name, says, number in (
            ("muniment_events_waiting", "Events that could be claimed.", self.backlog.events_waiting),
            ("muniment_embeddings_pending", "Memories without all vectors.", self.backlog.embeddings_pending),
        ):
            yield GaugeMetricFamily(name, says, value=number)
