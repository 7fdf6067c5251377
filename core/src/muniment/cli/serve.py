"""``muniment serve``: one storage, one embedder and one transport around one engine, until its client leaves or a
signal comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muniment import local_paths
from muniment.cli import options
from muniment.errors import ConfigurationError

if TYPE_CHECKING:
    from muniment.cli.ending import Ending
    from muniment.config import Settings
    from muniment.models import CallContext


@click.command("serve", short_help="Serve memories to a client, over MCP on standard input and output or HTTP.")
@click.option("--transport", default="mcp", show_default=True, metavar="NAME", help="How clients call it.")
@click.option("--http", metavar="HOST:PORT", help="Serve at this address instead, such as 127.0.0.1:8765.")
@options.configured
def command(transport: str, http: str | None, **flags: Any) -> int:
    """Serve memories to a client, over MCP on standard input and output, or to any number of them with --http.

    An MCP client starts this itself; `muniment mcp-config` prints what to tell it. With --http it is started once, and
    whatever reaches the address, which is one of this machine, acts as the configured user. The project that a write
    without a scope goes to is --project, else what the file .muniment-project says, in the working directory or above
    it. SIGTERM ends it at any moment with exit code 0, once what was begun is answered and what was opened is closed.
    """
    import asyncio
    import contextlib
    import signal

    from muniment import standard_streams
    from muniment.cli import INTERRUPTED
    from muniment.cli.ending import Ending

    ending = Ending()
    # A transport that needs the streams refuses closed ones itself.
    with contextlib.suppress(ConfigurationError):
        standard_streams.claim()
    spec = transport if http is None else f"{transport}:http://{http}"
    asyncio.run(serve(options.settings(flags), spec, ending))
    return INTERRUPTED if ending.signal == signal.SIGINT else 0


async def serve(settings: Settings, transport: str, ending: Ending) -> None:
    """Open what the configuration names, serve until the client leaves or a signal comes, and close all of it."""
    from muniment.engine import Engine

    plugins = options.plugins(settings)
    local = caller(settings, transport.partition(":")[0])
    seat = plugins.transport(transport, settings)
    storage = plugins.storage(settings.storage, settings)
    embedder = plugins.embedder(settings.embedder, settings)
    engine = Engine(
        storage,
        embedder,
        observers=[plugins.committed],
        embed_timeout=settings.embed_timeout,
        memory_cue=settings.memory_cue,
    )
    if not await ending.completes(engine.open()):
        return
    try:
        await ending.completes(seat.serve(engine, local))
    finally:
        await engine.close()


def caller(settings: Settings, surface: str) -> CallContext:
    """Who a local client is, by the configuration alone. Raises ConfigurationError."""
    from muniment.cli.project_file import project_of
    from muniment.models import CallContext, Principal

    return CallContext(
        principal=Principal(
            user=settings.user, groups=settings.groups, agent=settings.agent, platform=settings.platform
        ),
        surface=surface,
        default_project=settings.project or project_of(local_paths.working_directory()),
    )
