"""``muniment serve`` as whoever operates it sees it: probes, metrics, limits, the log and spans of a real process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

SITE = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
out = open(os.environ["SPANS"], "w", encoding="utf-8", buffering=1)
exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""
"""What configures an SDK in a process before anything else runs there, as its distributions do."""

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "a lighthouse s3cret"


@asynccontextmanager
async def serving(
    cwd: Path, transport: str, *arguments: str, **variables: str
) -> AsyncGenerator[tuple[httpx2.AsyncClient, Path]]:
    """A client of a server process over an empty storage in memory, and the file with its log."""
    log = cwd / "log.txt"
    command = ("-m", "muniment", "serve", "--transport", transport, "--http", "127.0.0.1:0", "--no-auth")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}
    with log.open("w", encoding="utf-8") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            *("--storage", "memory:", "--embedder", "hash:", *arguments),
            cwd=cwd,
            env={**environment, "XDG_CONFIG_HOME": str(cwd / "none"), **variables},
            stdin=asyncio.subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            async with asyncio.timeout(60):
                while not (found := re.search(r"serving \w+ at (http://[\d.:]+)", log.read_text(encoding="utf-8"))):
                    assert process.returncode is None, log.read_text(encoding="utf-8")
                    await asyncio.sleep(0.05)
            async with httpx2.AsyncClient(base_url=found[1], timeout=30, trust_env=False) as client:
                yield client, log
        finally:
            if process.returncode is None:
                process.terminate()
            assert await process.wait() == 0


def with_spans(cwd: Path) -> dict[str, str]:
    """Variables by which an SDK is configured in a process; ``SPANS`` is the file with them, one a line."""
    site = cwd / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    return {"PYTHONPATH": str(site), "SPANS": str(cwd / "spans.txt")}


def objects(log: Path) -> list[dict[str, Any]]:
    """The lines of a log that are JSON."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]


@pytest.mark.parametrize("transport", ["http", "mcp"])
async def test_every_transport_over_http_has_the_same_probes(tmp_path: Path, transport: str) -> None:
    """Alive, ready with the details that a local caller sees, and measured from the storage on."""
    async with serving(tmp_path, transport) as (client, _):
        live, ready, metrics = [await client.get(path) for path in ("/livez", "/readyz", "/metrics")]
    names = {family.name for family in text_string_to_metric_families(metrics.text)}

    assert (live.json(), ready.status_code) == ({"status": "live"}, 200)
    assert ready.json()["facts"] == {"server": "in memory"}
    assert {"muniment_requests", "muniment_events_waiting", "muniment_embeddings_pending"} <= names


async def test_calls_are_measured_traced_and_logged_without_what_was_sent(tmp_path: Path) -> None:
    """The same call in all three; contents, queries and the id of what was asked for in none."""
    arguments = ("--log-level", "info", "--log-format", "json")
    variables = with_spans(tmp_path)
    async with serving(tmp_path, "http", *arguments, **variables) as (client, log):
        written = await client.post("/v1/memories", json={"content": SECRET, "tags": ["s3cret"]})
        await client.post("/v1/search", json={"query": "s3cret"})
        refused = await client.get("/v1/memories/s3cret", headers={"X-Request-ID": "mine", "traceparent": PARENT})
        metrics = (await client.get("/metrics")).text
    calls = [entry for entry in objects(log) if "operation" in entry]
    spans = Path(variables["SPANS"]).read_text(encoding="utf-8")
    traced = {span["name"]: span for span in map(json.loads, spans.splitlines())}

    assert (written.status_code, refused.status_code) == (201, 404)
    (call,) = [entry for entry in calls if entry["operation"] == "memory.get"]
    assert (call["outcome"], call["request_id"], call["surface"]) == ("not_found", "mine", "http")
    assert traced["memory.get"]["attributes"] == {
        "muniment.operation": "memory.get",
        "muniment.surface": "http",
        "muniment.outcome": "not_found",
    }
    assert traced["memory.get"]["parent_id"] == "0xb7ad6b7169203331"
    assert {"storage apply", "embedder embed_passages"} <= traced.keys()
    assert 'muniment_requests_total{operation="memory.get",outcome="not_found"} 1.0' in metrics
    told = log.read_text(encoding="utf-8") + spans + metrics
    for secret in ("s3cret", "lighthouse", written.json()["id"]):
        assert secret not in told


async def test_a_trace_that_an_mcp_client_began_goes_on(tmp_path: Path) -> None:
    """By the message's ``_meta``; the operation's span is within the protocol's, and neither tells what was sent."""
    spans = with_spans(tmp_path)
    params = {"name": "memory_get", "arguments": {"id": "s3cret"}, "_meta": {"traceparent": PARENT}}
    async with serving(tmp_path, "mcp", **spans) as (client, _):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await client.post("/mcp", json=message, headers={"accept": "application/json, text/event-stream"})
    text = Path(spans["SPANS"]).read_text(encoding="utf-8")
    operation, protocol = [
        span for span in map(json.loads, text.splitlines()) if span["name"] in ("memory.get", "tools/call memory_get")
    ]

    assert answer.json()["result"]["isError"]
    assert protocol["parent_id"] == "0xb7ad6b7169203331"
    assert operation["parent_id"] == protocol["context"]["span_id"]
    assert operation["attributes"]["muniment.surface"] == "mcp"
    assert "s3cret" not in text


async def test_the_limits_of_the_configuration_are_kept(tmp_path: Path) -> None:
    """A burst is served, one too large among it; one request more is told how long to wait, and is counted."""
    (tmp_path / "muniment.toml").write_text(
        "[limits]\nrequests_per_minute = 1\nburst = 4\nbody_bytes = 2_000\n", encoding="utf-8"
    )
    async with serving(tmp_path, "http") as (client, _):
        large = await client.post("/v1/memories", json={"content": "x" * 2_000})
        statuses = [(await client.get("/v1/projects")).status_code for _ in range(3)]
        refused = await client.get("/v1/projects")
        metrics = (await client.get("/metrics")).text

    assert (large.status_code, large.json()["details"]) == (413, {"limit": 2_000})
    assert statuses == [200, 200, 200]
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert 'muniment_entry_refusals_total{code="rate_limited"} 1.0' in metrics
