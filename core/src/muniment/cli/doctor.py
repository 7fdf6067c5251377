"""``muniment doctor``: what is installed and configured, and whether it works; it always ends."""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import click

from muniment import __version__, standard_streams
from muniment.cli import options

if TYPE_CHECKING:
    from muniment.config import Settings
    from muniment.hookspecs import Descriptor, Finding
    from muniment.plugins import Plugins

PATIENCE = 60.0
"""Seconds that one check may take; the first start of an embedded server takes several."""


@click.command("doctor", short_help="Check the installation and the configuration.")
@options.configured
def command(**flags: Any) -> int:
    """Check the installation and the configuration: plugins, settings, storage, embedder, authentication.

    Exit code 1 if something is not well; no secret is printed.
    """
    from muniment.plugins import Plugins

    loaded = options.settings(flags)
    plugins = Plugins.load()
    click.echo(f"muniment {__version__}, {_contract()}, Python {platform.python_version()} ({sys.executable})")
    _print_configuration(loaded)
    findings: list[Finding] = []
    # What was found is told before a storage that opens mends it, and what has changed by that after.
    for check in (installed, tables, hooks, storage, mended, embedder, transports, unused, authentication):
        with standard_streams.aside():
            found = within(PATIENCE, check.__name__, lambda check=check: check(plugins, loaded))
        for finding in found:
            if finding not in findings:
                findings.append(finding)
                _print_finding(finding)
    if all(finding.ok for finding in findings):
        # What is broken was said; a model that is not there would be looked for.
        for finding in within(PATIENCE, vectors.__name__, lambda: vectors(plugins, loaded)):
            findings.append(finding)
            _print_finding(finding)
    bad = sum(not finding.ok for finding in findings)
    click.echo(f"\n{bad} of {len(findings)} checks failed." if bad else f"\nAll {len(findings)} checks are well.")
    if _hanging():
        # A thread that hangs in a driver would keep the interpreter from ending.
        sys.stdout.flush()
        os._exit(1)
    return 1 if bad else 0


def installed(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """One finding for each plugin; a broken one is bad even where the configuration leaves it alone."""
    from muniment.hookspecs import Finding

    well = [
        Finding(f"plugin {one.descriptor.name}", True, f"{one.distribution}, contract {one.descriptor.contract}")
        for one in plugins.installed
    ]
    broken = [
        Finding(f"plugin {one.plugin}", False, f"{one.distribution}: {one.cause}", f"{one.remedy}, or uninstall it")
        for one in plugins.failures
    ]
    return [*well, *broken]


def tables(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """That each ``[plugins.NAME]`` table belongs to a plugin."""
    return _refusals("configuration", lambda: plugins.check(loaded))


def storage(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """That the storage opens, and what it says of itself."""
    from muniment.config import redact
    from muniment.hookspecs import Finding

    async def look() -> Sequence[Finding]:
        seat = plugins.storage(loaded.storage, loaded)
        try:
            await seat.open()
            facts = await seat.describe()
        finally:
            await seat.close()
        detail = ", ".join(f"{name} {value}" for name, value in facts.items())
        return [Finding(f"storage {redact(loaded.storage)}", True, detail or "it answers")]

    return _refusals(f"storage {redact(loaded.storage)}", look)


def embedder(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """That the embedder opens; where its model is its plugin finds."""
    from muniment.config import redact
    from muniment.hookspecs import Finding

    subject = f"embedder {redact(loaded.embedder)}"

    async def look() -> Sequence[Finding]:
        seat = plugins.embedder(loaded.embedder, loaded)
        if seat is None:
            return [Finding(subject, True, "search is by words and tags alone, as configured")]
        try:
            await seat.open()
        finally:
            await seat.close()
        return [Finding(subject, True, "it opens")]

    return _refusals(subject, look)


def transports(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """That each transport takes the table that the configuration has for it, whether or not it is served."""
    from muniment.hookspecs import Finding

    found: list[Finding] = []
    for one in plugins.installed:
        name = one.descriptor.name
        if one.descriptor.kind == "transport" and loaded.plugins.keys() & {one.plugin, name}:

            async def look(scheme: str = one.descriptor.schemes[0], name: str = name) -> Sequence[Finding]:
                plugins.transport(scheme, loaded)
                return [Finding(f"transport {name}", True, "it takes its settings")]

            found.extend(_refusals(f"transport {name}", look))
    return found


def unused(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """That each storage and embedder takes the table that the configuration has for it, although it is not in use."""
    in_use = {value.partition(":")[0].lower() for value in (loaded.storage, loaded.embedder)}
    found: list[Finding] = []
    for one in plugins.descriptors:
        if one.kind != "transport" and one.name in loaded.plugins and not in_use & set(one.schemes):
            found.extend(_takes_its_table(one, plugins, loaded))
    return found


_VALUES = ("", "x", "//localhost/x")
"""What may stand behind a scheme. A plugin reads its options once it knows what to make, and nothing is opened."""


def _takes_its_table(descriptor: Descriptor, plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """A finding, or none where no value is one of the plugin's: a refusal of the value says nothing of the table."""
    from muniment.errors import ConfigurationError, MunimentError
    from muniment.hookspecs import Finding

    subject = f"{descriptor.kind} {descriptor.name}"
    make = plugins.storage if descriptor.kind == "storage" else plugins.embedder
    for value in _VALUES:
        try:
            make(f"{descriptor.schemes[0]}:{value}", loaded)
        except ConfigurationError as error:
            if "option" in error.details:
                return [Finding(subject, False, f"{error.message} ({error.code})")]
        except MunimentError:
            continue
        else:
            return [Finding(subject, True, "it takes its settings")]
    return []


def vectors(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """That the configured model is the one that made the stored vectors, and how many memories wait for theirs."""
    from muniment.engine.space_registry import found_out
    from muniment.hookspecs import Finding

    async def look() -> Sequence[Finding]:
        embedder = plugins.embedder(loaded.embedder, loaded)
        seat = plugins.storage(loaded.storage, loaded)
        try:
            await seat.open()
            return [Finding("vectors", True, said) for said in await found_out(seat, embedder)]
        finally:
            await seat.close()

    return _refusals("vectors", look)


def authentication(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """Who may call over HTTP, and that the issuers' keys can be had."""
    from muniment.authentication.findings import SUBJECT, findings

    return _refusals(SUBJECT, lambda: findings(loaded.auth))


def hooks(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """What the plugins find about themselves."""
    return _found(plugins, loaded, loaded.embedder)


def mended(plugins: Plugins, loaded: Settings) -> Sequence[Finding]:
    """What they find once the storage was opened; the embedder, whose provider may charge, is not asked again."""
    return _found(plugins, loaded, "none")


def _found(plugins: Plugins, loaded: Settings, embedder: str) -> Sequence[Finding]:
    from muniment.config import redact
    from muniment.hookspecs import DoctorContext

    context = DoctorContext(storage=redact(loaded.storage), embedder=redact(embedder), data_dir=str(loaded.data_dir))
    return plugins.doctor(context, loaded.plugins)


def within(seconds: float, name: str, check: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    """The findings of ``check``; one that says so, where it has not answered after ``seconds`` or broke."""
    from muniment.hookspecs import Finding

    found: list[Finding] = []

    def run() -> None:
        try:
            found.extend(check())
        except Exception as error:
            found.append(Finding(name, False, f"the check failed: {type(error).__name__}", "run it with --debug"))

    thread = threading.Thread(target=run, name=f"{_THREAD}{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return [Finding(name, False, f"no answer within {seconds:g} s", "check that it runs and can be reached")]
    return found


_THREAD = "doctor-"


def _hanging() -> bool:
    return any(thread.name.startswith(_THREAD) for thread in threading.enumerate())


def _refusals(
    subject: str, look: Callable[[], None] | Callable[[], Coroutine[Any, Any, Sequence[Finding]]]
) -> Sequence[Finding]:
    """What ``look`` finds; its refusal as a finding."""
    import asyncio

    from muniment.errors import MunimentError
    from muniment.hookspecs import Finding

    try:
        pending = look()
        return [] if pending is None else asyncio.run(pending)
    except MunimentError as error:
        return [Finding(subject, False, f"{error.message} ({error.code})")]
    except Exception as error:
        return [Finding(subject, False, f"it failed with {type(error).__name__}", "run it with --debug")]


def _print_configuration(loaded: Settings) -> None:
    click.echo(f"configuration ({loaded.file or 'no file'})")
    for key, value in loaded.shown().items():
        click.echo(f"      {key} = {value or '-'}  ({loaded.origin(key.partition('.')[0])})")


def _print_finding(finding: Finding) -> None:
    click.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.subject}: {finding.detail}")
    if finding.remedy and not finding.ok:
        click.echo(f"      remedy: {finding.remedy}")


def _contract() -> str:
    from muniment.hookspecs import CONTRACT

    return "contract {}.{}".format(*CONTRACT)
