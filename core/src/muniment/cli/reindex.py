"""``muniment reindex``: bring the word index up to this version's analyser, ahead of the servers."""

from __future__ import annotations

from typing import Any

import click

from muniment.cli import options


@click.command("reindex", short_help="Bring the word index up to this version's analyser.")
@options.configured
def command(**flags: Any) -> None:
    """Analyse anew the memories whose words were indexed by another version, and print how many there were.

    Servers do the same by themselves after a start; run this ahead of them, or while they run. It can be interrupted
    and repeated.
    """
    import asyncio

    loaded = options.settings(flags)
    storage = options.plugins(loaded).storage(loaded.storage, loaded)

    async def reindex() -> int:
        from muniment.engine import Engine

        async with Engine(storage, None, background=False) as engine:
            total = 0
            while healed := await engine.terms.heal():
                total += healed
            return total

    total = asyncio.run(reindex())
    click.echo(f"{total} memories indexed anew." if total else "The word index is up to date.")
