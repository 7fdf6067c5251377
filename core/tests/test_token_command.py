"""``muniment token``: what is printed where, and what ends a token."""

from __future__ import annotations

import asyncio
import errno
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from muniment import cli
from muniment.access import TOKENS_KEY
from muniment.authentication.tokens import ApiTokens
from muniment.cli import token
from muniment.errors import ConfigurationError, StorageUnavailable, Unauthenticated
from muniment.models import AuditRecord
from muniment.ports import PluginContext, StoredToken
from muniment.reference import ReferenceData, ReferenceStorage

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ReferenceData:
    """What every command's storage in memory keeps."""
    kept = ReferenceData()

    def create(context: PluginContext) -> ReferenceStorage:
        return ReferenceStorage(kept)

    monkeypatch.setattr("muniment.reference.storage.create", create)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUNIMENT_STORAGE", "memory:")
    # Here it is kept from one command to the next.
    monkeypatch.setattr(token, "FORGETFUL", frozenset[str]())
    return kept


def run(*arguments: str) -> int:
    """The exit code of ``muniment token``."""
    return cli.run(["token", *arguments])


def created(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """A new token's id and secret."""
    assert run("create", *arguments) == 0
    printed = capsys.readouterr()
    (id_,) = re.findall(r"token (\w+) of", printed.err)
    return id_, printed.out.strip()


def proves(data: ReferenceData, secret: str) -> str:
    """The user that a secret proves."""

    async def user() -> str:
        tokens = ApiTokens(ReferenceStorage(data))
        try:
            return (await tokens.principal(secret)).user
        finally:
            await tokens.close()

    return asyncio.run(user())


def test_no_token_is_made_that_nobody_can_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One in a storage that ends with the command is refused, with what to give instead, and nothing is printed."""
    monkeypatch.setattr(token, "FORGETFUL", frozenset(("memory",)))
    assert run("create", "--user", "alice", "--scope", "read", "--storage", "memory:") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "storage (--storage) is memory:, which is empty again" in printed.err
    assert "--storage embedded:" in printed.err


def test_a_token_is_made_and_revoked(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output has the secret alone, so that a script can keep it; no other command knows it."""
    id_, secret = created(capsys, "--user", "corp:alice", "--group", "eng", "--scope", "write", "--expires", "30d")
    other, _ = created(capsys, "--user", "bob", "--scope", "read", "--scope", "agent=ada/1", "--expires", "never")
    assert proves(data, secret) == "corp:alice"

    assert run("list") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["ID", "STATE"]
    assert {row.split()[0] for row in rows} == {id_, other}
    shown = next(row for row in rows if row.startswith(id_))
    assert [part in shown for part in ("active", "write", "corp:alice", "eng")] == [True] * 4

    assert run("revoke", id_) == 0
    assert f"{id_} of corp:alice is revoked" in capsys.readouterr().out
    with pytest.raises(Unauthenticated, match="revoked"):
        proves(data, secret)
    assert run("list") == 0
    printed = capsys.readouterr().out
    assert "revoked" in printed
    assert secret not in printed


def test_what_can_be_revoked_is(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """One id that is wrong keeps no other token alive; the exit code says that one was."""
    id_, _ = created(capsys, "--user", "alice", "--scope", "read")

    assert run("revoke", "nope", id_) == 1
    printed = capsys.readouterr()
    assert f"{id_} of alice is revoked" in printed.out
    assert "no token nope" in printed.err


def trail(data: ReferenceData) -> list[AuditRecord]:
    """What is noted of tokens, oldest first."""
    return sorted((one for one in data.audit.values() if one.scope_key == TOKENS_KEY), key=lambda one: one.at)


def test_what_is_done_with_tokens_is_audited(
    data: ReferenceData, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who made and revoked which token, for whom and with what scopes; each once, and never a secret or its hash."""
    monkeypatch.setenv("MUNIMENT_USER", "olga")
    id_, secret = created(capsys, "--user", "corp:alice", "--group", "eng", "--scope", "write", "--expires", "never")
    assert run("revoke", id_) == 0
    monkeypatch.setenv("MUNIMENT_USER", "otto")
    assert run("revoke", id_, "nope") == 1
    capsys.readouterr()

    made, ended = trail(data)
    said = {"token": id_, "user": "corp:alice", "groups": ["eng"], "scopes": ["write"], "expires_at": None}
    assert [(one.action, one.actor, one.surface, one.details) for one in (made, ended)] == [
        ("token.create", "olga", "cli", said),
        ("token.revoke", "olga", "cli", said),
    ]
    assert (made.changed, ended.changed) == (("user", "groups", "scopes"), ("revoked",))
    assert [(one.memory_id, one.project_id, one.agent) for one in (made, ended)] == [(None, None, None)] * 2
    (row,) = data.tokens.values()
    assert not any(part in repr(data.audit) for part in (secret, secret.removeprefix("muniment_"), row.digest))

    assert run("history") == 0
    head, last, first = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["AT", "WHAT", "TOKEN", "BY"]
    for line, action in ((last, "token.revoke"), (first, "token.create")):
        assert [part in line for part in (action, id_, "olga", "cli", "write", "corp:alice", "eng")] == [True] * 7


def test_a_token_without_an_entry_lets_nobody_in(
    data: ReferenceData, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its entry is not stored no secret is printed, and the token is over; revoking heals a missing entry."""
    id_, _ = created(capsys, "--user", "alice", "--scope", "read")
    before = dict(data.audit)

    async def fails(*_: object) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(ReferenceStorage, "record", fails)
        assert run("create", "--user", "alice", "--scope", "read") == 1
        printed = capsys.readouterr().out
        assert run("revoke", id_) == 1
    assert printed == ""
    assert all(row.token.revoked_at is not None for row in data.tokens.values())
    assert data.audit == before

    assert run("revoke", id_) == 0
    assert [one.action for one in trail(data)] == ["token.create", "token.revoke"]


def test_every_page_of_the_trail_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is."""
    monkeypatch.setattr(token, "PAGE", 2)
    made = {created(capsys, "--user", "alice", "--scope", "read")[0] for _ in range(5)}

    assert run("history") == 0
    shown = capsys.readouterr().out
    assert {id_ for id_ in made if id_ in shown} == made


def test_every_page_is_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are."""
    monkeypatch.setattr(token, "PAGE", 2)
    made = {created(capsys, "--user", "alice", "--scope", "read")[0] for _ in range(5)}

    assert run("list") == 0
    assert {row.split()[0] for row in capsys.readouterr().out.splitlines()[1:]} == made


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--scope", "read"], 2, "--user"),
        (["--user", "alice"], 2, "--scope"),
        (["--user", "alice", "--scope", "admin"], 2, "--scope: 'admin' is none; the scopes are read"),
        (["--user", "alice", "--scope", "read", "--scope", "agent=a"], 2, "--scope: agent"),
        (["--user", "", "--scope", "read"], 2, "--user: it must have at least 1 character; correct it."),
        (["--user", " ", "--scope", "read"], 2, "--user: is blank; give a name"),
        (["--user", "alice", "--group", "", "--scope", "read"], 2, "--group: it must have at least 1 character"),
        (["--user", "alice", "--scope", "read", "--expires", "soon"], 2, "--expires"),
        (["--user", "alice", "--scope", "read", "--expires", "2001-01-01"], 2, "over already"),
    ],
)
def test_what_is_refused(
    arguments: list[str], code: int, says: str, data: ReferenceData, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line that names the option; nothing is kept, and no secret printed."""
    assert run("create", *arguments) == code
    printed = capsys.readouterr()
    assert says in printed.err
    assert (printed.out, data.tokens) == ("", {})


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("never", None),
        ("1d", NOW + timedelta(days=1)),
        ("90d", NOW + timedelta(days=90)),
        ("2026-05-02", datetime(2026, 5, 2, tzinfo=UTC)),
    ],
)
def test_when_a_token_ends(text: str, end: datetime | None) -> None:
    """Days from now, the beginning of a day in UTC, or never."""
    assert token.end_of(text, NOW) == end


@pytest.mark.parametrize("text", ["", "0d", "-1d", "1h", "d", "999999d", "2026-05-01", "2026-13-01", "1.5d", "90"])
def test_ends_that_are_none(text: str) -> None:
    """Nothing is guessed: 90 may mean days or seconds."""
    with pytest.raises(ConfigurationError, match="--expires"):
        token.end_of(text, NOW)


def fails_at(monkeypatch: pytest.MonkeyPatch, printed: int) -> None:
    """Let the disk be full at this line of a command's output."""
    lines: list[object] = []

    def echo(message: object = None, **_: object) -> None:
        lines.append(message)
        if len(lines) == printed:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("click.echo", echo)


@pytest.mark.parametrize("printed", [1, 2])
def test_a_secret_that_nobody_got_lets_nobody_in(
    printed: int, data: ReferenceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it cannot be printed the token is revoked, and its trail says so."""
    fails_at(monkeypatch, printed)
    assert run("create", "--user", "alice", "--scope", "read") == 1

    assert [row.token.revoked_at is not None for row in data.tokens.values()] == [True]
    assert [one.action for one in trail(data)] == ["token.create", "token.revoke"]


def test_what_is_said_of_a_secret_that_nobody_got(data: ReferenceData, tmp_path: Path) -> None:
    """That the token is revoked, or the command that does it."""
    error = OSError(errno.ENOSPC, "No space left on device")
    (kept, gone) = (
        StoredToken(id=id_, user="alice", groups=frozenset(), scopes=("read",), created_at=NOW) for id_ in ("ab", "cd")
    )

    assert "of token ab could not be written (No space left on device), so that" in token.taken_back(kept, {}, error)
    said = token.taken_back(gone, {"storage": "acme:"}, error)
    assert said.endswith("nor could it be revoked; do that with muniment token revoke cd.")


def test_a_secret_is_not_made_for_a_closed_output(
    data: ReferenceData, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody would ever have it."""
    monkeypatch.setattr("sys.stdout", None)
    assert run("create", "--user", "alice", "--scope", "read") == 2
    assert "Standard output is closed" in capsys.readouterr().err
    assert data.tokens == {}


def test_bytes_that_are_no_text_are_no_token(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever storage there is is not asked for them; other tokens are revoked all the same."""
    id_, _ = created(capsys, "--user", "alice", "--scope", "read")

    assert run("revoke", "\udcff", id_) == 1
    printed = capsys.readouterr()
    assert f"{id_} of alice is revoked" in printed.out
    assert "There is no token '\\udcff'; muniment token list" in printed.err
