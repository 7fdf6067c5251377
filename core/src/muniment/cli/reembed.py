"""``muniment reembed``: make the vectors of an embedder ahead of the servers, or beside them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from muniment.cli import options
from muniment.errors import ConfigurationError

if TYPE_CHECKING:
    from muniment.cli.ending import Ending
    from muniment.ports import Embedder, Progress, SpaceStorage, Storage

SHOWN_EVERY = 1.0
"""Seconds between two lines of progress on a terminal."""
LOGGED_EVERY = 10.0
"""The same where standard error is none."""
AGAIN_SECONDS = 2.0
"""How long it waits before it looks again at what others have leased."""


@click.command("reembed", short_help="Make the vectors of an embedder ahead of the servers.")
@click.option("--to", metavar="EMBEDDER", help="Of this embedder instead of the configured one; it is not made active.")
@click.option("--batch", type=click.IntRange(1, 10_000), metavar="N", help="How many memories are taken at once.")
@options.configured
def command(to: str | None, batch: int | None, **flags: Any) -> int:
    """Embed every memory that has no vectors of the embedder yet, while servers go on.

    Several may run at once, servers among them: each memory is embedded by one. It can be interrupted at any point and
    repeated; what a killed one was at is taken up half a minute later. Exit code 1 if memories are left
    without vectors.
    """
    import asyncio

    from muniment.cli import FAILED, INTERRUPTED
    from muniment.cli.ending import Ending

    loaded = options.settings(flags)
    spec = to or loaded.embedder
    plugins = options.plugins(loaded)
    storage = plugins.storage(loaded.storage, loaded)
    embedder = plugins.embedder(spec, loaded)
    if embedder is None:
        raise ConfigurationError("The embedder is none, which makes no vectors; name one with --to.")
    with Ending() as ending:
        whole = asyncio.run(_reembed(storage, embedder, batch, ending))
    if whole is None:
        return INTERRUPTED
    return 0 if whole else FAILED


async def _reembed(storage: Storage, embedder: Embedder, batch: int | None, ending: Ending) -> bool | None:
    """Whether all memories have their vectors; None where a signal came first."""
    whole: list[bool] = []

    async def work() -> None:
        await storage.open()
        await embedder.open()
        whole.append(await _filled(storage, embedder, batch))

    try:
        await ending.completes(work())
    finally:
        try:
            await embedder.close()
        finally:
            await storage.close()
    return whole[0] if whole else None


async def _filled(storage: Storage, embedder: Embedder, batch: int | None) -> bool:
    import asyncio

    from muniment.engine import filling, spaces
    from muniment.engine.space_registry import space_storage
    from muniment.engine.vectors import VectorSource

    registry = space_storage(storage)
    space = await spaces.register(storage, embedder)
    work = filling.Filling(storage, VectorSource(embedder), space, batch=batch or filling.BATCH)
    shown = _Shown(registry, space.id)
    await shown.begin()
    while True:
        done = await work.fill(shown.told)
        progress = await registry.space_progress(space.id)
        missing = progress.memories - progress.complete
        if missing <= work.aside:
            break
        if not done:
            # What is left is leased by others; where they are killed, the leases run out.
            await asyncio.sleep(AGAIN_SECONDS)
    shown.end()
    click.echo(f"{progress.complete} of {progress.memories} memories have their vectors in {space.id}.")
    if missing:
        click.echo(f"{missing} have a passage that the embedder does not take; the log names them.")
    return not missing


class _Shown:
    """The progress, its rate and the remaining time, on standard error: one line that changes on a terminal."""

    def __init__(self, registry: SpaceStorage, space: str) -> None:
        self._registry = registry
        self._space = space
        self._terminal = sys.stderr.isatty()
        self._began = self._next = time.monotonic()
        self._first = 0

    async def begin(self) -> None:
        """Note where it begins."""
        progress = await self._registry.space_progress(self._space)
        self._first = progress.complete
        click.echo(
            f"muniment: {progress.memories - progress.complete} of {progress.memories} memories lack vectors in "
            f"{self._space}",
            err=True,
        )

    async def told(self, completed: int) -> None:
        """Show it, but not all the time."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (SHOWN_EVERY if self._terminal else LOGGED_EVERY)
        line = shown(await self._registry.space_progress(self._space), self._first, now - self._began)
        click.echo(f"\r{line}\x1b[K" if self._terminal else line, nl=not self._terminal, err=True)

    def end(self) -> None:
        """Leave the line that changed."""
        if self._terminal:
            click.echo(err=True)


def shown(progress: Progress, first: int, seconds: float) -> str:
    """A line of progress: ``first`` memories were complete ``seconds`` ago, by whomever the others were embedded."""
    from muniment.engine.space_registry import share_of

    rate = (progress.complete - first) / seconds if seconds > 0 else 0.0
    line = f"{share_of(progress)}%  {progress.complete} of {progress.memories} memories, {rate:.1f} a second"
    if rate <= 0:
        return line
    remaining = round((progress.memories - progress.complete) / rate)
    minutes, left = divmod(remaining, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{line}, {hours}:{minutes:02}:{left:02} left"
