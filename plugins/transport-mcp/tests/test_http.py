"""Streamable HTTP, by the SDK's client and by bare requests: who is let in, and how much."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from muniment.engine import Engine
from muniment.errors import ConfigurationError
from muniment.limits import BODY_MAX
from muniment.models import CallContext, Principal
from muniment.ports import Callers, PluginContext
from muniment.reference import ReferenceStorage
from muniment.serving.addresses import Address, listening
from muniment_transport_mcp import frames
from muniment_transport_mcp.http import HttpTransport
from muniment_transport_mcp.transport import create

Served = Callable[..., AbstractAsyncContextManager[str]]
Bare = tuple[httpx2.AsyncClient, str]

ERAS = [("legacy", "2025-11-25"), ("auto", "2026-07-28")]
ADA = CallContext(principal=Principal(user="ada"), surface="cli")
JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
CALL: dict[str, Any] = {**LIST, "method": "tools/call", "params": {"name": "memory_list", "arguments": {}}}


@pytest.fixture
async def bare(served: Served) -> AsyncGenerator[tuple[httpx2.AsyncClient, str]]:
    """A client that sends what it is told, and the address to send it to."""
    async with served() as url, httpx2.AsyncClient(trust_env=False, headers=JSON) as client:
        yield client, url


async def succeed(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The record of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert not result.is_error, block.text
    return json.loads(block.text)


@pytest.mark.parametrize(("mode", "revision"), ERAS)
async def test_both_generations_are_served_at_one_address(served: Served, mode: str, revision: str) -> None:
    """A client that begins by a handshake and one that does not both write and read, as the configured user."""
    async with served() as url, Client(url, mode=mode) as client:
        assert client.protocol_version == revision
        assert client.instructions
        assert "memory_patch" in {tool.name for tool in (await client.list_tools()).tools}
        written = await succeed(client, "memory_write", content="Deploys are frozen — 金曜日 🧊.\r\n")
        memory = await succeed(client, "memory_get", id=written["id"])
        assert (memory["content"], memory["last_edited_by"]) == ("Deploys are frozen — 金曜日 🧊.\r\n", "ada")
        entry = (await succeed(client, "memory_history", id=written["id"]))["items"][0]
        assert entry["surface"] == "mcp"


async def test_two_clients_at_once_share_one_engine(served: Served) -> None:
    """Of two clients that edit the same version at once one wins, and the other is told so."""
    async with served() as url, Client(url, mode="legacy") as one, Client(url, mode="auto") as other:
        memory = await succeed(one, "memory_write", content="first")
        edits = [
            client.call_tool("memory_update", {"id": memory["id"], "version": 1, "content": f"by {number}"})
            for number, client in enumerate((one, other))
        ]
        results = await asyncio.gather(*edits)
        assert sorted(isinstance(result, CallToolResult) and result.is_error is True for result in results) == [
            False,
            True,
        ]
        assert (await succeed(other, "memory_get", id=memory["id"]))["version"] == 2


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
async def test_another_host_is_refused(bare: Bare, host: str) -> None:
    """A page that rebound its own name to this machine reaches nothing."""
    client, url = bare
    assert (await client.post(url, json=LIST, headers={"host": host})).status_code in (400, 421)
    assert (await client.post(url, json=LIST, headers={"host": "localhost:1"})).status_code == 200


async def test_another_origin_is_refused(bare: Bare) -> None:
    """A page of another site, or of another port of this machine, reaches nothing; one of this server may."""
    client, url = bare
    own = url.removesuffix("/mcp")
    for origin in ("https://evil.example", "http://127.0.0.1:1", "http://localhost", "null"):
        assert (await client.post(url, json=LIST, headers={"origin": origin})).status_code == 403
    assert (await client.post(url, json=LIST, headers={"origin": own})).status_code == 200


async def test_what_is_no_request_is_refused_with_a_reason(bare: Bare) -> None:
    """Another path, another method and a body that is no JSON."""
    client, url = bare
    nowhere = await client.post(url.removesuffix("/mcp") + "/", json=LIST)
    assert (nowhere.status_code, nowhere.json()["error"]["data"]["code"]) == (404, "not_found")
    for method in ("GET", "DELETE", "PUT", "OPTIONS"):
        refused = await client.request(method, url)
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    broken = await client.post(url, content=b"{")
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, -32700)


async def in_pieces(count: int, sent: list[int] | None = None) -> AsyncIterator[bytes]:
    """So many megabytes, whose length is not said."""
    for number in range(count):
        if sent is not None:
            sent.append(number)
        yield b" " * 2**20


async def test_a_body_over_the_limit_is_refused_typed(bare: Bare) -> None:
    """413 says the limit, by the length that is announced and by what comes, and the server goes on."""
    client, url = bare
    announced = await client.post(url, content=b"", headers={"content-length": "0"})
    assert announced.status_code == 400
    for content in (b" " * (BODY_MAX + 1), in_pieces(BODY_MAX // 2**20 + 1)):
        refused = await client.post(url, content=content)
        assert refused.status_code == 413
        data = refused.json()["error"]["data"]
        assert (data["code"], data["details"]) == ("payload_too_large", {"limit": BODY_MAX})
    assert (await client.post(url, json=LIST)).status_code == 200


@pytest.mark.parametrize(
    ("path", "host", "status"), [("/mcp", "localhost", 413), ("/else", "localhost", 404), ("/mcp", "evil.example", 421)]
)
async def test_a_body_without_an_end_is_cut_off(bare: Bare, path: str, host: str, status: int) -> None:
    """A client that does not stop sending loses its connection, whatever it was refused for."""
    client, url = bare
    sent: list[int] = []
    at = url.removesuffix("/mcp") + path
    with suppress(httpx2.TransportError):
        refused = await client.post(at, content=in_pieces(100_000, sent), headers={"host": host})
        assert refused.status_code == status
    assert len(sent) < 100_000
    assert (await client.post(url, json=LIST)).status_code == 200


async def test_what_repairing_makes_too_long_is_refused_typed(bare: Bare) -> None:
    """Stray bytes are read as NUL, escaped, which may be more than is taken; it is refused as what comes too long."""
    client, url = bare
    stray = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"' + b"\xff" * (BODY_MAX // 6) + b'"}}'
    refused = await client.post(url, content=stray)
    assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (413, "payload_too_large")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("text", [rb"lone \ud800 surrogate", b"stray \xff byte", rb"\ud83d\ude00 and \udfff"])
async def test_text_that_utf8_cannot_carry_is_refused_by_its_field(bare: Bare, revision: str, text: bytes) -> None:
    """READ-05: the engine's refusal, as over stdio, and no parse error that names nothing."""
    meta = b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    meta += b'"io.modelcontextprotocol/clientCapabilities":{}},'
    headers = {"mcp-protocol-version": revision}
    if revision == "2026-07-28":
        headers |= {"mcp-method": "tools/call", "mcp-name": "memory_write"}
    call = b'{"jsonrpc":"2.0","id":7,"method":"tools/call",'
    call += b'"params":{%b"name":"memory_write","arguments":{"content":"%b"}}}'
    client, url = bare
    answer = await client.post(url, content=call % (meta, text), headers=headers)
    refusal = json.loads(answer.json()["result"]["content"][0]["text"])
    assert (refusal["code"], refusal["details"]) == ("invalid_input", {"field": "content"})
    whole = await client.post(url, content=call % (meta, rb"\ud83d\ude00"), headers=headers)
    assert not whole.json()["result"].get("isError")


async def test_a_port_that_is_taken_is_refused() -> None:
    """Whoever starts a second server is told which port, and what to do."""
    with listening(Address("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        transport = create(PluginContext(spec=f"mcp:http://127.0.0.1:{port}", data_dir=Path()))
        async with Engine(ReferenceStorage(), None) as engine:
            with pytest.raises(ConfigurationError, match=f"port {port}.*choose another"):
                await transport.serve(engine, Callers(ADA, anybody=True))


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.1.5", "example.org", "127.0.0.1.example.org"])
async def test_only_this_machine_is_served(host: str) -> None:
    """As long as nobody is authenticated, an address that others reach is refused, and the reason given."""
    async with Engine(ReferenceStorage(), None) as engine:
        with pytest.raises(ConfigurationError, match="credentials"):
            await HttpTransport.at(f"http://{host}:8765").serve(engine, Callers(ADA, anybody=True))


NO_ADDRESSES = """
    http: http:// http://8765 http://127.0.0.1 http://127.0.0.1:x http://127.0.0.1:99999 http://127.0.0.1:1/mcp
    http://ada@127.0.0.1:1 https://127.0.0.1:1 http://127.0.0.1:1?x http://[::1 http://::1:80
"""


@pytest.mark.parametrize("url", NO_ADDRESSES.split())
def test_an_address_that_cannot_be_read_is_refused(url: str) -> None:
    """It is shown what an address looks like."""
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:8765"):
        HttpTransport.at(url)


def test_addresses_of_this_machine() -> None:
    """By number in either family, and by the one name that every machine has."""
    for url, host in (("127.0.0.1:0", "127.0.0.1"), ("127.1.2.3:80", "127.1.2.3"), ("localhost:1", "127.0.0.1")):
        assert HttpTransport.at(f"http://{url}").address.host == host
    assert HttpTransport.at("http://[::1]:8765").address.host == "::1"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [('{"content": "a", "content": "b"}', "content"), ('{"content": "a", "x": [{"z": 1, "z": 1}]}', "z")],
)
async def test_a_member_is_said_once(bare: Bare, arguments: str, name: str) -> None:
    """Two members of one name are refused at any depth, and nothing is written, as over HTTP by itself."""
    client, url = bare
    body = CALL | {"params": {"name": "memory_write", "arguments": "<>"}}
    refused = await client.post(url, content=json.dumps(body).replace('"<>"', arguments))
    listed = await client.post(url, json=CALL)

    assert refused.status_code == 422
    error = refused.json()["error"]
    assert (error["data"]["code"], error["data"]["details"]) == ("invalid_input", {"field": "body"})
    assert f'"{name}" more than once' in error["message"]
    assert json.loads(listed.json()["result"]["content"][0]["text"])["items"] == []


def test_a_member_of_a_line_is_said_once() -> None:
    """Over stdio too; the request that it is of is answered."""
    with pytest.raises(frames.BadFrame) as refused:
        frames.decode(b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"a": 1, "a": 2}}')

    answer = refused.value.answer
    assert answer is not None
    assert (answer.id, answer.error.data["code"]) == (7, "invalid_input")
