"""``muniment optimize``: build the approximate indexes that pay, and put a grown storage into order."""

from __future__ import annotations

from typing import Any

import click

from muniment.cli import options
from muniment.errors import CapabilityNotSupported


@click.command("optimize", short_help="Build the indexes that a grown storage needs.")
@options.configured
def command(**flags: Any) -> int:
    """Build approximate indexes where an owner or a project has outgrown exact search, drop those that nothing needs
    any more, and put into order what searches read in order; print what was done.

    Servers go on meanwhile. Several may be started at once: one does the work. Where it has to wait for somebody, such
    as for older transactions, it may say on standard error for whom. It can be interrupted and repeated; run it after
    a large import, and every night where memories keep coming.
    """
    import asyncio

    from muniment.cli import INTERRUPTED
    from muniment.cli.ending import Ending

    loaded = options.settings(flags)
    storage = options.plugins(loaded).storage(loaded.storage, loaded)
    if not callable(getattr(storage, "optimize", None)):
        raise CapabilityNotSupported(
            "The storage's plugin was written for a contract before 1.2 and has nothing to optimize; upgrade it."
        )
    done: list[str] = []

    async def work() -> None:
        await storage.open()
        done.extend(await storage.optimize())

    async def optimize(ending: Ending) -> bool:
        try:
            return await ending.completes(work())
        finally:
            await storage.close()

    with Ending() as ending:
        whole = asyncio.run(optimize(ending))
    if not whole:
        return INTERRUPTED
    for step in done or ("Nothing to do.",):
        click.echo(step)
    return 0
