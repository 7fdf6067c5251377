"""``muniment embeddings export``: write a model in the form in which it starts fastest.

What that form is, and whether it makes the same vectors, is the embedder plugin's; this module owns that the directory
is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from muniment.cli import artefacts
from muniment.errors import ConfigurationError

_USUAL = "local"
"""The scheme of a model that is named without one."""


@click.command("export", short_help="Write a model into a directory from which it starts faster.")
@click.argument("model")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
def export(model: str, directory: Path) -> None:
    """Write MODEL into the new directory DIR as an ONNX file with all that belongs to it.

    MODEL is what the configuration would call the embedder, where local: may be left out. PyTorch is needed for this,
    and not for the directory, whose vectors are compared with PyTorch's before it is kept: it is the same space.
    """
    from muniment import standard_streams
    from muniment.config import redact
    from muniment.plugins import Plugins, resolve

    spec = model if ":" in model else f"{_USUAL}:{model}"
    scheme = spec.partition(":")[0]
    descriptor = Plugins.load().find("embedder", scheme.lower())
    if descriptor.exporter is None:
        raise ConfigurationError(
            f"{descriptor.name} exports no models; name one that runs on this machine: local:NAME."
        )
    with _interrupted_by_signals(), artefacts.directory(directory, "name a new directory") as staged:
        exporter = resolve(descriptor.exporter, descriptor.name)
        click.echo(f"muniment: exporting {redact(spec)}; this takes a minute or two", err=True)
        with standard_streams.aside():
            facts = exporter(spec, staged)
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    click.echo(f'Written to {directory}: {told}.\nNow set embedder = "{scheme}:{directory.resolve()}".')


@contextmanager
def _interrupted_by_signals() -> Generator[None]:
    """Let SIGTERM end the work as Ctrl-C does, so that what was begun is cleared away."""
    from muniment.serving.signals import Caught

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    caught = Caught(interrupt)
    try:
        yield
    finally:
        caught.give_back()
