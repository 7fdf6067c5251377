"""Health, metrics and limits over a real connection, and what a call's log and a 429 say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from muniment.engine import Engine
from muniment.engine.watching import together
from muniment.errors import IssuerUnavailable, MunimentError, ShuttingDown, StorageUnavailable, Unauthenticated
from muniment.models import CallContext, Principal
from muniment.ports import Callers
from muniment.reference import HashEmbedder, ReferenceStorage
from muniment.serving import requests
from muniment.serving.doorway import UNAVAILABLE_SECONDS
from muniment.serving.rates import Rates
from muniment.telemetry import calls
from muniment.telemetry.metrics import Metrics

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]

LOCAL = CallContext(principal=Principal(user="local"))


class ByName:
    """An authenticator whose tokens are the names of users."""

    async def authenticate(self, authorization: str | None) -> Principal:
        if authorization is None:
            raise Unauthenticated
        return Principal(user=authorization.removeprefix("Bearer "))

    def challenge(self, refusal: MunimentError, resource: str) -> str | None:
        return "Bearer" if isinstance(refusal, Unauthenticated) else None

    def metadata(self, resource: str) -> Mapping[str, Any]:
        return {}


def of(user: str) -> dict[str, str]:
    """The header of a user."""
    return {"Authorization": f"Bearer {user}"}


async def test_health_needs_no_credentials(serve: Open, engine: Engine) -> None:
    """A probe of a container's address, without a token, is answered; an operation is not."""
    async with serve(engine, Callers(LOCAL, ByName())) as client:
        for path in ("/livez", "/readyz"):
            assert (await client.get(path, headers={"Host": "10.0.0.7:80"})).status_code == 200
        refused = await client.get("/metrics")
        assert (await client.get("/v1/projects")).status_code == 401

    assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")
    assert refused.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("shut", [False, True])
async def test_what_is_unavailable_says_when_to_ask_again(serve: Open, engine: Engine, shut: bool) -> None:
    """Each 503 has ``Retry-After``: readiness, a call, credentials that cannot be checked, and a server that ends."""

    class Away(ReferenceStorage):
        async def list_projects(self, *_: Any, **__: Any) -> Any:
            raise StorageUnavailable

        async def find_receipt(self, *_: Any, **__: Any) -> Any:
            raise StorageUnavailable

    class Unsure(ByName):
        async def authenticate(self, authorization: str | None) -> Principal:
            raise ShuttingDown if shut else IssuerUnavailable

    async with Engine(Away(), None, background=False) as away, serve(away, Callers(LOCAL, anybody=True)) as client:
        answers = [await client.get(path) for path in ("/readyz", "/v1/projects")]
        live = await client.get("/livez")
    async with serve(engine, Callers(LOCAL, Unsure())) as client:
        answers += [await client.get(path) for path in ("/v1/projects", "/metrics")]

    assert [(one.status_code, one.headers["retry-after"]) for one in answers] == [(503, str(UNAVAILABLE_SECONDS))] * 4
    assert "retry-after" not in live.headers


async def test_metrics_and_the_log_tell_of_each_call(serve: Open, caplog: pytest.LogCaptureFixture) -> None:
    """The counts are those of the calls; the log's line has the request's id, which the client got too."""
    metrics = Metrics()
    caplog.set_level(logging.INFO, logger=calls.log.name)
    async with (
        Engine(
            ReferenceStorage(),
            HashEmbedder(),
            background=False,
            watch=together(metrics.watch, calls.watch),
            exposition=metrics.exposition,
        ) as engine,
        serve(engine, Callers(LOCAL, anybody=True)) as client,
    ):
        await client.post("/v1/memories", json={"content": "a lighthouse"})
        missing = await client.get("/v1/memories/none", headers={"X-Request-ID": "mine-1"})
        text = (await client.get("/metrics")).text
    found = {
        (one.labels["operation"], one.labels["outcome"]): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name == "muniment_requests_total"
    }
    (line,) = [record for record in caplog.records if vars(record).get("operation") == "memory.get"]

    assert found == {("memory.write", "ok"): 1, ("memory.get", "not_found"): 1}
    assert missing.headers["x-request-id"] == vars(line)["request_id"] == "mine-1"
    assert vars(line)["surface"] == "http"


async def test_the_log_tells_of_each_request_that_came_to_no_operation(
    serve: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, under the id that its client was told; what an operation refused has that operation's line alone."""
    caplog.set_level(logging.INFO, logger=calls.log.name)
    caplog.set_level(logging.INFO, logger=requests.log.name)
    sent: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/secret", {}),
        ("PUT", "/v1/memories", {}),
        ("POST", "/v1/memories", {"content": b"x", "headers": {"content-type": "text/plain"}}),
        ("POST", "/v1/memories", {"content": b"{", "headers": {"content-type": "application/json"}}),
        ("GET", "/v1/memories", {"headers": {"origin": "https://evil.example"}}),
        ("GET", "/v1/memories?secret=1", {}),
        ("GET", "/v1/memories/secret", {}),
    ]
    async with (
        Engine(ReferenceStorage(), None, background=False, watch=calls.watch) as engine,
        serve(engine, Callers(LOCAL, anybody=True)) as client,
    ):
        replies = [await client.request(method, path, **given) for method, path, given in sent]
    lines = [vars(line) for line in caplog.records if "request_id" in vars(line)]

    assert [line["request_id"] for line in lines] == [reply.headers["x-request-id"] for reply in replies]
    assert [line.get("code") or line["outcome"] for line in lines] == [reply.json()["code"] for reply in replies]
    assert [line["status"] for line in lines[:-2]] == [reply.status_code for reply in replies[:-2]]
    assert [line["operation"] for line in lines[-2:]] == ["memory.list", "memory.get"]
    assert "secret" not in caplog.text


async def test_too_many_requests_are_told_how_long_to_wait(serve: Open, engine: Engine) -> None:
    """429 with whole seconds, for that principal alone and on every path that asks who calls; health goes on."""
    rates = Rates(2, 3, clock=lambda: 0.0)
    callers = Callers(LOCAL, ByName(), admit=rates.admit)
    async with serve(engine, callers) as client:
        replies = await asyncio.gather(*(client.get("/v1/projects", headers=of("ann")) for _ in range(9)))
        others = [await client.get(path, headers=of("ann")) for path in ("/openapi.json", "/v1/agent/events")]
        health = await client.get("/readyz", headers=of("ann"))
        bob = await client.get("/v1/projects", headers=of("bob"))

    assert sorted(reply.status_code for reply in replies) == [200] * 3 + [429] * 6
    refused = [reply for reply in replies if reply.status_code == 429] + others
    for reply in refused:
        assert (reply.json()["code"], reply.headers["retry-after"]) == ("rate_limited", "30")
        assert reply.json()["details"] == {"limit": 2, "retry_after": 30}
    assert (health.status_code, bob.status_code) == (200, 200)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_request_is_no_larger_than_configured(serve: Open, engine: Engine, announced: bool) -> None:
    """One byte more is 413, whether its length was said or not; one at the limit is read."""

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        yield body

    body = b'{"content": "text"}'
    callers = Callers(LOCAL, anybody=True, body_max=len(body))
    async with serve(engine, callers) as client:
        statuses: list[int] = []
        for sent in (body, body + b" "):
            content = sent if announced else pieces(sent)
            reply = await client.post("/v1/memories", content=content, headers={"Content-Type": "application/json"})
            statuses.append(reply.status_code)
        assert reply.json()["details"] == {"limit": len(body)}

    assert statuses == [201, 413]
