"""``muniment conform``: judge an installed plugin by the suite and print the report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.errors import ConfigurationError, PluginError

if TYPE_CHECKING:
    from muniment.conformance.report import Report, Result
    from muniment.conformance.target import Target


@click.command("conform", short_help="Judge an installed plugin by the conformance suite.")
@click.argument("name")
@click.option("--url", metavar="URL", help="Judge it on this server instead of what it starts by itself.")
@click.option(
    "--only", metavar="ID", multiple=True, help="Only this invariant or family, such as MUT-03 or ACC; repeat for more."
)
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the report to this file, as JSON.")
@click.option("--seed", type=int, help="The seed of what is random, as an earlier report names it.")
def command(name: str, url: str | None, only: tuple[str, ...], report: Path | None, seed: int | None) -> int:
    """Judge the installed plugin NAME by the conformance suite, and print each invariant's outcome.

    Exit code 0 if it is conformant, 1 if not, 2 if it could not be judged.
    """
    judged = judge(name, url, only, seed)
    click.echo(judged.as_text(), nl=False)
    if report is not None:
        try:
            report.write_text(judged.as_json(), encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"--json {report} cannot be written ({error.strerror}).") from None
    return judged.exit_code


def judge(name: str, url: str | None, only: tuple[str, ...], seed: int | None) -> Report:
    """The suite's report on an installed plugin. Raises ConfigurationError where it cannot be judged."""
    import asyncio

    from muniment.conformance.registry import UnknownInvariant
    from muniment.conformance.runner import run
    from muniment.conformance.target import NotRun

    try:
        target = target_of(name, url)
        return asyncio.run(run(target, only=only or None, seed=seed, progress=_say))
    except (NotRun, UnknownInvariant) as error:
        raise ConfigurationError(f"{name} was not judged: {error}") from None


def target_of(name: str, url: str | None) -> Target:
    """The conformance target of an installed plugin. Raises PluginError, and NotRun where it can start nothing."""
    from muniment.plugins import Plugins, resolve

    descriptor = Plugins.load().named(name).descriptor
    if descriptor.conformance is None:
        raise PluginError(f"Plugin {name} brings no conformance target; ask its author for one.")
    make = resolve(descriptor.conformance, name)
    return make() if url is None else make(url)


def _say(result: Result) -> None:
    """Progress, for whoever waits at a terminal."""
    if sys.stderr.isatty():
        click.echo(f"{result.id} {result.outcome}", err=True)
