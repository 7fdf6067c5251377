"""``muniment serve``: one storage, one embedder and one transport around one engine, until the client leaves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muniment.cli import options

if TYPE_CHECKING:
    from muniment.config import Settings
    from muniment.models import CallContext


@click.command("serve", short_help="Serve memories to a client, over MCP on standard input and output.")
@click.option("--transport", default="mcp", show_default=True, metavar="NAME", help="How clients call it.")
@options.configured
def command(transport: str, **flags: Any) -> None:
    """Serve memories to a client, over MCP on standard input and output.

    An MCP client starts this itself; `muniment mcp-config` prints what to tell it. The project that a write
    without a scope goes to is --project, else what the file .muniment-project says, in the working directory or
    above it.
    """
    import asyncio

    asyncio.run(serve(options.settings(flags), transport))


async def serve(settings: Settings, transport: str) -> None:
    """Open what the configuration names, serve until the client leaves, and close all of it."""
    from muniment.engine import Engine

    plugins = options.plugins(settings)
    local = caller(settings, transport)
    seat = plugins.transport(transport, settings)
    storage = plugins.storage(settings.storage, settings)
    embedder = plugins.embedder(settings.embedder, settings)
    engine = Engine(storage, embedder, observers=[plugins.committed], embed_timeout=settings.embed_timeout)
    await engine.open()
    try:
        await seat.serve(engine, local)
    finally:
        await engine.close()


def caller(settings: Settings, surface: str) -> CallContext:
    """Who a local client is, by the configuration alone. Raises ConfigurationError."""
    from muniment.cli.project_file import project_of
    from muniment.models import CallContext, Principal

    return CallContext(
        principal=Principal(user=settings.user, groups=settings.groups),
        surface=surface,
        default_project=settings.project or project_of(Path.cwd()),
    )
