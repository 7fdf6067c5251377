"""The ``[auth]`` table: where it comes from, what is refused, and what a report shows of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from muniment import config
from muniment.authentication.findings import findings
from muniment.authentication.settings import NOBODY_IS_ASKED, AuthSettings
from muniment.cli.serve import as_of, callers, verifier_of, warn_of_audiences
from muniment.config import Settings, redact
from muniment.engine.watching import unwatched
from muniment.errors import ConfigurationError, PluginError
from muniment.models import CallContext, Principal
from muniment.ports import Callers
from muniment.reference import ReferenceStorage
from muniment.serving.addresses import Address

TABLE = """
[auth]
url = "https://memory.example.com/"

[auth.issuers.corp]
issuer = "https://login.example.com/realms/corp"
audience = ["https://memory.example.com/mcp", "https://memory.example.com/api"]
algorithms = ["RS256", "ES256"]
groups_claim = ["realm_access", "roles"]
write_scope = "memory:write"
"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, and an empty working directory."""
    for name in list(os.environ):
        if name.startswith(config.PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def written(text: str) -> Settings:
    """The settings of a file with this text."""
    Path("muniment.toml").write_text(text, encoding="utf-8")
    return Settings.load()


def test_a_table_of_the_file() -> None:
    """Short forms are made long; what is left out has its default."""
    auth = written(TABLE).auth
    assert auth is not None
    corp = auth.issuers["corp"]

    assert (auth.url, auth.tokens) == ("https://memory.example.com", True)
    assert corp.audience == ("https://memory.example.com/mcp", "https://memory.example.com/api")
    assert (corp.subject_claim, corp.groups_claim) == (("sub",), ("realm_access", "roles"))
    assert (corp.leeway, corp.read_scope, corp.agent_claim) == (30, None, None)


def test_what_a_report_shows() -> None:
    """Every value that is set, and where from."""
    settings = written(TABLE)
    shown = settings.shown()

    assert shown["auth.url"] == "https://memory.example.com"
    assert shown["auth.issuers.corp.algorithms"] == "RS256 ES256"
    assert shown["auth.issuers.corp.groups_claim"] == "realm_access roles"
    assert settings.origin("auth") == str(Path("muniment.toml").absolute())
    assert written("").shown()["auth"] == ""
    assert written('auth = "none"').shown()["auth"] == "none"


def test_a_variable_holds_the_table_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the place of the file's as a whole, as every variable does."""
    issuer = {"issuer": "https://login.example.org", "audience": "memory"}
    monkeypatch.setenv("MUNIMENT_AUTH", json.dumps({"tokens": False, "issuers": {"other": issuer}}))
    auth = written(TABLE).auth

    assert auth is not None
    assert (auth.tokens, auth.url, list(auth.issuers)) == (False, None, ["other"])


def test_none_is_by_name() -> None:
    """By a flag, a variable or the file; an empty table is something else: API tokens alone."""
    assert Settings.load({"auth": "none"}).auth is NOBODY_IS_ASKED
    assert written('auth = "none"').auth is NOBODY_IS_ASKED
    assert written("[auth]").auth is not NOBODY_IS_ASKED
    assert written("[auth]").auth == AuthSettings()
    assert written("").auth is None


GOOD = {"issuer": "https://login.example.com", "audience": "memory"}

WRONG: list[tuple[object, str]] = [
    ({"tokns": True}, r"auth\.tokns, set in MUNIMENT_AUTH, is no setting; did you mean tokens\?$"),
    ({"zebra": True}, r"auth\.zebra, .* is no setting; there are issuers, tokens, url\.$"),
    ({"issuers": {"corp": {**GOOD, "leway": 5}}}, r"auth\.issuers\.corp\.leway, .*; did you mean leeway\?$"),
    ({"issuers": {"corp": {"issuer": GOOD["issuer"], "audiance": "memory"}}}, r"corp\.audiance, .*mean audience\?$"),
    ({"issuers": {"corp": {"issuer": GOOD["issuer"]}}}, r"corp\.audience \(in .*\): it is missing; set it\.$"),
    ({"issuers": {"corp": "x"}}, r"auth\.issuers\.corp \(in .*\): must be a table"),
    ({"issuers": []}, r"auth\.issuers \(in .*\): must be a table"),
    ({"tokens": False}, "let nobody in"),
    ({"url": "https://memory.example.com/mcp"}, "without a path"),
    ({"url": "memory.example.com"}, "must be a URL"),
    ({"url": "https://memory.example.com:x"}, "must be a URL"),
    ({"url": "http://memory.example.com"}, "https://"),
    ({"url": "http://10.0.0.7:8765"}, "https://"),
    ({"issuers": {"corp": {"audience": "memory"}}}, r"auth\.issuers\.corp\.issuer"),
    ({"issuers": {"corp": {"issuer": GOOD["issuer"]}}}, r"auth\.issuers\.corp\.audience"),
    ({"issuers": {"corp": {**GOOD, "audience": []}}}, r"corp\.audience"),
    ({"issuers": {"corp": {**GOOD, "audience": ""}}}, r"corp\.audience"),
    ({"issuers": {"corp": {**GOOD, "issuer": "http://login.example.com"}}}, "https://"),
    ({"issuers": {"corp": {**GOOD, "jwks_url": "file:///etc/keys"}}}, "must be a URL"),
    ({"issuers": {"corp": {**GOOD, "jwks_url": "https://user:hunter2@login.example.com"}}}, "must be a URL"),
    ({"issuers": {"corp": {**GOOD, "algorithms": ["RS256", "HS256"]}}}, r"corp\.algorithms"),
    ({"issuers": {"corp": {**GOOD, "algorithms": "none"}}}, r"corp\.algorithms"),
    ({"issuers": {"corp": {**GOOD, "algorithms": []}}}, r"corp\.algorithms"),
    ({"issuers": {"corp": {**GOOD, "leeway": 121}}}, r"corp\.leeway"),
    ({"issuers": {"corp": {**GOOD, "leeway": -1}}}, r"corp\.leeway"),
    ({"issuers": {"corp": {**GOOD, "groups_claim": []}}}, r"corp\.groups_claim"),
    ({"issuers": {"corp": {**GOOD, "read_scope": "read"}}}, "set both"),
    ({"issuers": {"corp": {**GOOD, "write_scope": "a", "platform_scope": "a"}}}, "must differ"),
    ({"issuers": {"corp": {**GOOD, "write_scope": "a b"}}}, r"corp\.write_scope"),
    ({"issuers": {"Corp": GOOD}}, "an issuer's name"),
    ({"issuers": {"a:b": GOOD}}, "an issuer's name"),
    ({"issuers": {"a": GOOD, "b": GOOD}}, "the same issuer"),
    ("[]", "MUNIMENT_AUTH"),
    ("yes", "must be none, or a JSON object"),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG)
def test_what_is_refused(wrong: object, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the place, and nothing of the value, which may be a secret."""
    monkeypatch.setenv("MUNIMENT_AUTH", wrong if isinstance(wrong, str) else json.dumps(wrong))
    with pytest.raises(ConfigurationError, match=says) as refusal:
        Settings.load()
    assert "hunter2" not in refusal.value.message


@pytest.mark.parametrize("url", ["http://127.0.0.1:8765", "http://localhost:8765", "http://[::1]:8765"])
def test_within_this_machine_http_will_do(url: str) -> None:
    """Nobody is on the way."""
    assert AuthSettings(url=url).url == url


@pytest.mark.parametrize(
    ("audience", "warned"),
    [
        (["https://memory.example.com/mcp"], ["https://memory.example.com,"]),
        (["https://memory.example.com"], ["https://memory.example.com/mcp,"]),
        (["https://memory.example.com", "https://memory.example.com/mcp"], []),
    ],
)
def test_a_resource_whose_tokens_would_be_refused_is_said(
    audience: list[str], warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Of each transport: a client asks the issuer for tokens for what the metadata names."""
    auth = AuthSettings.model_validate(
        {"url": "https://memory.example.com", "issuers": {"corp": {**GOOD, "audience": audience}}}
    )
    warn_of_audiences(auth, [Seat(()), Seat(("/mcp", "/.well-known/x")), StdioSeat()])

    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(warned)
    for message, resource in zip(messages, warned, strict=True):
        assert f"a token for {resource}" in message
        assert "auth.issuers.corp" in message


class StdioSeat:
    """A transport without an address."""

    async def serve(self, engine: Any, callers: Any) -> None:
        """Nobody."""


class Seat(StdioSeat):
    """A transport over HTTP that answers these paths."""

    title = "Seat"
    address = Address("127.0.0.1", 8765)

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths

    def app(self, engine: Any, callers: Any, address: Any, ending: Any) -> Any:
        """None."""


def test_an_api_token_is_never_shown() -> None:
    """Wherever one is by mistake."""
    assert redact(f"authorization Bearer muniment_{'a1-_' * 10}xyz!") == "authorization Bearer muniment_***!"
    assert redact(f"x-muniment_{'a1-_' * 10}xyz") == "x-muniment_***"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln_-0, x", "Bearer eyJ***, x"),
        ("id req-eyJhbGci.eyJzdWIi.", "id req-eyJ***"),
        ("an encrypted one: eyJhbGci..b.c.d", "an encrypted one: eyJ***"),
        ("eyJ is no token, and eyJhbGci.half is none", "eyJ is no token, and eyJhbGci.half is none"),
        ("eyJ" * 50_000, "eyJ" * 50_000),
    ],
    ids=["signed", "within", "encrypted", "none", "long"],
)
def test_a_jwt_is_never_shown(text: str, shown: str) -> None:
    """Its three or five parts are left out, whatever they are part of."""
    assert redact(text) == shown


LOCAL = CallContext(principal=Principal(user="ada"))


@pytest.mark.parametrize(
    ("text", "asks", "anybody", "url"),
    [
        ("", False, False, None),
        ('auth = "none"', False, True, None),
        (TABLE, True, False, "https://memory.example.com"),
        ("[auth]", True, False, None),
    ],
)
def test_what_a_transport_gets(text: str, asks: bool, anybody: bool, url: str | None) -> None:
    """An authenticator where one is configured; "anybody" only where that was said by name."""
    settings = written(text)
    verifier = verifier_of(settings, ReferenceStorage())
    who = callers(settings, LOCAL, verifier, unwatched)

    assert (who.authenticator is not None, who.anybody, who.url) == (asks, anybody, url)
    assert who.local == LOCAL


def test_a_transport_that_is_older_than_this() -> None:
    """It gets the one caller that it knows, and is refused where callers must be asked who they are."""
    settings = written(TABLE)
    asking = callers(settings, LOCAL, verifier_of(settings, ReferenceStorage()), unwatched)

    assert as_of("1.0", Callers(LOCAL, anybody=True), "acme") is LOCAL
    with pytest.raises(PluginError, match=r"'acme'.*upgrade it"):
        as_of("1.0", asking, "acme")
    assert as_of("1.1", asking, "acme") is asking


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "only with --no-auth"),
        ('auth = "none"', "none, so whatever reaches"),
        ("[auth]", "accepted are API tokens"),
        (TABLE, "accepted are API tokens, tokens of corp"),
    ],
)
async def test_what_doctor_says_is_configured(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """First what is accepted, in words."""
    found: list[Any] = []

    async def fetch(keys: Any) -> int:
        found.append(keys.name)
        return 2

    monkeypatch.setattr("muniment.authentication.keys.IssuerKeys.fetch", fetch)
    first, *issuers = await findings(written(text).auth)
    assert said in first.detail
    assert [one.detail for one in issuers] == [
        "https://login.example.com/realms/corp, 2 keys, signing by RS256, ES256" for _ in found
    ]


async def test_doctor_counts_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the singular."""

    async def fetch(_keys: Any) -> int:
        return 1

    monkeypatch.setattr("muniment.authentication.keys.IssuerKeys.fetch", fetch)
    _, issuer = await findings(written(TABLE).auth)
    assert ", 1 key, signing by " in issuer.detail


async def test_doctor_fails_where_an_issuer_cannot_be_reached() -> None:
    """With the issuer, the cause and what to do."""
    table = {"issuers": {"corp": {**GOOD, "issuer": "http://127.0.0.1:9"}}}
    _, finding = await findings(AuthSettings.model_validate(table))
    assert (finding.ok, finding.subject) == (False, "issuer corp")
    assert "http://127.0.0.1:9/.well-known/openid-configuration: " in finding.detail
    assert "refused" in finding.detail
    assert finding.remedy
