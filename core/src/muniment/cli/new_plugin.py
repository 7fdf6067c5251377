"""``muniment new-plugin``: a distribution that installs, is found, and fails the suite until it is written.

The texts are the templates in ``muniment/skeletons``: those in ``every``, and those of the kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import click

from muniment import __version__
from muniment.cli import artefacts
from muniment.errors import ConfigurationError, PluginError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PREFIXES: Mapping[str, str] = {"storage": "storage", "embedder": "embed", "transport": "transport"}
"""How the names of a kind's plugins begin."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME_MAX = 40
_SUFFIX = ".template"
_PLACES: Mapping[str, str] = {
    "package_init.py": "src/{package}/__init__.py",
    "test_conformance.py": "tests/test_conformance.py",
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
}
"""Where files go; every other one is a module of the package."""


@click.command("new-plugin", short_help="Write the skeleton of a plugin.")
@click.argument("kind", type=click.Choice(list(PREFIXES)))
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIRECTORY",
    help="Make it in this directory instead of the working directory.",
)
def command(kind: str, name: str, directory: Path) -> None:
    """Write the skeleton of a plugin into a new directory: for the storage acme, storage-acme.

    It is a distribution that installs and is found by its entry point. The suite fails on it, and says what to write
    next; docs/write-a-plugin.md walks from there to a conformant plugin.
    """
    words = _words(kind, name)
    made = directory / words["plugin"]
    _write(made, dict(_files(kind, words)))
    click.echo(f"Written to {made}. Now:\n")
    click.echo(f'  cd {made}\n  pip install --editable ".[test]"\n  muniment conform {words["plugin"]}\n')
    click.echo("It is not conformant yet; the report's last lines say where to begin.")


def _words(kind: str, name: str) -> Mapping[str, str]:
    """What the templates leave open. Raises ConfigurationError for a name that cannot be, PluginError for one taken."""
    from muniment.hookspecs import CONTRACT

    prefix = PREFIXES[kind]
    short = name.removeprefix(f"{prefix}-")
    if len(short) > _NAME_MAX or not _NAME.fullmatch(short):
        raise ConfigurationError(
            f"{name!r} cannot be a plugin's name: write up to {_NAME_MAX} of a-z and 0-9, a letter first, with - "
            f"between words, such as acme or acme-cloud."
        )
    plugin = f"{prefix}-{short}"
    _refuse_taken(kind, plugin, short)
    major, minor, *_ = map(int, re.findall(r"\d+", __version__))
    versions = f">={major}.{minor},<{major}.{minor + 1}"
    return {
        "kind": kind,
        "plugin": plugin,
        "scheme": short,
        "package": f"muniment_{plugin.replace('-', '_')}",
        "distribution": f"muniment-{plugin}",
        "prefix": "".join(word.capitalize() for word in short.split("-")),
        "summary": f"The {kind} {short} for Muniment.",
        "setting": f"muniment serve --transport {short}" if kind == "transport" else f'{kind} = "{short}:"',
        "requirement": f"muniment{versions}",
        "test_requirement": f"muniment[conformance]{versions}",
        "contract": "{}.{}".format(*CONTRACT),
    }


def _refuse_taken(kind: str, plugin: str, scheme: str) -> None:
    """Two plugins of one name, or of one scheme, would be of no use."""
    from muniment.plugins import Plugins

    for one in Plugins.load().installed:
        taken = one.descriptor
        if taken.name == plugin or (taken.kind == kind and scheme in taken.schemes):
            what = "is called" if taken.name == plugin else "serves the scheme of"
            raise PluginError(f"{one.distribution} already {what} {plugin!r}; choose another name, or uninstall it.")


def _files(kind: str, words: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each file's place below the directory, and its text."""
    from importlib.resources import files

    skeletons = files("muniment") / "skeletons"
    yield f"src/{words['package']}/py.typed", ""
    for folder in ("every", kind):
        for template in _templates(skeletons / folder):
            name = template.name.removesuffix(_SUFFIX)
            place = _PLACES.get(name, f"src/{{package}}/{name}").format_map(words)
            yield place, Template(template.read_text(encoding="utf-8")).substitute(words)


def _templates(folder: Traversable) -> list[Traversable]:
    return sorted((one for one in folder.iterdir() if one.name.endswith(_SUFFIX)), key=lambda one: one.name)


def _write(made: Path, texts: Mapping[str, str]) -> None:
    """All of them or none. Raises ConfigurationError where the directory is there, or cannot be made."""
    if made.exists() or made.is_symlink():
        raise ConfigurationError(f"{made} is there already; remove it, or give another --directory.")
    with artefacts.directory(made, "give a --directory of your own") as staged:
        for place, text in texts.items():
            file = staged / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
