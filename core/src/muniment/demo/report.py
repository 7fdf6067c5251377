"""How the demonstration looks on a terminal: numbered steps, indented facts, one line at the end."""

from __future__ import annotations

import textwrap

import click

_WIDTH = 96


class Report:
    """Prints the steps; which facts they state is the script's."""

    def __init__(self) -> None:
        self.steps = 0
        self.title = "starting"

    def opening(self, *paragraphs: str) -> None:
        """What the reader is about to see."""
        for paragraph in paragraphs:
            self._wrapped(paragraph, "")

    def step(self, title: str, why: str) -> None:
        """Begin a step: what it shows, and why anybody should care."""
        self.steps += 1
        self.title = title
        click.echo("")
        click.secho(f"{self.steps}. {title}", bold=True)
        self._wrapped(why, "   ")

    def did(self, what: str) -> None:
        """A call that was made."""
        self._wrapped(what, "   > ", "     ")

    def saw(self, what: str) -> None:
        """What came of it."""
        self._wrapped(what, "     ")

    def row(self, line: str) -> None:
        """A line of a table, as it is."""
        click.echo(f"     {line}")

    def kept(self, promise: str) -> None:
        """The step's promise, which held."""
        self._wrapped(f"ok: {promise}", "   ")

    def failed(self, why: str) -> None:
        """The promise that did not hold."""
        click.echo("")
        click.secho(f"Step {self.steps} ({self.title}) did not do what it promises: {why}", bold=True)

    def closing(self, *lines: str) -> None:
        """The result."""
        click.echo("")
        for line in lines:
            click.secho(line, bold=True)

    @staticmethod
    def note(line: str) -> None:
        """A line that belongs to no step."""
        click.echo(line)

    @staticmethod
    def _wrapped(text: str, first: str, rest: str | None = None) -> None:
        click.echo(
            textwrap.fill(
                " ".join(text.split()),
                _WIDTH,
                initial_indent=first,
                subsequent_indent=first if rest is None else rest,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
