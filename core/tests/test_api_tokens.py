"""API tokens: what is kept of them, what they allow, and when they no longer do."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muniment.authentication import scopes
from muniment.authentication.tokens import ApiTokens, new_token, state
from muniment.errors import InvalidInput, StorageUnavailable, Unauthenticated
from muniment.models import Agent, Principal
from muniment.ports import StoredToken
from muniment.reference import ReferenceData, ReferenceStorage

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Clock:
    """The time, which passes when a test says so."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


class Noting(ReferenceStorage):
    """A storage that counts how often a use is noted, and may hold that up or fail."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(ReferenceData(), clock=clock)
        self.noted: list[str] = []
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.failure: Exception | None = None

    async def touch_token(self, token_id: str) -> None:
        self.noted.append(token_id)
        await self.let_go.wait()
        if self.failure is not None:
            raise self.failure
        await super().touch_token(token_id)


@pytest.fixture
def clock() -> Clock:
    """One for storage and server."""
    return Clock()


@pytest.fixture
def storage(clock: Clock) -> Noting:
    """An empty one."""
    return Noting(clock)


@pytest.fixture
def tokens(storage: Noting, clock: Clock) -> ApiTokens:
    """What checks secrets against it."""
    return ApiTokens(storage, clock=clock)


async def made(storage: Noting, *scope: str, expires_at: datetime | None = None) -> tuple[str, StoredToken]:
    """A token of alice's that is kept, with its secret."""
    secret, token = new_token("alice", frozenset({"eng"}), scope or ("write",), expires_at)
    return secret, await storage.add_token(token)


async def test_a_secret_proves_its_user(storage: Noting, tokens: ApiTokens) -> None:
    """The user, the groups and the scopes that it was made with, and nothing else."""
    secret, _ = await made(storage)
    assert await tokens.principal(secret) == Principal(user="alice", groups=frozenset({"eng"}))
    await tokens.close()


async def test_nothing_that_is_kept_lets_anybody_in(storage: Noting, tokens: ApiTokens) -> None:
    """A secret is 256 random bits behind a prefix that scanners know; only its hash is kept, which proves nobody."""
    secret, token = await made(storage)
    other, _ = await made(storage)
    (digest, *_) = [row.digest for row in storage.data.tokens.values()]

    assert re.fullmatch(r"muniment_[A-Za-z0-9_-]{43}", secret)
    assert secret != other
    assert secret.removeprefix("muniment_") not in repr(storage.data)
    assert digest not in repr(token)
    for guess in (digest, f"muniment_{digest}", token.id, secret[:-1], f"{secret}a", secret.swapcase(), "muniment_"):
        with pytest.raises(Unauthenticated, match="no such"):
            await tokens.principal(guess)


async def test_an_expired_token_proves_nobody(storage: Noting, tokens: ApiTokens, clock: Clock) -> None:
    """From the moment of its end on."""
    secret, token = await made(storage, expires_at=NOW + timedelta(days=1))

    clock.now += timedelta(days=1, microseconds=-1)
    assert (await tokens.principal(secret)).user == "alice"
    clock.now += timedelta(microseconds=1)
    with pytest.raises(Unauthenticated, match=f"{token.id} is expired"):
        await tokens.principal(secret)
    await tokens.close()


async def test_a_revoked_token_proves_nobody_from_the_next_request_on(storage: Noting, tokens: ApiTokens) -> None:
    """However lately it was used."""
    secret, token = await made(storage)
    await tokens.principal(secret)
    await storage.revoke_token(token.id)

    with pytest.raises(Unauthenticated, match=f"{token.id} is revoked"):
        await tokens.principal(secret)
    await tokens.close()


async def test_the_last_use_is_noted_once_a_minute(storage: Noting, tokens: ApiTokens, clock: Clock) -> None:
    """Whichever process notes it: one that starts anew goes by what is kept."""
    secret, token = await made(storage)
    for _ in range(5):
        await tokens.principal(secret)
        await tokens.principal(secret)
        await tokens.close()
        clock.now += timedelta(seconds=10)
    anew = ApiTokens(storage, clock=clock)
    await anew.principal(secret)
    await anew.close()
    assert storage.noted == [token.id]
    assert storage.data.tokens[token.id].token.last_used_at == NOW

    clock.now += timedelta(seconds=10)
    await anew.principal(secret)
    await anew.close()
    assert storage.noted == [token.id] * 2


@pytest.mark.parametrize("failure", [StorageUnavailable("down"), RuntimeError("a secret of the driver")])
async def test_a_use_that_cannot_be_noted_fails_nobody(
    storage: Noting, tokens: ApiTokens, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The request goes on, before it is noted and if it is not; the log says so, without the driver's words."""
    secret, token = await made(storage)
    storage.failure = failure
    storage.let_go.clear()

    assert (await tokens.principal(secret)).user == "alice"
    assert "noted" not in caplog.text
    storage.let_go.set()
    await tokens.close()
    assert token.id in caplog.text
    assert "driver" not in caplog.text


async def test_closing_waits_for_what_is_being_noted(storage: Noting, tokens: ApiTokens) -> None:
    """So that it finds the storage open."""
    secret, token = await made(storage)
    storage.let_go.clear()
    await tokens.principal(secret)
    closing = asyncio.create_task(tokens.close())
    await asyncio.sleep(0)
    assert not closing.done()

    storage.let_go.set()
    await closing
    assert storage.data.tokens[token.id].token.last_used_at == NOW


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("read",), {"read_only": True}),
        (("write",), {}),
        (("read", "write"), {}),
        (("read", "agent=ada/x/1"), {"read_only": True, "agent": Agent(name="ada/x", instance="1")}),
        (("write", "platform"), {"platform": True}),
    ],
)
def test_scopes(given: tuple[str, ...], expected: dict[str, Any]) -> None:
    """Each allows what it names: write includes read, an agent is one instance."""
    found = scopes.principal("alice", frozenset(), scopes.checked(given))
    assert found == Principal(user="alice", **expected)


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("agent=ada/1",),
        ("platform",),
        ("write", "admin"),
        ("Write",),
        ("write", "agent=ada"),
        ("write", "agent="),
        ("write", "agent=ada/1", "agent=ada/2"),
        ("write", "agent=ada/1", "platform"),
        ("read write",),
    ],
)
def test_scopes_that_are_none(given: tuple[str, ...]) -> None:
    """A misspelt scope makes no token; nor do scopes that allow nothing, or too much together."""
    with pytest.raises(InvalidInput, match=r"^scope: "):
        new_token("alice", frozenset(), given, None)


@pytest.mark.parametrize("name", ["", " ", "a" * 201, "a\nb"])
def test_names_that_are_none(name: str) -> None:
    """A token is of a user, and of groups, that there can be."""
    with pytest.raises(InvalidInput, match=r"^user: "):
        new_token(name, frozenset(), ("read",), None)
    with pytest.raises(InvalidInput, match=r"^group: "):
        new_token("alice", frozenset({name}), ("read",), None)


def test_states() -> None:
    """Revoked is what is said of a token that is expired too."""
    token = StoredToken("id", "alice", frozenset(), ("read",), NOW)

    assert state(token, NOW) == "active"
    assert state(replace(token, expires_at=NOW), NOW) == "expired"
    assert state(replace(token, expires_at=NOW, revoked_at=NOW), NOW) == "revoked"
