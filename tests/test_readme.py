"""The README: its two commands are the ones that CI proves, and what it names is real."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click

from muniment import cli, config
from muniment.cli import mcp_config
from muniment.plugins import Plugins

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCES = re.findall(r"```sh\n(.+?)\n```", README, re.DOTALL)


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, cells without their backquotes."""
    below = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip().replace("`", "") for cell in row] for row in rows[2:]]


def noxfile() -> dict[str, object]:
    """The constants of the task runner, read without running it."""
    source = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    constants = re.findall(r"^([A-Z]+) = (\(.+?\n\)|\".+?\")$", source, re.DOTALL | re.MULTILINE)
    return {name: ast.literal_eval(value) for name, value in constants}


def test_the_first_screen_has_two_complete_commands() -> None:
    """The demo's and the tests' command come first, each in one line, each from a fresh environment."""
    first = README.split("\n## ")[0]

    assert re.findall(r"```sh\n(.+?)\n```", first, re.DOTALL) == FENCES[:2]
    for command in FENCES[:2]:
        assert "\n" not in command
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")


def test_the_demo_command_installs_what_ci_installs() -> None:
    """The same PyTorch, first and alone, and the members that CI's environment has for the demo."""
    constants = noxfile()
    steps = [shlex.split(step) for step in FENCES[0].split(" && ")]
    members = [re.sub(r"^core\[.*\]$", "core", str(member)) for member in constants["MEMBERS"]]  # pyright: ignore

    assert steps[1] == [".venv/bin/pip", "install", constants["TORCH"]]
    assert steps[2] == [".venv/bin/pip", "install", *(part for one in members for part in ("-e", one))]
    assert steps[3] == [".venv/bin/muniment", "demo"]


def test_the_test_command_is_the_one_of_ci() -> None:
    """CI runs the README's second command, word for word."""
    assert FENCES[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_all_commands_are_there_and_no_others() -> None:
    """The table of commands has each of them, described as its own help describes it."""
    named = {row[0].removeprefix("muniment ").split(" ")[0] for row in table("Connect a client")}
    assert named == set(cli.COMMANDS)

    for name in re.findall(r"muniment ((?:[a-z]+-)*[a-z]+) ", "\n".join(FENCES)):
        assert name in cli.COMMANDS


def test_all_settings_are_there_with_flag_variable_and_default() -> None:
    """The table of settings has each key once, and says what is true of it."""
    rows = {row[0]: row[1:] for row in table("Configure it")}
    assert set(rows) == set(config.keys())

    serve = cli.group.get_command(click.Context(cli.group), "serve")
    assert serve is not None
    flags = {option for parameter in serve.params for option in parameter.opts}
    for key, (flag, variable, default, _) in rows.items():
        assert flag == "" or flag.split(",")[0] in flags
        assert variable.split(",")[0] == config.variable(key)
        field = config.Settings.model_fields[key]
        if isinstance(field.default, bool):
            assert default == str(field.default).lower()
        if isinstance(field.default, (str, float)):
            assert default == f"{field.default:g}" if isinstance(field.default, float) else field.default


def test_all_clients_are_named() -> None:
    """Each client of ``mcp-config`` is listed."""
    for client in mcp_config.CLIENTS:
        assert f"`{client}`" in README


def test_all_plugins_are_there_with_their_schemes() -> None:
    """The table of plugins has what this repository brings, with the schemes of the descriptors."""
    rows = {row[0]: row[2] for row in table("Plugins")}
    distributions = {re.sub(r"\[(.+?)\].*", r"\1", cell): schemes for cell, schemes in rows.items()}

    for one in Plugins.load().installed:
        listed = distributions[one.distribution.split(" ")[0]]
        for scheme in one.descriptor.schemes:
            assert re.search(rf"\b{re.escape(scheme)}\b", listed), (
                f"{scheme} of {one.descriptor.name} is not in the README"
            )


def test_links_lead_somewhere() -> None:
    """Every relative link of every document is there."""
    for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("core/*.md"), *ROOT.glob("plugins/*/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text(encoding="utf-8")):
            assert (file.parent / target).exists(), f"{file.relative_to(ROOT)} links to {target}"
