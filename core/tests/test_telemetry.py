"""What is measured, traced and logged of calls, read as Prometheus, an OpenTelemetry SDK and a log reader would."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families

from muniment.engine import Engine
from muniment.engine.watching import Part, Watch, unwatched
from muniment.errors import EmbedderUnavailable, InvalidInput, MunimentError, StorageUnavailable, Unauthenticated
from muniment.models import CallContext, Principal, Receipt
from muniment.ports import Backlog, Vector
from muniment.reference import HashEmbedder, ReferenceStorage
from muniment.telemetry import calls, wiring
from muniment.telemetry import metrics as metrics_module
from muniment.telemetry.metrics import Metrics
from muniment.telemetry.tracing import Tracing, provider

CONTENT = "the lighthouse keeper s3cret"
ANN = CallContext(principal=Principal(user="ann-s3cret"), surface="http", request_id="r-1")

Samples = dict[tuple[str, str], float]


class Fails(ReferenceStorage):
    """Fails at searching."""

    async def search(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(CONTENT)


class Down(HashEmbedder):
    """Cannot embed a query."""

    async def embed_query(self, text: str) -> Vector:
        raise EmbedderUnavailable(CONTENT)


class Counting:
    """Counts what waits, and how often it was asked to."""

    def __init__(self) -> None:
        self.found: Backlog | None = Backlog(3, 4)
        self.asked = 0
        self.down = False

    async def __call__(self) -> Backlog | None:
        self.asked += 1
        if self.down:
            raise StorageUnavailable
        return self.found


def samples(text: bytes) -> Samples:
    """Every sample of Muniment's by its name and its labels in order."""
    return {
        (one.name, ",".join(f"{key}={value}" for key, value in sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
        if one.name.startswith("muniment_")
    }


@asynccontextmanager
async def calling(watch: Watch) -> AsyncGenerator[Callable[..., Awaitable[object]]]:
    """An engine that is watched, as a function that calls it and keeps its refusals to itself."""
    async with Engine(ReferenceStorage(), HashEmbedder(), background=False, watch=watch) as engine:

        async def call(name: str, **payload: object) -> object:
            try:
                return await engine.call(name, payload, ANN)
            except MunimentError as refusal:
                return refusal

        yield call


async def nothing() -> Backlog | None:
    """What waits, where that is not known."""
    return None


async def test_calls_are_counted_by_operation_and_outcome() -> None:
    """Each once, with how long it took; those of unknown names together."""
    metrics = Metrics()
    async with calling(metrics.watch) as call:
        await call("memory.write", content=CONTENT)
        for _ in range(3):
            await call("memory.get", id="none")
        for name in ("s3cret", "other"):
            await call(name)
        await call("memory.search", query=CONTENT)
    found = samples(await metrics.exposition(nothing))

    assert {key: value for key, value in found.items() if key[0] == "muniment_requests_total"} == {
        ("muniment_requests_total", "operation=memory.write,outcome=ok"): 1,
        ("muniment_requests_total", "operation=memory.get,outcome=not_found"): 3,
        ("muniment_requests_total", "operation=unknown,outcome=not_found"): 2,
        ("muniment_requests_total", "operation=memory.search,outcome=ok"): 1,
    }
    assert found["muniment_request_seconds_count", "operation=memory.get"] == 3
    assert found["muniment_search_seconds_count", "rankers=meaning,words,tags"] == 1
    assert found["muniment_storage_seconds_count", "method=search"] == 1
    assert found["muniment_embed_seconds_count", "method=embed_query,outcome=ok"] == 1
    assert "s3cret" not in str(found)


async def test_a_failing_embedder_is_seen_though_the_search_is_answered() -> None:
    """By its outcome, and by the rankers that are left."""
    metrics = Metrics()
    async with Engine(ReferenceStorage(), Down(), background=False, watch=metrics.watch) as engine:
        await engine.call("memory.search", {"query": "x"}, ANN)
    found = samples(await metrics.exposition(nothing))

    assert found["muniment_embed_seconds_count", "method=embed_query,outcome=embedder_unavailable"] == 1
    assert found["muniment_search_seconds_count", "rankers=words,tags"] == 1
    assert found["muniment_requests_total", "operation=memory.search,outcome=ok"] == 1


async def test_what_nobody_foresaw_is_internal() -> None:
    """And so is what a refusal of that code holds."""
    metrics = Metrics()
    async with Engine(Fails(), None, background=False, watch=metrics.watch) as engine:
        with pytest.raises(RuntimeError):
            await engine.call("memory.search", {"query": "x"}, ANN)
    found = samples(await metrics.exposition(nothing))

    assert found["muniment_requests_total", "operation=memory.search,outcome=internal"] == 1


async def test_who_is_not_let_in_is_counted_by_code() -> None:
    """Whoever is let in is not counted here: the operation is."""
    metrics = Metrics()
    with metrics.watch(Part.ENTRY, "authenticate"):
        pass
    with pytest.raises(Unauthenticated), metrics.watch(Part.ENTRY, "authenticate"):
        raise Unauthenticated
    found = samples(await metrics.exposition(nothing))

    refused = {key: value for key, value in found.items() if key[0] == "muniment_entry_refusals_total"}
    assert refused == {("muniment_entry_refusals_total", "code=unauthenticated"): 1}


async def test_what_waits_is_counted_at_most_every_fifteen_seconds() -> None:
    """However often the metrics are read; afterwards anew."""
    now = 1_000.0
    count = Counting()
    metrics = Metrics(clock=lambda: now)
    for _ in range(4):
        await metrics.exposition(count)
        now += 3.7
    found = samples(await metrics.exposition(count))
    assert (found["muniment_events_waiting", ""], found["muniment_embeddings_pending", ""]) == (3, 4)
    assert count.asked == 1
    now += 0.2
    count.found = Backlog(0, 1)
    found = samples(await metrics.exposition(count))
    assert (found["muniment_events_waiting", ""], found["muniment_embeddings_pending", ""]) == (0, 1)
    assert count.asked == 2


@pytest.mark.parametrize("down", [True, False])
async def test_what_cannot_be_counted_is_left_out(down: bool) -> None:
    """No number is better than an old one, by a storage that is away and by one that is older than the question."""
    now = 1_000.0
    count = Counting()
    metrics = Metrics(clock=lambda: now)
    assert ("muniment_events_waiting", "") in samples(await metrics.exposition(count))
    now += 60
    count.down, count.found = down, None
    found = samples(await metrics.exposition(count))
    assert not {name for name, _ in found} & {"muniment_events_waiting", "muniment_embeddings_pending"}


async def test_a_storage_that_cannot_be_interrupted_holds_up_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are given without what waits there."""
    monkeypatch.setattr(metrics_module, "COUNTING_SECONDS", 0.01)
    go_on = asyncio.Event()

    async def stubborn() -> Backlog | None:
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            await go_on.wait()
            raise
        return None

    async with asyncio.timeout(20):
        assert samples(await Metrics().exposition(stubborn)) == {}
    go_on.set()


async def test_two_engines_of_a_process_are_measured_apart() -> None:
    """Each has its registry; making another one is no error."""
    first, second = Metrics(), Metrics()
    async with calling(first.watch) as call:
        await call("memory.get", id="none")

    assert samples(await second.exposition(nothing)) == {}
    assert samples(await first.exposition(nothing)) != {}


def test_every_metric_is_documented() -> None:
    """The table of the page has each metric with its labels, and no other."""
    page = Path(__file__).parents[2].joinpath("docs", "deploy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(muniment_\w+)` \|(.*?)\| \w", page, re.MULTILINE)
    documented = {name: set(re.findall(r"\w+", labels)) for name, labels in rows}
    metrics = Metrics()
    with pytest.raises(Unauthenticated), metrics.watch(Part.ENTRY, "x"):
        raise Unauthenticated
    for part in (Part.OPERATION, Part.SEARCH, Part.STORAGE):
        with metrics.watch(part, "x"):
            pass
    with metrics.watch(Part.EMBEDDER, "embed_query"):
        pass
    found = {
        family.name + ("_total" if family.type == "counter" else ""): {
            label for sample in family.samples for label in sample.labels if label != "le"
        }
        for family in metrics.registry.collect()
        if family.name.startswith("muniment_")
    }

    assert documented == {**found, "muniment_events_waiting": set(), "muniment_embeddings_pending": set()}


# ------------------------------------------------------------ spans


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """What was traced."""
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Tracing:
    """Spans of an SDK's provider that hands each to the exporter at once."""
    spans = TracerProvider()
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(spans)


def spans_of(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """The spans by name."""
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_an_operation_is_a_span_with_its_parts_within(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    """The storage's is within the search's, both within the operation's; the surface and the outcome are told."""
    async with calling(tracing.watch) as call:
        await call("memory.search", query=CONTENT)
    spans = spans_of(exporter)
    operation, search = spans["memory.search"], spans["search"]
    assert search.parent is not None
    assert operation.context is not None
    assert search.context is not None

    assert operation.attributes == {
        "muniment.operation": "memory.search",
        "muniment.surface": "http",
        "muniment.outcome": "ok",
    }
    assert operation.parent is None
    assert search.parent.span_id == operation.context.span_id
    for name, outer in (("storage search", search), ("embedder embed_query", operation)):
        inner = spans[name].parent
        assert inner is not None
        assert outer.context is not None
        assert inner.span_id == outer.context.span_id
    assert search.attributes == {"muniment.rankers": "meaning,words,tags", "muniment.outcome": "ok"}


@pytest.mark.parametrize(
    ("sent", "trace", "parent"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 0x0AF7651916CD43DD8448EB211C80319C, True),
        ("s3cret", None, False),
        (None, None, False),
    ],
)
async def test_a_trace_that_a_client_began_goes_on(
    tracing: Tracing, exporter: InMemorySpanExporter, sent: str | None, trace: int | None, parent: bool
) -> None:
    """By the header of W3C Trace Context; one that is none begins another trace."""
    async with Engine(ReferenceStorage(), None, background=False, watch=tracing.watch) as engine:
        await engine.call("project.list", {}, ANN.model_copy(update={"traceparent": sent}))
    span = spans_of(exporter)["project.list"]

    assert span.context is not None
    assert (span.parent is not None) == parent
    assert trace in (None, span.context.trace_id)
    assert "s3cret" not in span.to_json()


async def test_a_refusal_is_an_outcome_and_a_failure_an_error(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    """By their codes; what a caller did wrong is no error of the server."""
    async with Engine(Fails(), None, background=False, watch=tracing.watch) as engine:
        with pytest.raises(MunimentError):
            await engine.call("memory.get", {"id": "s3cret"}, ANN)
        with pytest.raises(RuntimeError):
            await engine.call("memory.search", {"query": "s3cret"}, ANN)
    spans = spans_of(exporter)

    refused, failed = spans["memory.get"], spans["memory.search"]
    assert refused.attributes is not None
    assert failed.attributes is not None
    assert (refused.attributes["muniment.outcome"], refused.status.status_code) == ("not_found", StatusCode.UNSET)
    assert (failed.attributes["muniment.outcome"], failed.status.status_code) == ("internal", StatusCode.ERROR)
    assert failed.status.description == "internal"


async def test_nothing_that_a_caller_sent_is_traced(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    """No contents, no ids, no users; by nothing that a span can hold."""
    async with calling(tracing.watch) as call:
        written = await call("memory.write", content=CONTENT, tags=["s3cret"], idempotency_key="s3cret")
        assert isinstance(written, Receipt)
        await call("memory.patch", id=written.id, old_string="s3cret", new_string="s3cret")
        assert isinstance(await call("s3cret"), MunimentError)
        assert isinstance(await call("memory.get", id=written.id, s3cret="s3cret"), InvalidInput)
    async with Engine(Fails(), Down(), background=False, watch=tracing.watch) as engine:
        with pytest.raises(RuntimeError):
            await engine.call("memory.search", {"query": CONTENT}, ANN)
    told = "".join(span.to_json() for span in exporter.get_finished_spans())

    assert len(exporter.get_finished_spans()) > 9
    assert "s3cret" not in told
    assert "lighthouse" not in told
    assert written.id not in told


def test_without_an_sdk_nothing_is_traced() -> None:
    """The API alone has a provider that traces nothing; it counts as none."""
    assert provider() is None


# ------------------------------------------------------------ the log


async def test_each_call_is_a_line_without_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    """Operation, outcome, milliseconds and the request's id, for people and for programs."""
    with caplog.at_level(logging.INFO, logger="muniment.telemetry.calls"):
        async with calling(calls.watch) as call:
            await call("memory.write", content=CONTENT)
            await call("memory.get", id="s3cret")
    lines = [record for record in caplog.records if record.name == "muniment.telemetry.calls"]

    assert [vars(line)["operation"] for line in lines] == ["memory.write", "memory.get"]
    assert [vars(line)["outcome"] for line in lines] == ["ok", "not_found"]
    assert {vars(line)["request_id"] for line in lines} == {"r-1"}
    for line in lines:
        assert vars(line)["milliseconds"] >= 0
        assert line.getMessage().endswith(" ms, request r-1")
    assert "s3cret" not in json.dumps([{key: str(value) for key, value in vars(line).items()} for line in lines])


def test_what_nobody_reads_is_not_watched(caplog: pytest.LogCaptureFixture) -> None:
    """Without metrics, an SDK and a log at level info the engine is not watched at all."""
    caplog.set_level(logging.WARNING, logger=calls.log.name)
    assert wiring.wired(measured=False) == (unwatched, None)

    caplog.set_level(logging.INFO, logger=calls.log.name)
    assert wiring.wired(measured=False) == (calls.watch, None)

    watch, exposition = wiring.wired(measured=True)
    assert watch is not calls.watch
    assert exposition is not None
