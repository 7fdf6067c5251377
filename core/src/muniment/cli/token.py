"""``muniment token``: API tokens for who cannot sign in, such as a script or an agent's runtime."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muniment.cli import options, output
from muniment.errors import ConfigurationError, InvalidInput, MunimentError, NotFound

if TYPE_CHECKING:
    from muniment.authentication.audited_tokens import AuditedTokens
    from muniment.models import AuditRecord
    from muniment.ports import StoredToken

T = TypeVar("T")

PAGE = 200
SURFACE = "cli"
"""What the audit trail calls this."""

FORGETFUL = frozenset(("memory",))
"""The schemes of storages whose contents end with the process."""

_DAYS = re.compile(r"([1-9][0-9]{0,4})d")
_DAY = "%Y-%m-%d"


@click.group("token", short_help="Make, list and revoke API tokens.")
def command() -> None:
    """Make, list and revoke API tokens, which prove who calls over HTTP.

    They are kept in the storage that the configuration names, as hashes: a secret is printed once, when it is made.
    Who makes or revokes one is noted in the audit trail as the configured user.
    """


@command.command("create", short_help="Make a token and print its secret.")
@click.option("--user", required=True, metavar="NAME", help="Whose token it is.")
@click.option("--group", "groups", metavar="NAME", multiple=True, help="A group of that user; repeat for more.")
@click.option(
    "--scope",
    "scopes",
    required=True,
    multiple=True,
    metavar="SCOPE",
    help="read, or write, which includes it; agent=NAME/INSTANCE or platform; repeat for more.",
)
@click.option(
    "--expires", default="90d", show_default=True, metavar="WHEN", help="A number of days (30d), a date, or never."
)
@options.located
def create(user: str, groups: tuple[str, ...], scopes: tuple[str, ...], expires: str, **flags: Any) -> None:
    """Make a token and print its secret, alone, on standard output.

    A user of an OpenID provider is spelled as it is when it signs in, such as corp:alice.
    """
    end = end_of(expires, datetime.now(UTC))
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigurationError("Standard output is closed, and the secret goes there alone; leave it open.")
    try:
        secret, kept = _run(flags, lambda tokens: tokens.create(user, frozenset(groups), scopes, end), lasting=True)
    except InvalidInput as error:
        raise ConfigurationError(_mistake(error)) from None
    try:
        click.echo(f"muniment: token {kept.id} of {kept.user}, {_until(kept)}; its secret is not shown again", err=True)
        click.echo(secret)
    except OSError as error:
        output.given_up()
        output.complaints_given_up()
        raise MunimentError(taken_back(kept, flags, error)) from None


def _mistake(error: InvalidInput) -> str:
    """What is wrong with an option, and what to do."""
    said = error.message.removeprefix(f"{error.field}: ").replace("String should", "it must")
    return f"--{error.field}: {said}" + ("." if "; " in said else "; correct it.")


def taken_back(token: StoredToken, flags: dict[str, Any], error: OSError) -> str:
    """Revoke a token whose secret nobody has; what is to be said of it."""
    said = f"The secret of token {token.id} could not be written ({error.strerror})"
    try:
        _run(flags, lambda tokens: tokens.revoke(token.id))
    except Exception:
        return f"{said}, nor could it be revoked; do that with muniment token revoke {token.id}."
    return f"{said}, so that it was revoked; make another where there is room for it."


@command.command("list", short_help="List all tokens.")
@options.located
def list_(**flags: Any) -> None:
    """List all tokens, newest first, also those that are over; no secret is known any more."""
    tokens = _run(flags, _all)
    for line in _lines(tokens, datetime.now(UTC)):
        click.echo(line)


@command.command("revoke", short_help="End tokens at once.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.located
def revoke(ids: tuple[str, ...], **flags: Any) -> None:
    """End tokens at once: from the next request on, none of them proves anybody."""

    async def all_of_them(tokens: AuditedTokens) -> list[tuple[str, StoredToken | None]]:
        return [(one, await tokens.revoke(one) if _can_be_kept(one) else None) for one in ids]

    revoked = _run(flags, all_of_them)
    for _, token in revoked:
        if token is not None:
            click.echo(f"{token.id} of {token.user} is revoked.")
    if unknown := [one for one, token in revoked if token is None]:
        raise NotFound(f"There is no token {', '.join(map(_shown, unknown))}; muniment token list shows all there are.")


def _can_be_kept(id_: str) -> bool:
    """Whether it is a text: bytes of the command line that are none cannot be asked for."""
    try:
        id_.encode()
    except UnicodeEncodeError:
        return False
    return True


@command.command("history", short_help="Show who made and revoked tokens.")
@options.located
def history(**flags: Any) -> None:
    """Show who made and revoked tokens, newest first: the audit trail, as the platform reads it by token.history."""
    entries = _run(flags, _trail)
    for line in _told(entries):
        click.echo(line)


def _run(flags: dict[str, Any], work: Callable[[AuditedTokens], Awaitable[T]], *, lasting: bool = False) -> T:
    """What ``work`` gives on the configured storage. Raises ConfigurationError where that keeps no tokens.

    ``lasting`` says that it is of use only as long as the storage has it.
    """
    import asyncio

    from muniment.authentication.audited_tokens import AuditedTokens
    from muniment.authentication.tokens import token_storage

    loaded = options.settings(flags)
    scheme = loaded.storage.partition(":")[0]
    if lasting and scheme in FORGETFUL:
        raise ConfigurationError(
            f"storage ({loaded.origin('storage')}) is {scheme}:, which is empty again as soon as this command ends, so "
            "nobody could ever use the token; give the storage that the server has, such as --storage embedded:."
        )
    storage = options.plugins(loaded).storage(loaded.storage, loaded)
    token_storage(storage)

    async def on_it() -> T:
        try:
            await storage.open()
            return await work(AuditedTokens(storage, loaded.user, SURFACE))
        finally:
            await storage.close()

    return asyncio.run(on_it())


async def _all(tokens: AuditedTokens) -> list[StoredToken]:
    from muniment.ports import Position

    found: list[StoredToken] = []
    after = None
    while page := await tokens.storage.list_tokens(after=after, limit=PAGE):
        found += page
        after = Position(page[-1].created_at, page[-1].id)
    return found


async def _trail(tokens: AuditedTokens) -> list[AuditRecord]:
    from muniment.access import TOKENS_KEY
    from muniment.engine.trails import trail_storage
    from muniment.ports import Position

    storage = trail_storage(tokens.storage)
    found: list[AuditRecord] = []
    after = None
    while page := await storage.trail(TOKENS_KEY, after=after, limit=PAGE):
        found += page
        after = Position(page[-1].at, page[-1].id)
    return found


def end_of(text: str, now: datetime) -> datetime | None:
    """When a token ends that is made at ``now``. Raises ConfigurationError."""
    if text == "never":
        return None
    if match := _DAYS.fullmatch(text):
        return now + timedelta(days=int(match[1]))
    try:
        end = datetime.strptime(text, _DAY).replace(tzinfo=UTC)
    except ValueError:
        raise ConfigurationError(
            f"--expires {text!r} is no time; write a number of days such as 30d, a date such as 2027-01-31, or never."
        ) from None
    if end <= now:
        raise ConfigurationError(f"--expires {text} is over already; give a later date.")
    return end


def _shown(id_: str) -> str:
    return id_ if _can_be_kept(id_) else ascii(id_)


def _until(token: StoredToken) -> str:
    scopes = " ".join(token.scopes)
    return f"{scopes}, " + (f"until {token.expires_at:%Y-%m-%d %H:%M} UTC" if token.expires_at else "without an end")


def _lines(tokens: list[StoredToken], now: datetime) -> list[str]:
    from muniment.authentication.tokens import state

    rows = [("ID", "STATE", "EXPIRES", "LAST USED", "SCOPES", "USER", "GROUPS")]
    rows += [
        (
            token.id,
            state(token, now),
            _moment(token.expires_at, "never"),
            _moment(token.last_used_at, "-"),
            " ".join(token.scopes),
            token.user,
            ", ".join(sorted(token.groups)) or "-",
        )
        for token in tokens
    ]
    return _table(rows)


def _told(entries: list[AuditRecord]) -> list[str]:
    rows = [("AT", "WHAT", "TOKEN", "BY", "THROUGH", "SCOPES", "USER", "GROUPS")]
    for entry in entries:
        said = entry.details or {}
        rows.append(
            (
                _moment(entry.at, "-"),
                entry.action,
                str(said.get("token")),
                entry.actor,
                entry.surface,
                " ".join(said.get("scopes", ())),
                str(said.get("user")),
                ", ".join(said.get("groups", ())) or "-",
            )
        )
    return _table(rows)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _moment(at: datetime | None, otherwise: str) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else otherwise
