"""``muniment new-plugin``: the skeleton that it writes is a plugin, and what it refuses leaves nothing behind."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from muniment import cli, plugins
from muniment.cli import new_plugin
from muniment.conformance.runner import run
from muniment.conformance.target import NotRun, Target
from muniment.errors import ConfigurationError
from muniment.ports import Storage

KINDS = {"storage": "storage-acme", "embedder": "embed-acme", "transport": "transport-acme"}
FIRST = {
    "storage": "AcmeStorage.migrate is not written yet; write it: muniment.ports.Storage.migrate says",
    "embedder": "AcmeEmbedder.space is not written yet; write it",
    "transport": "AcmeTarget.connect is not written yet; write it: muniment.conformance.target.TransportTarget.connect",
}


@contextmanager
def importable(made: Path) -> Generator[str]:
    """The skeleton's package while its source can be imported."""
    package = f"muniment_{made.name.replace('-', '_')}"
    sys.path.insert(0, str(made / "src"))
    try:
        yield package
    finally:
        sys.path.remove(str(made / "src"))
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]


def made(kind: str, directory: Path) -> Path:
    """A new skeleton called acme."""
    assert cli.run(["new-plugin", kind, "acme", "--directory", str(directory)]) == 0
    return directory / KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_skeleton_is_found_and_its_report_says_where_to_begin(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry point presents a plugin, which fails everything that it is judged by; the end names the first step."""
    place = made(kind, tmp_path)
    entry = tomllib.loads((place / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["muniment"]
    with importable(place) as package:
        point = EntryPoint(KINDS[kind], entry[KINDS[kind]], "muniment")

        def entry_points(group: str) -> list[EntryPoint]:
            return [point]

        monkeypatch.setattr(plugins, "entry_points", entry_points)
        (installed,) = plugins.Plugins.load().installed
        target: Target = plugins.resolve(installed.descriptor.conformance or "", "acme")()
        report = await run(target, seed=7)

    assert (installed.descriptor.kind, installed.descriptor.schemes) == (kind, ("acme",))
    assert package == entry[KINDS[kind]]
    assert "pass" not in report.as_data()["outcomes"]
    end = report.as_text().split("Begin with ")[1]
    assert FIRST[kind] in end
    assert f"muniment conform {KINDS[kind]} --only " in end


@pytest.mark.parametrize("kind", KINDS)
def test_a_skeleton_has_no_gaps(kind: str, tmp_path: Path) -> None:
    """No placeholder is left, every module has a docstring and compiles, and the test is three lines."""
    place = made(kind, tmp_path)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    test = (place / "tests" / "test_conformance.py").read_text(encoding="utf-8")

    assert {"README.md", "pyproject.toml", "py.typed", "conformance.py"} <= {path.name for path in files}
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\$[{a-z]", text), path
        if path.suffix == ".py":
            assert text.startswith('"""')
            assert max(map(len, text.splitlines())) <= 120, path
            compile(text, str(path), "exec")
    assert len([line for line in test.split('"""\n', 1)[1].splitlines() if line and "__future__" not in line]) == 3


def test_the_skeleton_of_a_storage_has_every_method(tmp_path: Path) -> None:
    """Each method of the port, with its parameters and its docstring, and no other."""
    with importable(made("storage", tmp_path)) as package:
        storage = importlib.import_module(f"{package}.storage")
    wanted = {
        name: method
        for port in inspect.getmro(Storage)
        for name, method in vars(port).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }
    skeleton: type[Any] = storage.AcmeStorage
    written = {name: method for name, method in vars(skeleton).items() if not name.startswith("_")}

    assert written.keys() == wanted.keys()
    for name, method in wanted.items():
        assert str(inspect.signature(written[name])) == str(inspect.signature(method)), name
        assert inspect.getdoc(written[name]) == inspect.getdoc(method), f"{name}: write what the port says"


@pytest.mark.parametrize("kind", KINDS)
def test_a_skeleton_ignores_no_url(kind: str, tmp_path: Path) -> None:
    """What ``--url`` names is judged, and named in the report, or it is refused."""
    with importable(made(kind, tmp_path)) as package:
        module = importlib.import_module(f"{package}.conformance")
        if kind == "transport":
            with pytest.raises(ConfigurationError, match="acme:there"):
                module.target("acme:there")
            return
        target: Target = module.target(f"acme:{tmp_path}")
        assert str(tmp_path) in [value.removeprefix("acme:") for value in target.describe().values()]
        if kind == "storage":
            with pytest.raises(NotRun, match="acme:/not/there"):
                module.target("acme:/not/there")


@pytest.mark.parametrize(
    "name", ["", "-", "Acme", "acme_db", "1st", "acme-", "a--b", "../acme", "a/b", "a" * 41, "ümlaut", "storage-"]
)
def test_a_name_that_cannot_be_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What could not be a package, a scheme and a directory at once is refused, with what can."""
    assert cli.run(["new-plugin", "storage", "--directory", str(tmp_path), "--", name]) == cli.MISCONFIGURED
    assert "such as acme or acme-cloud" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "name"), [("storage", "memory"), ("embedder", "hash")])
def test_a_name_that_is_taken_is_refused(
    kind: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scheme that an installed plugin serves would be of no use."""
    assert cli.run(["new-plugin", kind, name, "--directory", str(tmp_path)]) == cli.MISCONFIGURED
    assert "already serves the scheme" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second skeleton of the name is refused, and so is one in the place of a file."""
    place = made("embedder", tmp_path)
    (place / "mine.txt").write_text("mine", encoding="utf-8")
    before = sorted(place.rglob("*"))

    assert cli.run(["new-plugin", "embedder", "embed-acme", "--directory", str(tmp_path)]) == cli.MISCONFIGURED
    assert "is there already" in capsys.readouterr().err
    assert sorted(place.rglob("*")) == before


def test_nothing_is_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where writing fails in the middle, nothing is left; where the directory cannot be made, it is named."""
    written: list[Path] = []
    write = Path.write_text

    def fails(path: Path, *positional: str, **named: str) -> int:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        return write(path, *positional, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", fails)
        assert cli.run(["new-plugin", "embedder", "acme", "--directory", str(tmp_path)]) == cli.MISCONFIGURED
    assert "no space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "file").write_text("", encoding="utf-8")
    assert cli.run(["new-plugin", "embedder", "acme", "--directory", str(tmp_path / "file")]) == cli.MISCONFIGURED
    assert f"{tmp_path / 'file'}" in capsys.readouterr().err


def test_the_prefix_of_a_kind_may_be_written_or_not(tmp_path: Path) -> None:
    """``embed-acme`` and ``acme`` are the same embedder."""
    assert cli.run(["new-plugin", "embedder", "embed-acme", "--directory", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["embed-acme"]
    assert new_plugin.PREFIXES["embedder"] == "embed"


def test_the_skeletons_are_in_the_wheel(tmp_path: Path) -> None:
    """What is installed can write all that the source can."""
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    from zipfile import ZipFile

    (wheel,) = tmp_path.glob("*.whl")
    source = root / "src" / "muniment" / "skeletons"
    wanted = {f"muniment/skeletons/{path.relative_to(source).as_posix()}" for path in source.rglob("*.template")}
    assert wanted
    assert wanted <= set(ZipFile(wheel).namelist())
