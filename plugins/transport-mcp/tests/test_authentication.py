"""MCP over HTTP with credentials: what a client is told without them, and whose tools it sees with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from muniment.authentication.settings import AuthSettings
from muniment.authentication.tokens import new_token
from muniment.authentication.verifier import Verifier
from muniment.conformance.credentials import Credentials
from muniment.engine import Engine
from muniment.errors import ConfigurationError, IssuerUnavailable
from muniment.models import CallContext, Principal
from muniment.operations import OPERATIONS
from muniment.ports import Callers
from muniment.reference import ReferenceStorage
from muniment.serving.addresses import Address, listening
from muniment_transport_mcp.conformance_client import call_of
from muniment_transport_mcp.http import HttpTransport, serve_on, url_of
from muniment_transport_mcp.tools import tool_name

LOCAL = CallContext(principal=Principal(user="local", platform=True))
URL = "https://memory.example.com"
SETTINGS = AuthSettings.model_validate(
    {
        "issuers": {
            "corp": {
                "issuer": "https://login.example.com",
                "audience": f"{URL}/mcp",
                "read_scope": "m:read",
                "write_scope": "m:write",
            }
        }
    }
)
METADATA = "/.well-known/oauth-protected-resource/mcp"
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


class Served:
    """A server in this process that asks for credentials, and a client without any."""

    def __init__(self, url: str, storage: ReferenceStorage, http: httpx2.AsyncClient) -> None:
        self.url = url
        self.storage = storage
        self.http = http

    async def token(self, *scopes: str, user: str = "alice") -> str:
        """The header of a fresh API token."""
        secret, kept = new_token(user, frozenset(), scopes, None)
        await self.storage.add_token(kept)
        return f"Bearer {secret}"

    async def post(self, authorization: str | None = None, **headers: str) -> httpx2.Response:
        """The answer to a request for the tools."""
        more = {} if authorization is None else {"authorization": authorization}
        return await self.http.post(self.url, json=LIST, headers={**HEADERS, **more, **headers})


@asynccontextmanager
async def serving(callers: Callers, storage: ReferenceStorage) -> AsyncGenerator[Served]:
    """A server for ``callers``."""
    ending = asyncio.Event()
    async with Engine(storage, None, background=False) as engine:
        with listening(Address("127.0.0.1", 0)) as listener:
            running = asyncio.create_task(serve_on(listener, engine, callers, ending))
            try:
                async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
                    yield Served(url_of(listener), storage, http)
            finally:
                ending.set()
                await running


@pytest.fixture
async def served() -> AsyncGenerator[Served]:
    """A server that accepts API tokens and those of one issuer."""
    storage = ReferenceStorage()
    verifier = Verifier(SETTINGS, storage)
    async with serving(Callers(LOCAL, verifier, url=URL), storage) as server:
        yield server
    await verifier.close()


async def test_without_credentials_a_client_is_told_where_to_get_some(served: Served) -> None:
    """401 with the challenge of RFC 6750: where the metadata is and which scopes to ask for, and no error."""
    answer = await served.post()

    assert answer.status_code == 401
    assert answer.json()["error"]["data"]["code"] == "unauthenticated"
    assert answer.headers["www-authenticate"] == (
        f'Bearer realm="muniment", scope="m:read m:write", resource_metadata="{URL}{METADATA}"'
    )


async def test_anybody_reads_the_metadata(served: Served) -> None:
    """RFC 9728, at the place that the challenge names, of the URL that clients use."""
    answer = await served.http.get(served.url.replace("/mcp", METADATA))

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "resource": f"{URL}/mcp",
        "bearer_methods_supported": ["header"],
        "authorization_servers": ["https://login.example.com"],
        "scopes_supported": ["m:read", "m:write"],
    }
    posted = await served.http.post(served.url.replace("/mcp", METADATA), json={})
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("header", ["Bearer x.y.z", "Bearer muniment_" + "a" * 43, "Basic YTpi", ""])
async def test_bad_credentials_are_told_apart_from_none(served: Served, header: str) -> None:
    """So that a client throws them away."""
    answer = await served.post(header)

    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert answer.json()["error"]["data"]["details"] == {"error": "invalid_token"}


async def test_two_headers_prove_nobody(served: Served) -> None:
    """Which of them counted would be for whoever stands between to choose."""
    good, other = await served.token("write"), await served.token("write", user="mallory")
    headers = [*HEADERS.items(), ("authorization", good), ("authorization", other)]
    answer = await served.http.post(served.url, json=LIST, headers=headers)
    assert answer.status_code == 401


@asynccontextmanager
async def client(served: Served, authorization: str) -> AsyncGenerator[Client]:
    """The official client with this header."""
    headers = {"authorization": authorization}
    async with (
        httpx2.AsyncClient(timeout=30, trust_env=False, headers=headers) as http,
        Client(streamable_http_client(served.url, http_client=http)) as opened,
    ):
        yield opened


@pytest.mark.parametrize(
    ("scopes", "principal"),
    [
        (("write",), Principal(user="alice")),
        (("read",), Principal(user="alice", read_only=True)),
        (("write", "platform"), Principal(user="alice", platform=True)),
    ],
)
async def test_a_caller_sees_its_own_tools(served: Served, scopes: tuple[str, ...], principal: Principal) -> None:
    """Those that its credentials allow; what the local caller might do is nobody's here."""
    async with client(served, await served.token(*scopes)) as opened:
        tools = {tool.name for tool in (await opened.list_tools()).tools}

    assert tools == {tool_name(name) for name, operation in OPERATIONS.items() if operation.serves(principal)}


async def test_callers_of_one_server_are_kept_apart(served: Served) -> None:
    """What one writes another does not find, and the trail says who wrote it, over which surface."""
    alice, bob = await served.token("write"), await served.token("write", user="bob")
    async with client(served, alice) as hers, client(served, bob) as his:
        written = said(await hers.call_tool("memory_write", {"content": "A deed."}))
        assert said(await his.call_tool("memory_list", {}))["items"] == []
        assert said(await his.call_tool("memory_get", {"id": written["id"]}))["code"] == "not_found"
        (entry,) = said(await hers.call_tool("memory_history", {"id": written["id"]}))["items"]
    assert (entry["actor"], entry["surface"]) == ("alice", "mcp")


def said(result: Any) -> dict[str, Any]:
    """A tool's answer or refusal, as data."""
    (block,) = result.content
    return json.loads(block.text)


async def test_a_restricted_caller_is_refused_by_the_engine(served: Served) -> None:
    """A tool that it does not see is called all the same: access_denied, as over any other surface."""
    async with client(served, await served.token("read")) as opened:
        refused = said(await opened.call_tool("memory_write", {"content": "A deed."}))
    assert refused["code"] == "access_denied"


class Proving(Verifier):
    """The verifier, by which anybody is one caller."""

    def __init__(self, who: Principal, storage: ReferenceStorage) -> None:
        super().__init__(SETTINGS, storage)
        self._who = who

    async def authenticate(self, authorization: str | None) -> Principal:
        """Who it is."""
        return self._who


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_a_larger_scope_is_asked_for_by_a_challenge(revision: str) -> None:
    """As the protocol's authorization says: 403 with insufficient_scope and the scope by which the tool is called.

    The error is that of the request, and everything else is answered as ever. A client sees what it may ask for: what
    it did not see it would not call.
    """
    storage = ReferenceStorage()
    reader = Proving(Principal(user="corp:alice", read_only=True, write_scope="m:write"), storage)
    async with serving(Callers(LOCAL, reader, url=URL), storage) as server:
        async with client(server, "Bearer x") as opened:
            tools = {tool.name for tool in (await opened.list_tools()).tools}
        refused = await called(server, "memory_write", {"content": "A deed."}, revision)
        others = [
            await called(server, "memory_list", {}, revision),
            await called(server, "section_save", {}, revision),
            await called(server, "nothing", {}, revision),
        ]

    assert tools == {tool_name(name) for name, operation in OPERATIONS.items() if operation.audience == "user"}
    assert refused.status_code == 403
    challenge = refused.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="muniment", error="insufficient_scope", ')
    assert challenge.endswith(f', scope="m:write", resource_metadata="{URL}{METADATA}"')
    assert refused.json()["id"] == 7
    assert refused.json()["error"]["data"]["code"] == "access_denied"
    assert refused.json()["error"]["data"]["details"] == {"error": "insufficient_scope", "scope": "m:write"}
    assert "memory_write changes something" in refused.json()["error"]["message"]
    assert all(one.status_code != 403 for one in others)
    assert "result" in others[0].json()


@pytest.mark.parametrize(
    "body", [b"[]", b"7", b"{", b'{"method": "tools/call"}', b'{"method": 1, "params": []}', b"\xff"]
)
async def test_what_is_no_call_asks_for_no_scope(body: bytes) -> None:
    """However broken it is."""
    storage = ReferenceStorage()
    reader = Proving(Principal(user="corp:alice", read_only=True, write_scope="m:write"), storage)
    async with serving(Callers(LOCAL, reader, url=URL), storage) as server:
        answer = await server.http.post(server.url, content=body, headers=HEADERS)
    assert answer.status_code == 400


async def called(served: Served, tool: str, arguments: dict[str, Any], revision: str) -> httpx2.Response:
    """The answer to a call of a tool."""
    request = {**call_of("memory.list", arguments, revision, 7)}
    request["params"] = {**request["params"], "name": tool}
    headers = {**HEADERS, "mcp-protocol-version": revision}
    if revision >= "2026":
        headers |= {"mcp-method": "tools/call", "mcp-name": tool}
    return await served.http.post(served.url, json=request, headers=headers)


async def test_a_stranger_is_refused_before_anything_is_read(served: Served) -> None:
    """A body that never comes is not waited for."""
    url = httpx2.URL(served.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n")
    async with asyncio.timeout(20):
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    writer.close()


async def test_what_cannot_be_checked_is_no_challenge() -> None:
    """503 with how long to wait: the credentials may be good, and the client is not to throw them away."""
    credentials = Credentials()
    credentials.proves = {"Bearer x": IssuerUnavailable(issuer="corp", retry_after=3)}
    async with serving(Callers(LOCAL, credentials), ReferenceStorage()) as server:
        answer = await server.post("Bearer x")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "3"
    assert answer.json()["error"]["data"]["code"] == "issuer_unavailable"
    assert "www-authenticate" not in answer.headers


async def test_the_public_name_is_served_and_no_other(served: Served) -> None:
    """A proxy passes on the name that clients use; a page of its site may call."""
    good = await served.token("write")

    assert (await served.post(good, host="memory.example.com")).status_code == 200
    assert (await served.post(good, host="memory.example.com", origin=URL)).status_code == 200
    assert (await served.post(good, host="evil.example.com")).status_code == 421
    assert (await served.post(good, origin="https://evil.example.com")).status_code == 403


async def test_an_address_of_other_machines_needs_an_authenticator() -> None:
    """And without one nothing is listened at, also not where nobody said that nobody is asked."""
    async with Engine(ReferenceStorage(), None) as engine:
        for callers, host in ((Callers(LOCAL, anybody=True), "0.0.0.0"), (Callers(LOCAL), "127.0.0.1")):
            with pytest.raises(ConfigurationError, match=r"credentials|who may call"):
                await HttpTransport.at(f"http://{host}:0").serve(engine, callers)
