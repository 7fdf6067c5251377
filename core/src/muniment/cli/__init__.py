"""The ``muniment`` command: one module a subcommand, loaded when it is asked for.

This module owns how a refusal is shown and which exit code it gives. Nothing here, nor at the top of a command's
module, imports what only running a command needs, so that ``--help`` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
import uuid
from collections.abc import Callable, Sequence

import click

from muniment import __version__
from muniment.cli import logs, output
from muniment.errors import ConfigurationError, MunimentError

COMMANDS = {
    "serve": "muniment.cli.serve",
    "demo": "muniment.cli.demo",
    "doctor": "muniment.cli.doctor",
    "plugins": "muniment.cli.plugins",
    "conform": "muniment.cli.conform",
    "new-plugin": "muniment.cli.new_plugin",
    "migrate": "muniment.cli.migrate",
    "reindex": "muniment.cli.reindex",
    "optimize": "muniment.cli.optimize",
    "embeddings": "muniment.cli.embeddings",
    "reembed": "muniment.cli.reembed",
    "mcp-config": "muniment.cli.mcp_config",
    "token": "muniment.cli.token",
    "openapi": "muniment.cli.openapi",
}
"""Each subcommand's module, whose ``command`` it is."""

FAILED = 1
"""Exit code of what was tried and did not work."""
MISCONFIGURED = 2
"""Exit code of a configuration, or a command line, that is wrong."""
INTERRUPTED = 130


class _Commands(click.Group):
    """The subcommands, in the order of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        return importlib.import_module(module).command if module else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="muniment %(version)s")
@click.option("--debug", is_flag=True, help="Log everything, and show a traceback where something fails.")
def group(debug: bool) -> None:
    """Memory for AI agents: documents that people and agents share, find and edit safely."""
    logs.start("debug" if debug else "warning")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process: 0 well, 1 failed, 2 misconfigured, 130 interrupted."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Every failure is one line on standard error."""
    return exit_code_of(lambda: group.main(args=arguments, prog_name="muniment", standalone_mode=False))


def exit_code_of(work: Callable[[], object]) -> int:
    """Do a command's work; the exit code. Every failure is one line on standard error."""
    try:
        code = work()
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return MISCONFIGURED
    except click.ClickException as error:
        return _fail(_usage(error), MISCONFIGURED)
    except ConfigurationError as error:
        return _fail(error.message, MISCONFIGURED)
    except MunimentError as error:
        return _fail(error.message, FAILED)
    except BrokenPipeError:
        output.given_up()
        return FAILED
    except Exception as error:
        return _fail(_unforeseen(error), FAILED)
    return code if isinstance(code, int) else 0


def _unforeseen(error: Exception) -> str:
    if isinstance(error, OSError) and output.lost(error):
        return f"The output could not be written ({error.strerror}); make room for it, or send it elsewhere."
    id_ = uuid.uuid4().hex[:12]
    return (
        f"Something failed inside ({type(error).__name__}, {id_}); run muniment --debug … for the details, "
        f"and report it."
    )


def _fail(message: str, code: int) -> int:
    logs.traceback_if_debugging()
    try:
        click.echo(f"muniment: {' '.join(message.split())}", err=True)
    except OSError:
        # Nobody can be told, and the exit code is left.
        output.complaints_given_up()
    return code


def _usage(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message}; see {context.command_path if context else 'muniment'} --help."
