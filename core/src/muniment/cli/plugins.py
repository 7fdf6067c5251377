"""``muniment plugins``: what is installed, and what cannot be used and why."""

from __future__ import annotations

import click


@click.group("plugins", short_help="Show the installed plugins.")
def command() -> None:
    """Show the installed plugins."""


@command.command("list", short_help="List plugins, and those that cannot be used with their causes.")
def list_() -> None:
    """List the installed plugins, and those that cannot be used with their causes."""
    from muniment.plugins import Plugins

    found = Plugins.load()
    for one in found.installed:
        described = one.descriptor
        schemes = " ".join(f"{scheme}:" if described.kind != "transport" else scheme for scheme in described.schemes)
        click.echo(
            f"{described.name}  {described.kind}  {schemes}  ({one.distribution}, contract {described.contract})"
        )
        click.echo(f"    {described.summary}")
    for failure in found.failures:
        click.echo(f"{failure.plugin}  cannot be used  ({failure.distribution})")
        click.echo(f"    {failure.cause}; {failure.remedy}")
    if not found.installed and not found.failures:
        click.echo('No plugin is installed; pip install "muniment[standard]" brings the usual ones.')
