"""``muniment openapi``: the OpenAPI document of the HTTP transport, without a storage or a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import click

from muniment.cli import options
from muniment.errors import ConfigurationError


@runtime_checkable
class Described(Protocol):
    """A transport that an OpenAPI document describes."""

    def openapi(self) -> Mapping[str, Any]:
        """The document, as data."""
        ...


@click.command("openapi", short_help="Print the OpenAPI document of the HTTP transport.")
@click.option("--transport", default="http", show_default=True, metavar="NAME", help="Whose document.")
@options.configured
def command(transport: str, **flags: Any) -> None:
    """Print the OpenAPI document of the HTTP transport, as JSON.

    It is that of a server which asks for credentials. Nothing is opened or served.
    """
    import json

    loaded = options.settings(flags)
    seat = options.plugins(loaded).transport(transport, loaded)
    if not isinstance(seat, Described):
        raise ConfigurationError(f"No OpenAPI document describes transport {transport!r}; use http.")
    click.echo(json.dumps(seat.openapi(), indent=2, ensure_ascii=False))
