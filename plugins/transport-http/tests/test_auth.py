"""Credentials over HTTP, by the verifier and API tokens as they are: who is let in, and what the others are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager

import httpx2
import pytest

from muniment.authentication.settings import AuthSettings
from muniment.authentication.tokens import new_token
from muniment.authentication.verifier import Verifier
from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.ports import Callers, TokenStorage
from muniment.serving import doorway
from muniment_transport_http import stream

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]

LOOKED = ": nothing new"
"""What a stream says when it has looked at its credentials and nothing arrived."""


@pytest.fixture
async def client(engine: Engine, serve: Open) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of a server that asks for API tokens; the configured user is nobody here."""
    verifier = Verifier(AuthSettings(), engine.storage)
    local = CallContext(principal=Principal(user="ops", platform=True))
    async with serve(engine, Callers(local, verifier)) as opened:
        yield opened
    await verifier.close()


async def bearer(engine: Engine, *scopes: str, user: str = "alice") -> dict[str, str]:
    """The header with a token of its own."""
    secret, token = new_token(user, frozenset(), scopes, None)
    assert isinstance(engine.storage, TokenStorage)
    await engine.storage.add_token(token)
    return {"authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("path", ["/v1/memories", "/openapi.json", "/v1/agent/events", "/nothing"])
async def test_nothing_is_shown_without_credentials(client: httpx2.AsyncClient, path: str) -> None:
    """401 as a problem with a challenge, whatever is wrong with the credentials, and whatever is asked for."""
    for headers in ([], [("authorization", "Bearer nonsense")], [("authorization", "Basic Z29vZA==")]):
        refused = await client.get(path, headers=headers)

        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["www-authenticate"].startswith("Bearer ")


async def test_a_token_says_who_calls(engine: Engine, client: httpx2.AsyncClient) -> None:
    """The caller is its user, and never the configured one; the input says nothing of it."""
    headers = await bearer(engine, "write")
    written = await client.post("/v1/memories", json={"content": "mine"}, headers=headers)
    (entry,) = (await client.get(f"{written.headers['location']}/history", headers=headers)).json()["items"]
    other = await client.get(written.headers["location"], headers=await bearer(engine, "write", user="bob"))
    platform = await client.put("/v1/agents/ada/1", json={"pods": []}, headers=headers)

    assert (entry["actor"], entry["surface"]) == ("alice", "http")
    assert (other.status_code, platform.status_code) == (404, 403)


async def test_credentials_come_first(client: httpx2.AsyncClient) -> None:
    """A request that is wrong in every way is refused by its credentials, and learns nothing else."""
    refused = await client.post("/v1/memories?x=1", content=b"{", headers={"content-type": "text/plain"})

    assert refused.status_code == 401


async def test_one_header_says_who_calls(engine: Engine, client: httpx2.AsyncClient) -> None:
    """Two of them are none, since two readers may each believe another."""
    good = (await bearer(engine, "write"))["authorization"]
    twice = [("authorization", good), ("authorization", good)]

    assert (await client.get("/v1/memories", headers=twice)).status_code == 401
    assert (await client.get("/v1/memories", headers=twice[:1])).status_code == 200


async def test_a_token_that_may_only_read(engine: Engine, client: httpx2.AsyncClient) -> None:
    """It lists and searches, also by POST, and changes nothing."""
    headers = await bearer(engine, "read")

    assert (await client.get("/v1/memories", headers=headers)).status_code == 200
    assert (await client.post("/v1/search", json={"query": "q"}, headers=headers)).status_code == 200
    refused = await client.post("/v1/memories", json={"content": "c"}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (403, "access_denied")


@pytest.fixture
async def reader(engine: Engine, serve: Open) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of a server where a token of an issuer, whose scope is read alone, proves alice."""
    who = Principal(user="corp:alice", read_only=True, write_scope="m:write")
    async with serve(engine, Callers(CallContext(principal=Principal(user="ops")), Proving(who, engine))) as opened:
        yield opened


class Proving(Verifier):
    """The verifier of one issuer, whose tokens are of one caller."""

    def __init__(self, who: Principal, engine: Engine) -> None:
        issuer = {"issuer": "https://login.example.com", "audience": "m", "read_scope": "m:read"}
        table = {"issuers": {"corp": {**issuer, "write_scope": "m:write"}}}
        super().__init__(AuthSettings.model_validate(table), engine.storage)
        self._who = who

    async def authenticate(self, authorization: str | None) -> Principal:
        """Alice."""
        return self._who


async def test_who_may_only_read_is_told_by_which_scope_one_writes(reader: httpx2.AsyncClient) -> None:
    """RFC 6750, section 3.1: 403 with insufficient_scope and the scope to ask for, so that a client steps up."""
    assert (await reader.get("/v1/memories")).status_code == 200
    refused = await reader.post("/v1/memories", json={"content": "c"})

    assert refused.status_code == 403
    assert refused.json()["details"] == {"error": "insufficient_scope", "scope": "m:write"}
    challenge = refused.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="muniment", error="insufficient_scope", ')
    assert ', scope="m:write", resource_metadata="' in challenge


async def test_the_stream_is_for_who_may_claim(engine: Engine, client: httpx2.AsyncClient) -> None:
    """An agent's token opens it; one that may only read could not claim, and does not."""
    async with client.stream("GET", "/v1/agent/events", headers=await bearer(engine, "write", "agent=ada/1")) as opened:
        assert opened.status_code == 200
    refused = await client.get("/v1/agent/events", headers=await bearer(engine, "read", "agent=ada/1"))
    assert refused.status_code == 403
    assert refused.json()["details"] == {"error": "insufficient_scope"}
    assert refused.headers["www-authenticate"].startswith('Bearer realm="muniment", error="insufficient_scope", ')


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_stream_ends_with_its_credentials(
    engine: Engine, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """At the next look after its token was revoked; another token's end is nothing to it."""
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.1)
    storage = engine.storage
    assert isinstance(storage, TokenStorage)
    opened = await bearer(engine, "write", "agent=ada/1")
    (own,) = await storage.list_tokens(after=None, limit=9)
    await bearer(engine, "write", "agent=ada/1")
    (other,) = [token for token in await storage.list_tokens(after=None, limit=9) if token.id != own.id]
    async with asyncio.timeout(30), client.stream("GET", "/v1/agent/events", headers=opened) as response:
        lines = response.aiter_lines()
        while await anext(lines) != LOOKED:
            pass
        await storage.revoke_token((other if goes_on else own).id)
        ended = True
        checks = 0
        async for line in lines:
            checks += line == LOOKED
            if checks > 3:
                ended = False
                break

    assert ended is not goes_on


async def test_anybody_may_ask_where_credentials_come_from(client: httpx2.AsyncClient) -> None:
    """The metadata of RFC 9728 is there without credentials."""
    found = await client.get("/.well-known/oauth-protected-resource")

    assert (found.status_code, found.json()["resource"]) == (200, str(client.base_url).rstrip("/"))


async def test_the_document_says_that_credentials_are_asked_for(engine: Engine, client: httpx2.AsyncClient) -> None:
    """Bearer credentials, for every operation."""
    document = (await client.get("/openapi.json", headers=await bearer(engine, "read"))).json()

    assert document["security"] == [{"bearer": []}]


async def test_too_many_at_once_are_told_when_to_come_back(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429 has Retry-After, as the document says."""
    monkeypatch.setattr(doorway, "REQUESTS_MAX", 0)

    refused = await client.get("/v1/memories")

    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (429, "rate_limited", "1")
