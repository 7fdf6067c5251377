"""The walk of ``docs/write-a-plugin.md``: from the skeleton to a conformant embedder, by what stands on the page."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from muniment.cli.new_plugin import PREFIXES
from muniment.conformance.invariant import Outcome
from muniment.conformance.registry import BY_ID, FAMILIES
from muniment.conformance.runner import CUT_OFFS
from muniment.conformance.target import StorageTarget
from muniment.ports import Storage

PAGE = (Path(__file__).parent.parent / "docs" / "write-a-plugin.md").read_text(encoding="utf-8")
LINES = 40
"""An author writes fewer than so many."""


def section(heading: str) -> str:
    """The text below a heading."""
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def fences(text: str, language: str) -> list[str]:
    """The blocks of a language."""
    return re.findall(rf"^```{language}\n(.+?)^```$", text, re.DOTALL | re.MULTILINE)


def muniment(command: str, cwd: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """A command of the page, with what was installed into ``site``."""
    program, *arguments = shlex.split(command)
    assert program == "muniment"
    return subprocess.run(
        [sys.executable, "-m", "muniment", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def install(plugin: Path, site: Path) -> None:
    """Build the distribution and install it, without what it needs, which is there."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--upgrade"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(plugin)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_walk_of_an_embedder(tmp_path: Path) -> None:
    """The skeleton is installed, fails as the page says, and passes with the page's own lines, fewer than forty."""
    walk, site = section("An embedder, from nothing to conformant"), tmp_path / "site"
    begin, end = [block.splitlines() for block in fences(walk, "sh")]
    assert muniment(begin[0], tmp_path, site).returncode == 0
    place = tmp_path / begin[1].removeprefix("cd ")
    install(place, site)
    first = muniment(begin[3], place, site)
    (said,) = fences(walk, "text")
    assert first.returncode == 1, first.stderr
    assert said.strip() in first.stdout

    package = place / "src" / "muniment_embed_words"
    (code,), (change,) = fences(walk, "python"), fences(walk, "diff")
    (package / "embedder.py").write_text(code, encoding="utf-8")
    removed, added = change.splitlines()
    target = (package / "conformance.py").read_text(encoding="utf-8")
    assert target.count(removed[1:]) == 1
    (package / "conformance.py").write_text(target.replace(removed[1:], added[1:]), encoding="utf-8")
    install(place, site)

    assert len([line for line in [*code.splitlines(), added] if line.strip()]) < LINES
    judged, tried = [muniment(command, place, site) for command in end[:2]]
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "embed-words: conformant (" in judged.stdout
    assert "embed-words: its target shows faults" in tried.stdout
    assert tried.returncode == 0
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout


def test_every_method_of_a_storage_is_on_the_page() -> None:
    """The order to write them in has each method once, and the target's methods are those that there are."""
    _, order, target = section("A storage").split("\n| --- | --- |\n")
    written = re.findall(r"`(\w+)`", " ".join(row.split(" | ")[0] for row in order.splitlines() if row[:1] == "|"))
    methods = {
        name
        for port in inspect.getmro(Storage)
        for name, method in vars(port).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }
    named = re.findall(r"`(\w+)`", " ".join(row.split(" | ")[0] for row in target.splitlines() if row[:1] == "|"))
    of_target = {name for name in vars(StorageTarget) if not name.startswith(("_", "can_"))}

    assert methods <= set(written)
    assert set(written) - methods <= {"probe", "layout", "Stored", "Create", "Revise", "Remove", "Restore"}
    assert set(named) == of_target


def test_the_page_names_every_module_that_an_author_imports() -> None:
    """Those that the skeletons import, and no other."""
    (said,) = re.findall(r"What an author has to import is in (.+?); ", PAGE, re.DOTALL)
    skeletons = Path(str(files("muniment") / "skeletons"))
    texts = [path.read_text(encoding="utf-8") for path in skeletons.rglob("*.py.template")]
    imported = {name for text in texts for name in re.findall(r"^from (muniment[.\w]+) import", text, re.MULTILINE)}

    assert imported
    assert set(re.findall(r"`(muniment[.\w]+)`", said)) == imported


def test_what_the_page_names_is_there() -> None:
    """Kinds, families, invariants and outcomes are the suite's."""
    only = set(re.findall(r"--only ([A-Z]+(?:-\d+)?)", PAGE))
    rows = re.findall(r"^\| `([a-z-]+)` \|", section("What a report tells"), re.MULTILINE)

    assert set(re.findall(r"muniment new-plugin (\w+)", PAGE)) == set(PREFIXES)
    assert only <= BY_ID.keys() | set(FAMILIES)
    assert set(FAMILIES) - {"EMB"} <= {name.partition("-")[0] for name in only}
    assert set(rows) == set(Outcome)
    assert "after five of them the run is\nstopped" in PAGE
    assert CUT_OFFS == 5
