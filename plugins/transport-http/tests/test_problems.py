"""What is refused before an operation is called, and by the framework itself: problems, each with the request's id."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest

from muniment.conformance import raw_http
from muniment.engine import Engine
from muniment.limits import BODY_MAX
from muniment.models import CallContext

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]


def problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that a response must be."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"], body["type"]) == (status, code, f"urn:muniment:error:{code}")
    assert response.headers["x-request-id"]
    return body


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/nothing", "/v1/memories/x/y", "/V1/memories", "/v1/search/", "//v1/search"]
)
async def test_a_path_that_there_is_not(client: httpx2.AsyncClient, path: str) -> None:
    """404 as a problem, also for a slash too many: nothing is redirected."""
    problem(await client.get(path), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/memories", "GET, HEAD, POST"),
        ("POST", "/v1/memories/x", "DELETE, GET, HEAD, PATCH"),
        ("OPTIONS", "/v1/memories/x", "DELETE, GET, HEAD, PATCH"),
        ("GET", "/v1/search", "POST"),
        ("POST", "/v1/projects/a/shares/b", "DELETE, PUT"),
        ("POST", "/openapi.json", "GET, HEAD"),
        ("TRACE", "/v1/agent/events", "GET, HEAD"),
        ("NONSENSE", "/v1/projects", "GET, HEAD"),
    ],
)
async def test_a_method_that_there_is_not(client: httpx2.AsyncClient, method: str, path: str, allowed: str) -> None:
    """405 as a problem, and ``Allow`` has every method of the path."""
    refused = await client.request(method, path)

    problem(refused, 405, "invalid_input")
    assert refused.headers["allow"] == allowed


@pytest.mark.parametrize("announced", [BODY_MAX + 1, None])
async def test_a_body_that_is_too_large(client: httpx2.AsyncClient, announced: int | None) -> None:
    """413 as a problem, whether its length is said or not, and the server goes on."""

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(BODY_MAX // 1_000_000 + 2):
            yield b" " * 1_000_000

    headers = {"content-type": "application/json"}
    status, body = await raw_http.ask("POST", str(client.base_url.join("/v1/memories")), headers, pieces(), announced)

    refused = json.loads(body)
    assert (status, refused["status"], refused["code"]) == (413, 413, "payload_too_large")
    assert refused["details"] == {"limit": BODY_MAX}
    assert (await client.get("/v1/memories")).status_code == 200


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("c0ffee-1", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("", False),
        ("a b", False),
        ("é", False),
        ('a"b', False),
    ],
)
async def test_a_request_has_an_id(client: httpx2.AsyncClient, sent: str, kept: bool) -> None:
    """A well-formed X-Request-ID comes back, else a new one; also with what is refused at the door."""
    headers = [(b"x-request-id", sent.encode())]
    answers = [await client.get(path, headers=headers) for path in ("/v1/memories", "/nothing")]
    answers.append(await client.get("/v1/memories", headers=[*headers, (b"origin", b"http://evil.example")]))

    ids = [answer.headers["x-request-id"] for answer in answers]
    assert ids == [sent] * 3 if kept else len(set(ids)) == 3 and sent not in ids


async def test_of_several_ids_none_counts(client: httpx2.AsyncClient) -> None:
    """A request with two gets a new one."""
    answer = await client.get("/v1/memories", headers=[("x-request-id", "mine-1"), ("x-request-id", "mine-2")])

    assert "mine" not in answer.headers["x-request-id"]


async def test_an_error_that_nobody_foresaw(
    engine: Engine, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500 with an id and nothing else; the log has the error under that id, with the request's."""

    async def failing(name: str, payload: Mapping[str, Any], context: CallContext) -> Any:
        raise RuntimeError("secret: select content from memories")

    monkeypatch.setattr(engine, "call", failing)
    with caplog.at_level(logging.ERROR):
        refused = await client.get("/v1/memories", headers={"x-request-id": "c0ffee-1"})

    body = problem(refused, 500, "internal")
    assert list(body["details"]) == ["id"]
    assert "secret" not in refused.text
    (record,) = [one for one in caplog.records if "internal error" in one.getMessage()]
    assert body["details"]["id"] in record.getMessage()
    assert "c0ffee-1" in record.getMessage()


@pytest.mark.parametrize(
    ("header", "value", "status"), [("host", "evil.example", 421), ("origin", "http://evil.example", 403)]
)
async def test_foreign_pages_are_kept_out(client: httpx2.AsyncClient, header: str, value: str, status: int) -> None:
    """A name that was rebound to this address, and a page of another site, are refused."""
    problem(await client.get("/v1/memories", headers={header: value}), status, "access_denied")


@pytest.mark.parametrize("path", ["/v1/memories", "/metrics"])
async def test_every_origin_of_a_request_must_be_admitted(client: httpx2.AsyncClient, path: str) -> None:
    """A foreign one after the server's own is refused as well."""
    origins = [("origin", str(client.base_url).rstrip("/")), ("origin", "http://evil.example")]

    problem(await client.get(path, headers=origins), 403, "access_denied")


async def test_pages_may_call_only_where_it_is_configured(connect: Open) -> None:
    """By default no response lets a page read it; a configured origin may, and no other."""
    page = "https://app.example"
    wanted = "if-match, content-type, last-event-id"
    asking = {"access-control-request-method": "PATCH", "access-control-request-headers": wanted}
    async with connect() as client:
        off = await client.get("/v1/memories")
        refused = await client.options("/v1/memories/x", headers={**asking, "origin": page})
    async with connect("bob", cors_origins=[page]) as client:
        asked = await client.options("/v1/memories/x", headers={**asking, "origin": page})
        read = await client.get("/v1/memories", headers={"origin": page})
        other = await client.get("/v1/memories", headers={"origin": "https://other.example"})

    assert not [name for name in off.headers if name.startswith("access-control")]
    problem(refused, 403, "access_denied")
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, page)
    assert (read.status_code, read.headers["access-control-allow-origin"]) == (200, page)
    assert "ETag" in read.headers["access-control-expose-headers"]
    problem(other, 403, "access_denied")


@pytest.mark.parametrize(
    ("method", "headers", "field"),
    [("PATCH", "x-other", "Access-Control-Request-Headers"), ("TRACE", "if-match", "Access-Control-Request-Method")],
)
async def test_a_preflight_that_is_refused_says_why(connect: Open, method: str, headers: str, field: str) -> None:
    """As a problem that names what is not allowed, and that the page's tools may show."""
    page = "https://app.example"
    asking = {"access-control-request-method": method, "access-control-request-headers": headers, "origin": page}
    async with connect(cors_origins=[page]) as client:
        refused = await client.options("/v1/memories/x", headers=asking)

    assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json")
    assert refused.json()["details"]["field"] == field
    assert refused.headers["access-control-allow-origin"] == page


async def test_a_refusal_before_an_operation_says_what_to_do(connect: Open) -> None:
    """Whoever refuses, of the framework, the doorway and the paths beside the operations: in words with a remedy, and
    with all members of a problem."""
    page, json_type = "https://app.example", {"content-type": "application/json"}
    preflight = {"origin": page, "access-control-request-method": "TRACE"}
    foreign = {"origin": "https://evil.example"}
    sent: list[tuple[int, str, str, dict[str, Any]]] = [
        (404, "GET", "/nothing", {}),
        (404, "GET", "/v1/memories/x", {}),
        (405, "PUT", "/v1/memories", {}),
        (405, "POST", "/openapi.json", {}),
        (405, "POST", "/livez", {}),
        (400, "OPTIONS", "/v1/memories", {"headers": preflight}),
        (400, "POST", "/v1/memories", {"content": b"{", "headers": json_type}),
        (403, "GET", "/v1/memories", {"headers": foreign}),
        (403, "GET", "/metrics", {"headers": foreign}),
        (403, "GET", "/v1/agent/events", {}),
        (413, "POST", "/v1/memories", {"content": b" " * (BODY_MAX + 1), "headers": json_type}),
        (415, "POST", "/v1/memories", {"content": b"x"}),
        (415, "POST", "/v1/memories", {"content": b"x", "headers": {**json_type, "content-encoding": "br"}}),
        (421, "GET", "/v1/memories", {"headers": {"host": "evil.example"}}),
        (422, "POST", "/v1/memories", {"content": b"[]", "headers": json_type}),
        (501, "GET", "/metrics", {}),
    ]
    async with connect(cors_origins=[page]) as client:
        answers = [await client.request(method, path, **given) for _, method, path, given in sent]

    assert [answer.status_code for answer in answers] == [status for status, *_ in sent]
    for answer in answers:
        assert answer.headers["content-type"] == "application/problem+json"
        body = answer.json()
        assert set(body) - {"details"} == {"type", "title", "status", "detail", "code"}
        assert body["status"] == answer.status_code
        assert body["title"] == body["code"].replace("_", " ").capitalize()
        what, _, remedy = body["detail"].partition("; ")
        assert what
        assert len(remedy.split()) > 1, body["detail"]


async def test_no_cache_keeps_what_a_caller_read(client: httpx2.AsyncClient) -> None:
    """Every response says that a cache asks again, and that its type is not to be guessed."""
    for path in ("/v1/memories", "/nothing", "/openapi.json"):
        headers = (await client.get(path)).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("private, no-cache", "nosniff")


async def test_what_is_begun_is_answered_at_the_end(
    engine: Engine, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is under way when the server is asked to end gets its answer."""
    began, released, ending = asyncio.Event(), asyncio.Event(), asyncio.Event()
    call = engine.call

    async def held(name: str, payload: Mapping[str, Any], context: CallContext) -> Any:
        began.set()
        await released.wait()
        return await call(name, payload, context)

    monkeypatch.setattr(engine, "call", held)
    async with connect(ending=ending) as client:
        asked = asyncio.create_task(client.get("/v1/memories"))
        await began.wait()
        ending.set()
        released.set()
        answer = await asked

    assert answer.status_code == 200
