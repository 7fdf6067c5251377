"""The options by which every command that needs the configuration overrides it, and how they become settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muniment.cli import logs

if TYPE_CHECKING:
    from muniment.config import Settings
    from muniment.plugins import Plugins

Command = TypeVar("Command", bound=Callable[..., Any])

Options = tuple[Callable[[Any], Any], ...]

_PLACES: Options = (
    click.option("--config", metavar="FILE", help="Read this TOML file instead of the usual ones."),
    click.option("--storage", metavar="URL", help="Where memories are kept, such as embedded: or postgresql://…"),
    click.option("--data-dir", metavar="DIRECTORY", help="What plugins keep on this machine goes here."),
)
_LOGGING: Options = (
    click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error."),
    click.option("--log-format", metavar="FORMAT", help="text, or json for one object a line."),
)
_OPTIONS: Options = (
    *_PLACES,
    click.option("--embedder", metavar="NAME", help="What makes vectors, such as local:all-MiniLM-L6-v2, or none."),
    click.option("--user", metavar="NAME", help="Whose memories a local client reads and writes."),
    click.option("--group", "groups", metavar="NAME", multiple=True, help="A group of that user; repeat for more."),
    click.option("--project", metavar="KEY", help="The project that a write without a scope goes to."),
    click.option("--agent", metavar="NAME/INSTANCE", help="The agent instance that a local client is."),
    click.option("--platform/--no-platform", default=None, help="A local client is the platform that agents run on."),
    click.option(
        "--memory-cue/--no-memory-cue", default=None, help="Begin an event's content with a line on new exchanges."
    ),
    click.option("--embed-timeout", metavar="SECONDS", help="How long a call waits for the embedder."),
    *_LOGGING,
)


def configured(command: Command) -> Command:
    """Give ``command`` the configuration's options; it passes them to ``settings`` as they come."""
    return _with(_OPTIONS, command)


def located(command: Command) -> Command:
    """Give ``command`` those of the options that say where things are kept."""
    return _with(_PLACES + _LOGGING, command)


def _with(found: Options, command: Command) -> Command:
    for option in reversed(found):
        command = option(command)
    return command


def given(flags: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that were used, by configuration key."""
    used = {key: value for key, value in flags.items() if value not in (None, ())}
    return {key: list(value) if key == "groups" else value for key, value in used.items()}


def settings(flags: dict[str, Any]) -> Settings:
    """The configuration with ``flags`` over it; logging follows it. Raises ConfigurationError."""
    from muniment.config import Settings

    loaded = Settings.load(given(flags))
    logs.write_as(loaded.log_format)
    if not logs.debugging():
        logs.start(loaded.log_level)
    return loaded


def plugins(loaded: Settings) -> Plugins:
    """The plugins, checked against the configuration; they log at its level. Raises PluginError."""
    from muniment.plugins import Plugins

    found = Plugins.load()
    found.check(loaded)
    level = "debug" if logs.debugging() else loaded.log_level
    logs.start(level, {one.factory.partition(".")[0] for one in found.descriptors})
    return found
