"""Health, metrics and limits of MCP over HTTP: the same paths, and the same refusal, as over any other transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from muniment.authentication.settings import AuthSettings
from muniment.authentication.tokens import new_token
from muniment.authentication.verifier import Verifier
from muniment.engine import Engine
from muniment.engine.watching import Part, watched
from muniment.errors import StorageUnavailable
from muniment.models import CallContext, Principal
from muniment.ports import Callers
from muniment.reference import ReferenceStorage
from muniment.serving import requests
from muniment.serving.addresses import Address, listening
from muniment.serving.rates import Rates
from muniment.telemetry import calls
from muniment.telemetry.metrics import Metrics
from muniment_transport_mcp.http import serve_on, url_of

LOCAL = CallContext(principal=Principal(user="local"))
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
CALL: dict[str, Any] = {**LIST, "method": "tools/call", "params": {"name": "project_list", "arguments": {}}}


@asynccontextmanager
async def serving(engine: Engine, callers: Callers) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of a server in this process."""
    ending = asyncio.Event()
    with listening(Address("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(serve_on(listener, engine, callers, ending))
        base = url_of(listener).removesuffix("/mcp")
        try:
            async with httpx2.AsyncClient(base_url=base, timeout=30, trust_env=False) as client:
                yield client
        finally:
            ending.set()
            await running


async def test_the_platform_reads_what_a_stranger_does_not() -> None:
    """Health needs no credentials; metrics, with those of calls and of who was not let in, are for the platform."""
    metrics, storage = Metrics(), ReferenceStorage()
    tokens: list[str] = []
    for scopes in (("read", "platform"), ("write",)):
        secret, kept = new_token("operator", frozenset(), scopes, None)
        await storage.add_token(kept)
        tokens.append(secret)
    platform, writer = ({"authorization": f"Bearer {secret}"} for secret in tokens)
    verifier = watched(Verifier(AuthSettings(), storage), Part.ENTRY, metrics.watch)
    async with (
        Engine(storage, None, background=False, watch=metrics.watch, exposition=metrics.exposition) as engine,
        serving(engine, Callers(LOCAL, verifier)) as client,
    ):
        assert (await client.get("/livez")).json() == {"status": "live"}
        assert (await client.get("/readyz", headers={"host": "10.0.0.7"})).json() == {"status": "ready"}
        assert (await client.get("/readyz", headers=platform)).json()["storage"] == "reachable"
        assert (await client.get("/metrics", headers=writer)).json()["error"]["data"]["code"] == "access_denied"
        assert (await client.post("/mcp", json=CALL, headers=HEADERS)).status_code == 401
        assert (await client.post("/mcp", json=CALL, headers={**HEADERS, **writer})).status_code == 200
        text = (await client.get("/metrics", headers=platform)).text
        refused = await client.get("/metrics")
    found = {
        (one.name, *one.labels.values()): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }

    assert found["muniment_requests_total", "project.list", "ok"] == 1
    assert found["muniment_entry_refusals_total", "unauthenticated"] == 1
    assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (401, "unauthenticated")


async def test_too_many_requests_are_told_how_long_to_wait() -> None:
    """429 with the code and whole seconds, before the request reaches the protocol."""
    callers = Callers(LOCAL, anybody=True, admit=Rates(2, 3, clock=lambda: 0.0).admit)
    async with Engine(ReferenceStorage(), None, background=False) as engine, serving(engine, callers) as client:
        replies = await asyncio.gather(*(client.post("/mcp", json=LIST, headers=HEADERS) for _ in range(5)))
        health = await client.get("/readyz")

    assert sorted(reply.status_code for reply in replies) == [200, 200, 200, 429, 429]
    for reply in replies:
        if reply.status_code == 429:
            assert reply.headers["retry-after"] == "30"
            assert reply.json()["error"]["data"]["details"] == {"limit": 2, "retry_after": 30}
    assert health.status_code == 200


async def test_a_request_is_no_larger_than_configured() -> None:
    """By the limit of the configuration, which is less than the protocol's own."""
    callers = Callers(LOCAL, anybody=True, body_max=1_024)
    async with Engine(ReferenceStorage(), None, background=False) as engine, serving(engine, callers) as client:
        refused = await client.post("/mcp", content=b" " * 1_025, headers=HEADERS)

    assert (refused.status_code, refused.json()["error"]["data"]["details"]) == (413, {"limit": 1_024})


async def test_the_log_names_each_request_as_its_client_does(caplog: pytest.LogCaptureFixture) -> None:
    """A call in its line, and what is refused at the door or by the SDK in one of its own, without path or token."""
    caplog.set_level(logging.INFO, logger=calls.log.name)
    caplog.set_level(logging.INFO, logger=requests.log.name)
    storage = ReferenceStorage()
    secret, kept = new_token("operator", frozenset(), ("write",), None)
    await storage.add_token(kept)
    good, bad = ({"authorization": f"Bearer {token}"} for token in (secret, "muniment_" + "s" * 43))
    async with (
        Engine(storage, None, background=False, watch=calls.watch) as engine,
        serving(engine, Callers(LOCAL, Verifier(AuthSettings(), storage))) as client,
    ):
        replies = [
            await client.post("/mcp", json=CALL, headers={**HEADERS, **good, "x-request-id": "r-call"}),
            await client.post("/mcp", json=CALL, headers={**HEADERS, **bad, "x-request-id": "r-401"}),
            await client.post("/secret", headers={"x-request-id": "r-404"}),
            await client.get("/mcp", headers={"x-request-id": "r-405"}),
            await client.post("/mcp", json=CALL, headers={**good, "accept": "text/html", "x-request-id": "r-sdk"}),
            await client.post("/livez", headers={"x-request-id": "r-health"}),
            await client.post("/mcp", json=CALL, headers={**HEADERS, **good}),
        ]
    told = [reply.headers["x-request-id"] for reply in replies]
    lines = {vars(line)["request_id"]: vars(line) for line in caplog.records if "request_id" in vars(line)}

    assert told[:-1] == ["r-call", "r-401", "r-404", "r-405", "r-sdk", "r-health"]
    assert list(lines) == told
    assert lines["r-call"]["operation"] == lines[told[-1]]["operation"] == "project.list"
    assert (lines["r-401"]["code"], lines["r-401"]["status"]) == ("unauthenticated", 401)
    assert lines["r-401"]["reason"].startswith("There is no such API token")
    assert [lines[name]["status"] for name in told[1:-1]] == [reply.status_code for reply in replies[1:-1]]
    assert not any(found in caplog.text for found in ("secret", "s" * 43, secret))


async def test_a_request_for_a_web_socket_is_just_answered(caplog: pytest.LogCaptureFixture) -> None:
    """Anybody may send one, so that nothing is logged of it."""
    upgrade = {"connection": "Upgrade", "upgrade": "websocket"}
    async with (
        Engine(ReferenceStorage(), None, background=False) as engine,
        serving(engine, Callers(LOCAL, anybody=True)) as client,
    ):
        reply = await client.get("/livez", headers=upgrade)

    assert reply.status_code == 200
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]


async def test_what_is_withheld_is_found_by_the_request(caplog: pytest.LogCaptureFixture) -> None:
    """A storage that fails leaves one line in the log, which names the id that the client sent."""

    class Broken(ReferenceStorage):
        async def list_projects(self, audience: Any, *, after: Any, limit: int) -> Any:
            raise StorageUnavailable("the disk of db-7 is gone")

    async with Engine(Broken(), None, background=False) as engine, serving(engine, Callers(LOCAL)) as client:
        answer = await client.post("/mcp", json=CALL, headers={**HEADERS, "x-request-id": "told-by-me"})

    assert "db-7" not in answer.text
    (line,) = [one for one in caplog.messages if "db-7" in one]
    assert "in project.list, request told-by-me: " in line
