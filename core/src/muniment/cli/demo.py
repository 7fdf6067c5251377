"""``muniment demo``: the options of the demonstration; what it shows is in ``muniment.demo``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("demo", short_help="Show on real documents, over MCP, what it does.")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option("--storage", default="embedded:", show_default=True, metavar="URL", help="Where memories are kept.")
@click.option(
    "--embedder",
    default="local:all-MiniLM-L6-v2",
    show_default=True,
    metavar="NAME",
    help="What makes vectors.",
)
@click.option("--keep", is_flag=True, help="Keep the data directory, and say how to serve it.")
def command(directory: Path | None, storage: str, embedder: str, keep: bool) -> int:
    """Show on real documents, over MCP, what it does.

    Starts the server as a client would, on a fresh data directory, loads the Markdown files of DIRECTORY (by default
    this project's own documents), and goes through search, edits, races, access and history, then through what two
    agents remember, step by step. Exit code 1 if a step does not do what it promises.
    """
    import asyncio

    from muniment.cli import INTERRUPTED
    from muniment.cli.ending import Ending
    from muniment.demo import run

    codes: list[int] = []

    async def show() -> None:
        codes.append(await run(directory, storage=storage, embedder=embedder, keep=keep))

    with Ending() as ending:
        return codes[0] if asyncio.run(ending.completes(show())) else INTERRUPTED
