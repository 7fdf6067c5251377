"""What the protocol itself refuses over HTTP: a status, and an error that says what is wrong, by its field, and what to
do, in both generations alike. Nothing that was sent comes back."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
)

from muniment_transport_mcp import refusals

Served = Callable[..., AbstractAsyncContextManager[str]]
Ask = Callable[..., Any]

REVISIONS = ("2025-11-25", "2026-07-28")
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
SECRET = "hunter2"


@pytest.fixture
async def http(served: Served) -> AsyncGenerator[tuple[httpx2.AsyncClient, str]]:
    """A client that sends what it is told, and the address to send it to."""
    async with served() as url, httpx2.AsyncClient(trust_env=False) as client:
        yield client, url


def request(method: str, revision: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A message of this revision, and its headers."""
    headers = {**JSON, "mcp-protocol-version": revision, "mcp-method": method}
    if revision == REVISIONS[1]:
        params["_meta"] = {PROTOCOL_VERSION_META_KEY: revision, CLIENT_CAPABILITIES_META_KEY: {}}
        if isinstance(params.get("name"), str):
            headers["mcp-name"] = params["name"]
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, headers


def refusal(answer: httpx2.Response, *, code: str = "invalid_input", field: str | None = None) -> dict[str, Any]:
    """The error of an answer, whose data is a refusal with this code, of this field."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["data"]["code"] == code
    assert error["data"]["message"] == error["message"]
    assert error["data"].get("details", {}).get("field") == field
    assert SECRET not in answer.text
    assert "pydantic" not in answer.text
    return error


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_packed_body(http: tuple[httpx2.AsyncClient, str], revision: str) -> None:
    """415, as over HTTP."""
    client, url = http
    message, headers = request("tools/list", revision)
    packed = gzip.compress(json.dumps(message).encode())
    answer = await client.post(url, content=packed, headers={**headers, "content-encoding": "gzip"})

    assert answer.status_code == 415
    assert "send it without one" in refusal(answer, field="Content-Encoding")["message"]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Content-Type", "text/plain", 415),
        ("Content-Type", "", 415),
        ("Content-Type", "application/json-seq", 415),
        ("Content-Type", f"{SECRET}/x", 415),
        ("Accept", "text/html", 406),
        ("Accept", "", 406),
    ],
)
async def test_another_type_than_json(
    http: tuple[httpx2.AsyncClient, str], revision: str, header: str, value: str, status: int
) -> None:
    """415 for what is sent, 406 for what is taken, with the header to send."""
    client, url = http
    message, headers = request("tools/list", revision)
    answer = await client.post(url, content=json.dumps(message), headers={**headers, header.lower(): value})

    assert answer.status_code == status
    assert f"send {header}: application/json" in refusal(answer, field=header)["message"]


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("content-type", "Application/JSON; charset=utf-8"),
        ("content-type", "application/json"),
        ("accept", "*/*"),
        ("accept", "text/html;q=0.5, application/json;q=0.9"),
    ],
)
async def test_json_however_it_is_spelled(
    http: tuple[httpx2.AsyncClient, str], revision: str, header: str, value: str
) -> None:
    """A media type has no upper and lower case, and may have parameters."""
    client, url = http
    message, headers = request("tools/list", revision)
    answer = await client.post(url, content=json.dumps(message), headers={**headers, header: value})
    assert answer.status_code == 200


BAD_MESSAGES: dict[str, tuple[Any, str, int | None]] = {
    "a batch": ([{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}, {"x": SECRET}], "body", None),
    "an empty batch": ([], "body", None),
    "a text": (SECRET, "body", None),
    "of another JSON-RPC": ({"jsonrpc": SECRET, "id": 7, "method": "tools/list"}, "jsonrpc", 7),
    "without a method": ({"jsonrpc": "2.0", "id": 7, "x": SECRET}, "method", 7),
    "whose method is a number": ({"jsonrpc": "2.0", "id": 7, "method": 1}, "method", 7),
    "whose id is an object": ({"jsonrpc": "2.0", "id": {"x": SECRET}, "method": "tools/list"}, "id", None),
    "whose id is null": ({"jsonrpc": "2.0", "id": None, "method": "tools/list"}, "id", None),
    "whose params are a list": ({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": [SECRET]}, "params", 7),
}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("bad", BAD_MESSAGES)
async def test_what_is_no_message(http: tuple[httpx2.AsyncClient, str], revision: str, bad: str) -> None:
    """400, by the member that is wrong, for the request where it has an id; a batch is said to be none of this
    protocol's."""
    client, url = http
    body, field, asked = BAD_MESSAGES[bad]
    answer = await client.post(url, json=body, headers=request("tools/list", revision)[1])

    assert answer.status_code == 400
    error = refusal(answer, field=field)
    assert answer.json()["id"] == asked
    assert ("batch" in error["message"]) == ("batch" in bad)


BAD_PARAMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "arguments as a text": ("tools/call", {"name": "memory_list", "arguments": SECRET}, "arguments"),
    "arguments as a list": ("tools/call", {"name": "memory_list", "arguments": [SECRET]}, "arguments"),
    "no name": ("tools/call", {"arguments": {"x": SECRET}}, "name"),
    "a cursor that is a number": ("tools/list", {"cursor": 7}, "cursor"),
}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("bad", BAD_PARAMS)
async def test_params_of_the_wrong_type(http: tuple[httpx2.AsyncClient, str], revision: str, bad: str) -> None:
    """Whatever method they are of: the protocol's number, and the field."""
    client, url = http
    method, params, field = BAD_PARAMS[bad]
    message, headers = request(method, revision, **params)
    answer = await client.post(url, json=message, headers=headers)

    assert refusal(answer, field=field)["code"] == INVALID_PARAMS
    assert answer.json()["id"] == 7


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_there_is_not(http: tuple[httpx2.AsyncClient, str], revision: str) -> None:
    """A method, and a tool: not_found, with what there is."""
    client, url = http
    for method in ("tools/lst", "resources/list", "subscriptions/listen"):
        message, headers = request(method, revision, notifications={})
        error = refusal(await client.post(url, json=message, headers=headers), code="not_found")
        assert (error["code"], "tools/list" in error["message"]) == (METHOD_NOT_FOUND, True)
    message, headers = request("tools/call", revision, name="nothing", arguments={})
    error = refusal(await client.post(url, json=message, headers=headers), code="not_found")
    assert (error["code"], "memory_list" in error["message"]) == (INVALID_PARAMS, True)


async def test_headers_and_meta_of_the_stateless_revision(http: tuple[httpx2.AsyncClient, str]) -> None:
    """What the SDK alone looks at is refused as completely, and keeps what the protocol wants in its data."""
    client, url = http
    message, headers = request("tools/list", REVISIONS[1])
    other = await client.post(url, json=message, headers={**headers, "mcp-method": "tools/call"})
    assert other.status_code == 400
    refusal(other, field="mcp-method")

    bare = await client.post(url, json={**message, "params": {"x": SECRET}}, headers=headers)
    assert bare.status_code == 400
    assert PROTOCOL_VERSION_META_KEY in refusal(bare, field="_meta")["message"]

    message["params"]["_meta"][PROTOCOL_VERSION_META_KEY] = "2031-01-01"
    unknown = await client.post(url, json=message, headers={**headers, "mcp-protocol-version": "2031-01-01"})
    error = refusal(unknown, field="MCP-Protocol-Version")
    assert error["data"]["supported"] == [REVISIONS[1]]
    assert all(revision in error["message"] for revision in REVISIONS)


def test_what_is_no_refusal_of_anybody_is_internal() -> None:
    """With what to do; an error that has a code keeps all it has."""
    completed = refusals.completed(ErrorData(code=INTERNAL_ERROR, message="Internal server error"))
    assert completed.data == {"code": "internal", "message": completed.message}
    assert "tell whoever runs this server" in completed.message
    error = ErrorData(code=INVALID_PARAMS, message="No.", data={"code": "not_found"})
    assert refusals.completed(error) is error
