"""What every distribution of the workspace has in common, and the command that tests it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from muniment.plugins import USUAL, Plugins

ROOT = Path(__file__).parent.parent
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
MEMBERS = [ROOT / "core", *PLUGINS]
TEST_COMMAND = "python3 -m venv .venv && .venv/bin/pip install nox && .venv/bin/nox"


def project(member: Path) -> dict[str, Any]:
    """The table ``project`` of a member's ``pyproject.toml``."""
    return tomllib.loads((member / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_one_string_everywhere(plugin: Path) -> None:
    """A plugin's folder, distribution, import and entry point have the same name."""
    table = project(plugin)
    package = f"muniment_{plugin.name.replace('-', '_')}"

    assert table["name"] == f"muniment-{plugin.name}"
    assert table["entry-points"]["muniment"] == {plugin.name: package}
    assert (plugin / "src" / package / "__init__.py").is_file()


def test_a_scheme_that_nobody_serves_is_answered_with_what_to_install() -> None:
    """The core knows the distribution of each scheme that a plugin of the workspace serves, and of no other."""
    names = {plugin.name for plugin in PLUGINS}
    served = {
        (one.descriptor.kind, scheme): one.distribution.split(" ")[0]
        for one in Plugins.load().installed
        for scheme in one.descriptor.schemes
        if one.descriptor.name in names
    }
    assert served
    assert served == USUAL


@pytest.mark.parametrize("member", MEMBERS, ids=lambda path: path.name)
def test_every_distribution_is_complete(member: Path) -> None:
    """Each ships its annotations, the one licence, and the version and Python range that all share."""
    table, core = project(member), project(ROOT / "core")

    assert (member / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert list(member.glob("src/*/py.typed"))
    assert (member / table["readme"]).is_file()
    for shared in ("version", "requires-python", "license", "classifiers"):
        assert table[shared] == core[shared]


def test_ci_runs_the_readme_command() -> None:
    """CI proves the command that the README gives, not one like it."""
    assert TEST_COMMAND in (ROOT / "README.md").read_text(encoding="utf-8")
    assert TEST_COMMAND in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
