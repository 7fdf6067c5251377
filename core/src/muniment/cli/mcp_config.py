"""``muniment mcp-config``: what to tell an MCP client so that it starts this server, with absolute paths, or reaches
one that runs at a URL."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from muniment import local_paths
from muniment.cli import options
from muniment.errors import ConfigurationError

Shape = Literal["plain", "typed", "opencode"]


@dataclass(frozen=True, slots=True)
class Client:
    """Where a client looks: the file, the key that holds its servers, and how it writes one."""

    file: str
    key: str
    shape: Shape = "plain"


CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(".mcp.json in the project, or ~/.claude.json", "mcpServers", "typed"),
    "claude-desktop": Client("claude_desktop_config.json (Settings, Developer, Edit Config)", "mcpServers"),
    "cursor": Client(".cursor/mcp.json in the project, or ~/.cursor/mcp.json", "mcpServers"),
    "gemini-cli": Client(".gemini/settings.json in the project, or ~/.gemini/settings.json", "mcpServers"),
    "opencode": Client("opencode.json in the project, or ~/.config/opencode/opencode.json", "mcp", "opencode"),
    "vscode": Client(".vscode/mcp.json in the project, or mcp.json of the user profile", "servers", "typed"),
    "windsurf": Client("~/.codeium/windsurf/mcp_config.json", "mcpServers"),
    "zed": Client("settings.json", "context_servers"),
}


@click.command("mcp-config", short_help="Print the configuration that makes an MCP client start this server.")
@click.option("--client", required=True, type=click.Choice(sorted(CLIENTS)), help="For which client.")
@click.option("--name", default="muniment", show_default=True, help="What the client calls the server.")
@click.option("--http", "url", metavar="URL", help="Reach a server that runs at this URL instead of starting one.")
@click.option(
    "--token-variable",
    show_default="MUNIMENT_TOKEN",
    metavar="NAME",
    help="With --http: where the client has the token from, if it reads variables.",
)
@click.option("--sign-in", is_flag=True, help="With --http: no token; the client signs its user in.")
@options.configured
def command(client: str, name: str, url: str | None, token_variable: str | None, sign_in: bool, **flags: Any) -> None:
    """Print the configuration that makes an MCP client start this server, or reach one at a URL.

    The options of the configuration that you give here become those of the server that is started. With --http none
    is, and the client sends a token, which is never printed. Standard output is the JSON alone; where it belongs is
    said on standard error.
    """
    import json

    described = CLIENTS[client]
    if url is not None:
        from muniment.cli import mcp_remote

        if given := options.given(flags):
            flags_given = ", ".join(f"--{key}".replace("_", "-") for key in given)
            raise ConfigurationError(
                f"Only a server that the client starts takes {flags_given}; "
                "with --http it runs already, so leave that out."
            )
        found = mcp_remote.configuration(client, described.key, name, url, token_variable, sign_in=sign_in)
        click.echo(json.dumps(found, indent=2))
        click.echo(f"Merge this into {described.file}, then restart the client.", err=True)
        click.echo(mcp_remote.to_do(client, token_variable, sign_in=sign_in), err=True)
        return
    if sign_in or token_variable is not None:
        option = "--sign-in" if sign_in else "--token-variable"
        raise ConfigurationError(
            f"{option} is for a server that runs at a URL; give that with --http, or leave {option} out."
        )
    loaded = options.settings(flags)
    _refuse_secrets(flags)
    start = ["-m", "muniment", "serve", *_arguments(flags)]
    click.echo(json.dumps({described.key: {name: entry(described.shape, start)}}, indent=2))
    click.echo(f"Merge this into {described.file}, then restart the client.", err=True)
    ignored = sorted({loaded.origin(key) for key in type(loaded).model_fields if loaded.origin(key).isupper()})
    if ignored:
        click.echo(
            f"The client will not see {', '.join(ignored)}; give the option here instead, or use --config FILE.",
            err=True,
        )


def entry(shape: Shape, arguments: Sequence[str]) -> dict[str, Any]:
    """The server as a client of this shape writes it."""
    interpreter = os.path.abspath(sys.executable)
    if shape == "opencode":
        return {"type": "local", "command": [interpreter, *arguments], "enabled": True}
    plain = {"command": interpreter, "args": list(arguments)}
    return {"type": "stdio", **plain} if shape == "typed" else plain


def _arguments(flags: Mapping[str, Any]) -> list[str]:
    """The options that were given, and the file that lies here: the client starts the server elsewhere."""
    given = options.given(dict(flags))
    here = Path("muniment.toml")
    if "config" not in given and not os.environ.get("MUNIMENT_CONFIG") and here.is_file():
        given["config"] = here
    arguments: list[str] = []
    for key, value in given.items():
        if key in ("config", "data_dir"):
            value = local_paths.absolute(str(value))
        if key in ("storage", "embedder"):
            value = local_paths.absolute_in(value)
        for one in value if key == "groups" else [value]:
            arguments += _argument("group" if key == "groups" else key.replace("_", "-"), one)
    return arguments


def _argument(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", str(value)]


def _refuse_secrets(flags: Mapping[str, Any]) -> None:
    from muniment.config import redact

    for key, value in options.given(dict(flags)).items():
        if isinstance(value, str) and redact(value) != value:
            raise ConfigurationError(
                f"--{key} holds a password, which would end up in the client's configuration; put it into a TOML "
                f"file that only you can read, and give --config FILE."
            )
