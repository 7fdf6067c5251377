"""``muniment embeddings``: what there is of vectors, and which embedder's serve."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "status": "muniment.cli.embedding_spaces:status",
    "activate": "muniment.cli.embedding_spaces:activate",
    "rollback": "muniment.cli.embedding_spaces:rollback",
    "prune": "muniment.cli.embedding_spaces:prune",
    "export": "muniment.cli.embedding_export:export",
}
"""Where each subcommand is."""


class _Commands(click.Group):
    """The subcommands, in the order of the table, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        path = COMMANDS.get(cmd_name)
        if path is None:
            return None
        module, _, name = path.partition(":")
        return getattr(importlib.import_module(module), name)


@click.group("embeddings", cls=_Commands, short_help="Show, switch and prune embedders' vectors; export models.")
def command() -> None:
    """Show, switch and prune the vectors of each embedder, which are kept in a space of their own.

    Swapping the embedder is one line of the configuration and a restart; these are for seeing it, doing it without a
    moment in between, and going back.
    """
