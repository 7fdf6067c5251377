"""Bearer credentials, and what a client is told that has none, bad ones or too small ones."""

from __future__ import annotations

from typing import Any

import pytest

from muniment.authentication.settings import NOBODY_IS_ASKED, AuthSettings
from muniment.authentication.tokens import new_token
from muniment.authentication.verifier import Verifier
from muniment.engine import Engine
from muniment.errors import (
    AccessDenied,
    ConfigurationError,
    IssuerUnavailable,
    MunimentError,
    NotFound,
    Unauthenticated,
)
from muniment.models import CallContext, Principal
from muniment.operations import OPERATIONS
from muniment.ports import Authenticator, Callers, Storage, metadata_url
from muniment.reference import ReferenceStorage

RESOURCE = "https://memory.example.com/mcp"
ISSUER = {"issuer": "https://login.example.com", "audience": RESOURCE}
SCOPED = {"issuers": {"corp": {**ISSUER, "read_scope": "m:read", "write_scope": "m:write"}}}


def verifier(settings: dict[str, Any] | None = None, storage: Storage | None = None) -> Verifier:
    """One by a table of the configuration."""
    return Verifier(AuthSettings.model_validate(settings or {}), storage or ReferenceStorage())


def test_it_is_what_transports_take() -> None:
    """The protocol of the port, whole."""
    assert isinstance(verifier(), Authenticator)


async def test_the_header_of_an_api_token() -> None:
    """The scheme in any case, one token, nothing else."""
    storage = ReferenceStorage()
    secret, token = new_token("alice", frozenset(), ("write",), None)
    await storage.add_token(token)
    checked = verifier(storage=storage)

    for header in (f"Bearer {secret}", f"bearer  {secret} ", f"BEARER {secret}"):
        assert (await checked.authenticate(header)).user == "alice"
    for header in (
        secret,
        f"Basic {secret}",
        f"Bearer {secret}, {secret}",
        f"Bearer{secret}",
        f"Bearer {secret}\u00e9",
    ):
        with pytest.raises(Unauthenticated, match="not of the form") as refusal:
            await checked.authenticate(header)
        assert secret not in refusal.value.message
    await checked.close()


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer " + "a" * 20_000])
async def test_a_header_that_holds_no_token(header: str) -> None:
    """It is refused unread."""
    with pytest.raises(Unauthenticated) as refusal:
        await verifier().authenticate(header)
    assert refusal.value.details["error"] == "invalid_token"


async def test_a_header_that_is_too_long_is_told_the_limit() -> None:
    """It may be of the form all the same: a token with hundreds of groups."""
    with pytest.raises(Unauthenticated, match=r"more than 16,384 characters") as refusal:
        await verifier().authenticate("Bearer " + "a" * 16_378)
    assert refusal.value.details["error"] == "invalid_token"
    with pytest.raises(Unauthenticated, match="Only API tokens"):
        await verifier().authenticate("Bearer " + "a" * 16_377)


async def test_what_is_not_configured_is_not_accepted() -> None:
    """API tokens where they are off, JWTs where there is no issuer."""
    storage = ReferenceStorage()
    secret, token = new_token("alice", frozenset(), ("write",), None)
    await storage.add_token(token)

    with pytest.raises(Unauthenticated, match="not accepted here"):
        await verifier({"tokens": False, **SCOPED}, storage).authenticate(f"Bearer {secret}")
    with pytest.raises(Unauthenticated, match="Only API tokens"):
        await verifier(storage=storage).authenticate("Bearer a.b.c")


async def test_a_challenge_without_credentials() -> None:
    """RFC 6750: no error, since nothing was wrong; the scopes to ask for, and where to learn whom to ask."""
    checked = verifier(SCOPED)
    with pytest.raises(Unauthenticated) as refusal:
        await checked.authenticate(None)

    assert checked.challenge(refusal.value, RESOURCE) == (
        'Bearer realm="muniment", scope="m:read m:write", '
        'resource_metadata="https://memory.example.com/.well-known/oauth-protected-resource/mcp"'
    )
    assert verifier().challenge(refusal.value, RESOURCE) == 'Bearer realm="muniment"'


def test_a_challenge_says_what_is_wrong() -> None:
    """invalid_token, or insufficient_scope; the description holds nothing that a header cannot."""
    checked = verifier()
    invalid = checked.challenge(Unauthenticated('It "is" ünfit\\\r\nX: y', error="invalid_token"), RESOURCE)
    small = verifier(SCOPED).challenge(AccessDenied("Too small.", error="insufficient_scope"), RESOURCE)

    assert invalid == 'Bearer realm="muniment", error="invalid_token", error_description="It  is   nfit   X: y"'
    assert small is not None
    assert 'error="insufficient_scope", error_description="Too small.", scope="m:read m:write"' in small


def test_a_challenge_names_the_scope_that_the_refusal_does() -> None:
    """The one of the issuer that the caller is of, and not all that any issuer has."""
    refusal = AccessDenied("Too small.", error="insufficient_scope", scope="m:write")
    challenge = verifier(SCOPED).challenge(refusal, RESOURCE)
    assert challenge is not None
    assert ', scope="m:write", resource_metadata=' in challenge


@pytest.mark.parametrize("refusal", [NotFound(), IssuerUnavailable(), AccessDenied("You may read it.")])
def test_other_refusals_are_no_challenge(refusal: MunimentError) -> None:
    """A client that were challenged would sign in again, and be refused again."""
    assert verifier(SCOPED).challenge(refusal, RESOURCE) is None


def test_metadata() -> None:
    """RFC 9728: the resource as it was asked for, and the issuers that it takes tokens from."""
    assert verifier(SCOPED).metadata(RESOURCE) == {
        "resource": RESOURCE,
        "bearer_methods_supported": ["header"],
        "authorization_servers": ["https://login.example.com"],
        "scopes_supported": ["m:read", "m:write"],
    }
    assert verifier().metadata(RESOURCE) == {"resource": RESOURCE, "bearer_methods_supported": ["header"]}


def test_where_metadata_is() -> None:
    """RFC 9728, section 3.1: between the host and the path of the resource."""
    assert metadata_url("https://a.example:8443/x/mcp") == (
        "https://a.example:8443/.well-known/oauth-protected-resource/x/mcp"
    )
    assert metadata_url("https://a.example") == "https://a.example/.well-known/oauth-protected-resource"


def test_a_storage_without_tokens_is_refused_at_the_start() -> None:
    """A plugin of an older contract keeps none; who turns API tokens off may use it."""

    class Older:
        """Nothing of a storage that matters here."""

    older: Any = Older()
    with pytest.raises(ConfigurationError, match="upgrade it"):
        verifier(storage=older)
    verifier({"tokens": False, **SCOPED}, older)


async def test_a_caller_that_may_only_read() -> None:
    """The engine refuses every operation that changes something, and answers every other one as ever."""
    reader = CallContext(principal=Principal(user="alice", read_only=True))
    async with Engine(ReferenceStorage(), None) as engine:
        for name, operation in OPERATIONS.items():
            if operation.read_only:
                continue
            with pytest.raises(AccessDenied, match="may only read"):
                await engine.call(name, {}, reader)
        assert await engine.call("memory.list", {}, reader)


async def test_a_reader_is_told_of_the_scope_that_would_do() -> None:
    """Where there is one, and where it would do: who is no agent may call no operation of agents with any scope."""
    reader = CallContext(principal=Principal(user="corp:alice", read_only=True, write_scope="m:write"))
    by_token = CallContext(principal=Principal(user="alice", read_only=True))
    async with Engine(ReferenceStorage(), None) as engine:
        told = [
            await refused(engine, name, who) for name, who in [("memory.write", reader), ("memory.write", by_token)]
        ]
        others = [await refused(engine, "agent.register", reader), await refused(engine, "section.save", by_token)]
        no_agent = await refused(engine, "section.read", reader)

    assert told == [{"error": "insufficient_scope", "scope": "m:write"}, {"error": "insufficient_scope"}]
    assert [*others, no_agent] == [{}, {}, {}]


async def refused(engine: Engine, operation: str, caller: CallContext) -> dict[str, Any]:
    """The details of the refusal."""
    with pytest.raises(AccessDenied) as refusal:
        await engine.call(operation, {}, caller)
    return dict(refusal.value.details)


LOCAL = CallContext(principal=Principal(user="ada"))


def test_nobody_is_asked_only_by_name_and_only_here() -> None:
    """Without an authenticator: this machine's own address, and only where the configuration says so."""
    with pytest.raises(ConfigurationError, match="--no-auth"):
        Callers(LOCAL).check_address("127.0.0.1", loopback=True)
    for anybody in (True, False):
        with pytest.raises(ConfigurationError, match="credentials"):
            Callers(LOCAL, anybody=anybody).check_address("0.0.0.0", loopback=False)
    Callers(LOCAL, anybody=True).check_address("127.0.0.1", loopback=True)
    Callers(LOCAL, verifier()).check_address("127.0.0.1", loopback=True)


def test_other_machines_are_told_a_url() -> None:
    """Their clients cannot guess it from an address such as 0.0.0.0, and pages are told apart by it."""
    with pytest.raises(ConfigurationError, match="url in"):
        Callers(LOCAL, verifier()).check_address("0.0.0.0", loopback=False)
    Callers(LOCAL, verifier(), url="https://memory.example.com").check_address("0.0.0.0", loopback=False)


async def test_whom_a_request_is_of() -> None:
    """With an authenticator, whom it proves, and nothing of the local caller; without, the local caller."""
    storage = ReferenceStorage()
    secret, token = new_token("alice", frozenset(), ("read",), None)
    await storage.add_token(token)
    local = LOCAL.model_copy(update={"default_project": "acme"})
    checked = verifier(storage=storage)

    proved = await Callers(local, checked, anybody=True).context(f"Bearer {secret}")
    assert proved == CallContext(principal=Principal(user="alice", read_only=True))
    with pytest.raises(Unauthenticated):
        await Callers(local, checked, anybody=True).context(None)
    assert await Callers(local, anybody=True).context(f"Bearer {secret}") == local
    await checked.close()


def test_no_authentication_is_not_an_empty_table() -> None:
    """``auth = "none"`` lets anybody in; ``[auth]`` with nothing in it lets in who has an API token."""
    assert AuthSettings() is not NOBODY_IS_ASKED
