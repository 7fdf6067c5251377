"""``muniment migrate``: bring the storage's schema up to date and say what was done."""

from __future__ import annotations

from typing import Any

import click

from muniment.cli import options


@click.command("migrate", short_help="Bring the storage's schema up to date.")
@options.configured
def command(**flags: Any) -> None:
    """Bring the storage's schema up to date, and print the steps that were taken.

    Safe to run from several machines at once, and to repeat.
    """
    import asyncio

    loaded = options.settings(flags)
    storage = options.plugins(loaded).storage(loaded.storage, loaded)

    async def migrate() -> tuple[str, ...]:
        try:
            return await storage.migrate()
        finally:
            await storage.close()

    steps = asyncio.run(migrate())
    for step in steps:
        click.echo(step)
    click.echo(f"{len(steps)} steps taken." if steps else "The schema is up to date.")
