"""``muniment conform``: judge an installed plugin by the suite, print the report and write it to files.

It is done in a process of its own, which the plugin may end: an exit code comes with a finished report, or is 2.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from muniment.cli import artefacts, logs
from muniment.cli.supervised import supervised
from muniment.errors import ConfigurationError, MunimentError, PluginError

if TYPE_CHECKING:
    from muniment.conformance.report import Report, Result
    from muniment.conformance.self_test import SelfTest
    from muniment.conformance.target import StorageTarget, Target

_FILE = click.Path(path_type=Path)


@click.command("conform", short_help="Judge an installed plugin by the conformance suite.")
@click.argument("name")
@click.option("--url", metavar="URL", help="Judge it there, as its README says, instead of what it starts itself.")
@click.option("--on", metavar="NAME", help="Judge an embedder or a transport over this storage plugin.")
@click.option(
    "--only", metavar="ID", multiple=True, help="Only this invariant or family, such as MUT-03 or ACC; repeat for more."
)
@click.option("--json", type=_FILE, metavar="FILE", help="Write the report to this file, as JSON.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write it as JUnit XML, a test case for each invariant.")
@click.option("--badge", type=_FILE, metavar="FILE", help="Write its verdict as an SVG image.")
@click.option("--seed", type=int, metavar="N", help="The seed of what is random, as an earlier report names it.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="S",
    help="Seconds for each invariant; one that takes longer is cut off.",
)
@click.option(
    "--self-test", is_flag=True, help="Judge the plugin's target instead: whether it would show a broken plugin."
)
def command(
    name: str,
    url: str | None,
    on: str | None,
    only: tuple[str, ...],
    json: Path | None,
    junit: Path | None,
    badge: Path | None,
    seed: int | None,
    timeout: float,
    self_test: bool,
) -> int:
    """Judge the installed plugin NAME by the conformance suite, and print each invariant's outcome.

    With --self-test, plugins that keep no rule stand in for NAME, and what passes on one of them is a fault that its
    target would hide.

    Exit code 0 if it is conformant, 1 if not, 2 if it could not be judged.
    """
    if math.isnan(timeout):
        raise ConfigurationError("--timeout nan is no number of seconds; write one such as 120.")
    files = {option: path for option, path in (("--json", json), ("--junit", junit), ("--badge", badge)) if path}
    if self_test and files:
        raise ConfigurationError(f"--self-test writes no report; leave {' and '.join(files)} out.")
    if self_test and on is not None:
        raise ConfigurationError("--self-test judges the target alone; leave --on out.")
    if len({path.resolve() for path in files.values()}) < len(files):
        raise ConfigurationError(f"{' and '.join(files)} name the same file; give each its own.")
    for option, path in files.items():
        artefacts.check(option, path)

    def work() -> int:
        found = _try(name, url, only, seed, timeout) if self_test else judge(name, url, only, seed, timeout, on)
        click.echo(found.as_text(), nl=False)
        for option, path in files.items():
            artefacts.write(option, path, _texts()[option](cast("Report", found)))
        return found.exit_code

    return supervised(f"{name} was not judged", work)


def judge(
    name: str,
    url: str | None,
    only: tuple[str, ...] = (),
    seed: int | None = None,
    timeout: float = 120.0,
    on: str | None = None,
) -> Report:
    """The suite's report on an installed plugin. Raises ConfigurationError where it cannot be judged."""
    import asyncio

    from muniment.conformance.runner import run

    with _Judging(name):
        target = target_of(name, url)
        if on is not None:
            target.over = _storage_under(target, on)
        return asyncio.run(run(target, only=only or None, seed=seed, timeout=timeout, progress=_say, url=url))


def target_of(name: str, url: str | None) -> Target:
    """The conformance target of an installed plugin. Raises PluginError, NotJudged where it does not fit, and NotRun
    where it can start nothing."""
    from muniment.config import redact
    from muniment.conformance.ending import text_of
    from muniment.conformance.fitting import fitting
    from muniment.conformance.registry import NotJudged
    from muniment.conformance.target import NotRun
    from muniment.plugins import Plugins, resolve

    descriptor = Plugins.load().named(name).descriptor
    if descriptor.conformance is None:
        raise PluginError(f"Plugin {name} brings no conformance target; ask its author for one.")
    make = resolve(descriptor.conformance, name)
    try:
        return fitting(make() if url is None else make(url), descriptor)
    except (MunimentError, NotRun, NotJudged):
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{name} was not judged: its target {descriptor.conformance} raised {type(error).__name__} "
            f"({redact(text_of(error))}); mend it."
        ) from error


def _storage_under(target: Target, on: str) -> StorageTarget[Any]:
    """The target of the storage plugin ``on``. Raises ConfigurationError where that, or the target, does not fit."""
    from muniment.conformance.target import StorageTarget

    if isinstance(target, StorageTarget):
        raise ConfigurationError(f"{target.name} keeps its data itself; --on is for embedders and transports.")
    under = target_of(on, None)
    if not isinstance(under, StorageTarget):
        raise ConfigurationError(f"--on {on} is no storage; name one that `muniment plugins` lists as a storage.")
    return cast("StorageTarget[Any]", under)


def _try(name: str, url: str | None, only: tuple[str, ...], seed: int | None, timeout: float) -> SelfTest:
    """What is found of the plugin's target. Raises ConfigurationError where it cannot be tried."""
    import asyncio

    from muniment.conformance.self_test import self_test

    with _Judging(name):
        target = target_of(name, url)
        return asyncio.run(self_test(target, only=only or None, seed=seed, timeout=timeout, progress=_say))


class _Judging:
    """While entered: what cannot be run is a refusal, and warnings, which the checks provoke, are not logged."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._log = logging.getLogger("muniment")
        self._level = self._log.level

    def __enter__(self) -> None:
        if not logs.debugging():
            self._log.setLevel(logging.CRITICAL)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        from muniment.conformance.registry import NotJudged
        from muniment.conformance.target import NotRun

        self._log.setLevel(self._level)
        if isinstance(error, NotRun | NotJudged):
            raise ConfigurationError(f"{self._name} was not judged: {error}") from None


def _texts() -> Mapping[str, Callable[[Report], str]]:
    """What each option writes."""
    from muniment.conformance.badge import badge
    from muniment.conformance.junit import junit

    return {"--json": lambda report: report.as_json(), "--junit": junit, "--badge": badge}


def _say(result: Result) -> None:
    """Progress, for whoever waits at a terminal."""
    if sys.stderr.isatty():
        click.echo(f"{result.id} {result.outcome}", err=True)
