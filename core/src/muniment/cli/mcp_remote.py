"""How an MCP client writes a server at a URL, as its own documentation has it, and where it has the token from.

The token itself is never in what is printed: a client that can reads it from a variable of its environment or asks for
it, and one that cannot has a place to paste it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from muniment.authentication.settings import AN_ISSUER, Url, is_local
from muniment.errors import ConfigurationError

VARIABLE = "MUNIMENT_TOKEN"
PASTED = "PASTE-THE-TOKEN-HERE"
MCP_PATH = "/mcp"
"""Where ``muniment serve`` answers the protocol."""
EXAMPLE = f"https://memory.example.com{MCP_PATH}"

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"[a-z0-9.:_-]+")

_URL: TypeAdapter[str] = TypeAdapter(Url)


class Source(Enum):
    """Where a client has the token from: a variable, by one of two spellings, a question, or its file."""

    VARIABLE = "${{{variable}}}"
    ENV_VARIABLE = "${{env:{variable}}}"
    ASKED = "${{input:{name}-token}}"
    PASTED = PASTED


@dataclass(frozen=True, slots=True)
class Remote:
    """How a client writes a URL: under which key, whether it says that this is HTTP, and its token's source."""

    source: Source
    key: str = "url"
    typed: bool = False


REMOTES: Mapping[str, Remote] = {
    "claude-code": Remote(Source.VARIABLE, typed=True),
    "cursor": Remote(Source.ENV_VARIABLE),
    "gemini-cli": Remote(Source.VARIABLE, key="httpUrl"),
    "vscode": Remote(Source.ASKED, typed=True),
    "windsurf": Remote(Source.ENV_VARIABLE, key="serverUrl"),
    "zed": Remote(Source.PASTED),
}

NOT_BY_A_FILE: Mapping[str, str] = {
    "claude-desktop": "it takes a URL only as a connector, which signs its user in: add one under Connectors in its "
    "settings",
    "opencode": "its file is another one in each of its generations; run: opencode mcp add {name} --url {url}",
}
"""Clients for whose files nothing is printed, with what to do instead."""


def configuration(
    client: str, key: str, name: str, url: str, variable: str | None = None, *, sign_in: bool = False
) -> dict[str, Any]:
    """What goes into a client's file. ``variable`` is where it has the token from, ``VARIABLE`` if None; with
    ``sign_in`` there is no token: the client signs its user in.

    Raises ConfigurationError for a URL, or a variable, that is none, and for a client that is not configured by a file.
    """
    url = _checked(url)
    if (instead := NOT_BY_A_FILE.get(client)) is not None:
        raise ConfigurationError(f"There is no file of {client} to print: {instead.format(name=name, url=url)}.")
    if variable is not None:
        _check_variable(client, variable, sign_in)
    remote = REMOTES[client]
    entry: dict[str, Any] = {"type": "http"} if remote.typed else {}
    entry[remote.key] = url
    found: dict[str, Any] = {key: {name: entry}}
    if not sign_in:
        sent = remote.source.value.format(variable=variable or VARIABLE, name=name)
        entry["headers"] = {"Authorization": f"Bearer {sent}"}
        if remote.source is Source.ASKED:
            asked = {"id": f"{name}-token", "type": "promptString", "description": f"Token for {name}"}
            found["inputs"] = [{**asked, "password": True}]
    return found


def to_do(client: str, variable: str | None = None, *, sign_in: bool = False) -> str:
    """What is left to do for its user, in a sentence."""
    if sign_in:
        return "The client signs its user in at the issuer that the server names."
    match REMOTES[client].source:
        case Source.ASKED:
            return "The client asks for the token, as muniment token create prints it."
        case Source.PASTED:
            return (
                f"Put the token, as muniment token create prints it, in the place of {PASTED}; keep the file private."
            )
        case _:
            held = variable or VARIABLE
            return f"The client sends the token, as muniment token create prints it, that is in {held} as it starts."


def _check_variable(client: str, variable: str, sign_in: bool) -> None:
    if sign_in:
        raise ConfigurationError("--sign-in sends no token, and --token-variable says where one is; give one of them.")
    if REMOTES[client].source not in (Source.VARIABLE, Source.ENV_VARIABLE):
        raise ConfigurationError(f"{client} reads no variable for its token; leave --token-variable out.")
    if not _VARIABLE_NAME.fullmatch(variable):
        raise ConfigurationError(
            "--token-variable is no name of a variable, which has letters, digits and _ and begins with no digit; "
            f"write one such as {VARIABLE}, and put the token into that variable."
        )


def _checked(url: str) -> str:
    """A URL of the protocol's, which nobody on the way reads; one without a path is of ``MCP_PATH``."""
    try:
        parts = urlsplit(_URL.validate_python(url))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
        problem = problem.replace(f"such as {AN_ISSUER}", "with http and without a name, a password or #")
        raise ConfigurationError(f"--http {problem}; write {_meant(url)}.") from None
    if "?" in url or "#" in url:
        raise ConfigurationError(f"--http must be a URL without ? and #; write {_meant(url)}.")
    return url if parts.path.strip("/") else f"{url.rstrip('/')}{MCP_PATH}"


def _meant(url: str) -> str:
    """The URL that was probably meant, as far as its host can be read."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return EXAMPLE
    if not host or not _HOST.fullmatch(host):
        return EXAMPLE
    shown = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    path = parts.path.rstrip("/") or MCP_PATH
    return f"{'http' if is_local(host) else 'https'}://{shown}{path}"
