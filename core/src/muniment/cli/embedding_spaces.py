"""``muniment embeddings status|activate|rollback|prune``: which embedder's vectors there are, and which ones serve."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muniment.cli import options
from muniment.errors import ConfigurationError

if TYPE_CHECKING:
    from muniment.config import Settings
    from muniment.engine.space_registry import Standing
    from muniment.ports import Space, Storage

NONE = "none"
T = TypeVar("T")


@click.command("status", short_help="Show the spaces, and how much of each there is.")
@options.configured
def status(**flags: Any) -> None:
    """Show each space: whose vectors it holds, of how many memories, and whether servers answer from it.

    Of every embedder that was ever configured the vectors are kept, in a space of their own, until they are pruned.
    """
    loaded = options.settings(flags)
    found = _run(loaded, _standings)
    if not found:
        click.echo("There are no vectors yet; a server with an embedder makes them.")
        return
    for line in _lines(found):
        click.echo(line)
    _hint(loaded, found)


@click.command("activate", short_help="Make an embedder whose vectors are complete the one that serves.")
@click.argument("spec", metavar="EMBEDDER")
@click.option("--incomplete", is_flag=True, help="Also where memories have no vectors of it yet.")
@options.configured
def activate(spec: str, incomplete: bool, **flags: Any) -> None:
    """Make EMBEDDER, such as openai:text-embedding-3-small, the one that serves: check that its model is the one that
    made its vectors, that these are complete, and write it into the configuration's file.

    Servers use it once they are started again. `muniment reembed --to EMBEDDER` makes the vectors beforehand.
    """
    from muniment.engine.space_registry import switch_to

    loaded = options.settings(flags)
    embedder = options.plugins(loaded).embedder(spec, loaded)
    if embedder is None:
        raise ConfigurationError("none has no vectors; set embedder to none in the configuration, and restart.")

    async def on_it(storage: Storage) -> Standing:
        await embedder.open()
        try:
            return await switch_to(storage, embedder, incomplete=incomplete)
        finally:
            await embedder.close()

    standing = _run(loaded, on_it)
    click.echo(f"{standing.space.id} is the active space; {_share(standing)} have their vectors in it.")
    _configure(loaded, embedder.name)


@click.command("rollback", short_help="Go back to the embedder that served before.")
@options.configured
def rollback(**flags: Any) -> None:
    """Go back to the embedder whose space served before the active one, and write it into the configuration's file.

    Its vectors are those that were kept; what was written meanwhile gets its own from the next server, or from
    `muniment reembed`. Servers use it once they are started again. From embedder none the way back is to the active
    space's own. Refused where the embedder's options have changed since, such as its dimensions.
    """
    from muniment.engine.space_registry import go_back, space_storage

    loaded = options.settings(flags)
    plugins = options.plugins(loaded)
    from_none = loaded.embedder == NONE

    async def space_of(spec: str) -> Space | None:
        embedder = plugins.embedder(spec, loaded)
        if embedder is None:
            return None
        await embedder.open()
        try:
            return await embedder.space()
        finally:
            await embedder.close()

    async def back(storage: Storage) -> Standing:
        return await go_back(space_storage(storage), space_of, from_none=from_none)

    standing = _run(loaded, back)
    word = "still" if from_none else "again"
    click.echo(f"{standing.space.id} is the active space {word}; {_share(standing)} have their vectors in it.")
    assert standing.registered.embedder is not None
    _configure(loaded, standing.registered.embedder)


@click.command("prune", short_help="Delete the vectors of spaces that serve no longer.")
@click.argument("ids", metavar="[SPACE]...", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.configured
def prune(ids: tuple[str, ...], yes: bool, **flags: Any) -> None:
    """Delete for good the vectors and indexes of the spaces that served before the active one, or of those named.

    There is no way back to them but embedding everything again. The active space stays. Without a name nothing is
    deleted while the active space lacks vectors, and one that never served, such as one that is being filled, stays.
    Start servers again that still have one of these embedders beforehand: they would make its vectors once more.
    It can be interrupted and repeated.
    """
    from muniment.engine.space_registry import prunable, space_storage

    loaded = options.settings(flags)

    async def chosen(storage: Storage) -> Sequence[Standing]:
        return prunable(await _standings(storage), ids)

    going = _run(loaded, chosen)
    if not going:
        click.echo("There is nothing to prune.")
        return
    for standing in going:
        click.echo(f"{standing.space.id}: the vectors of {standing.progress.complete} memories")
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigurationError("Nobody can be asked here whether to delete them; add --yes.")
        click.confirm("Delete them?", abort=True)

    async def drop(storage: Storage) -> list[str]:
        spaces = space_storage(storage)
        return [one.space.id for one in going if await spaces.drop_space(one.space.id)]

    dropped = _run(loaded, drop)
    click.echo(f"{len(dropped)} of {len(going)} spaces are deleted.")
    if len(dropped) < len(going):
        raise ConfigurationError("The others became active, or were deleted by somebody else; see their status.")


async def _standings(storage: Storage) -> Sequence[Standing]:
    from muniment.engine.space_registry import space_storage, standings

    return await standings(space_storage(storage))


def _run(loaded: Settings, work: Callable[[Storage], Awaitable[T]]) -> T:
    """What ``work`` gives on the configured storage."""
    import asyncio

    storage = options.plugins(loaded).storage(loaded.storage, loaded)

    async def on_it() -> T:
        try:
            await storage.open()
            return await work(storage)
        finally:
            await storage.close()

    return asyncio.run(on_it())


def _configure(loaded: Settings, embedder: str) -> None:
    """Write the embedder into the configuration's file, or say where it is to be written."""
    from muniment import config_file
    from muniment.cli import artefacts

    if loaded.embedder == embedder:
        click.echo(f"The configuration has embedder {embedder} already; start the servers again if it was changed.")
        return
    file = config_file.settable(loaded, "embedder")
    if file is None:
        click.echo(f"Now {config_file.by_hand(loaded, 'embedder', embedder)}, and start the servers again.")
        return
    artefacts.write("the configuration", file, config_file.with_value(file, "embedder", embedder))
    click.echo(f'{file} has embedder = "{embedder}" now; start the servers again.')


def _hint(loaded: Settings, found: Sequence[Standing]) -> None:
    """Say so where the configuration names another embedder than the one that serves."""
    active = next((one for one in found if one.active), None)
    if active is not None and loaded.embedder == NONE:
        click.echo(
            "The configuration has embedder none: servers answer by words and tags, and make no vectors. These are "
            f"kept; muniment embeddings rollback goes back to {active.registered.embedder}."
        )
    elif active is not None and active.registered.embedder != loaded.embedder:
        click.echo(
            f"The configuration has embedder {loaded.embedder}, and the active space is of "
            f"{active.registered.embedder}: the next server that starts makes the configured one active."
        )


def _lines(found: Sequence[Standing]) -> list[str]:
    rows = [("SPACE", "EMBEDDER", "STATE", "DIMENSIONS", "COMPLETE", "ACTIVE SINCE")]
    rows += [
        (
            one.space.id,
            one.registered.embedder or "-",
            one.state,
            str(one.space.dimensions),
            f"{one.percent}% ({one.progress.complete} of {one.progress.memories})",
            _moment(one.registered.activated_at),
        )
        for one in found
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _share(standing: Standing) -> str:
    return f"{standing.progress.complete} of {standing.progress.memories} memories"


def _moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else "-"
