"""``muniment embeddings export``: a directory that a plugin fills is there whole, or there is nothing."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from muniment import cli

PLUGIN = """
import os, time
from muniment.errors import EmbedderMismatch
from muniment.hookspecs import Descriptor, hookimpl

@hookimpl
def muniment_plugins():
    of = dict(kind="embedder", factory="builtins:repr", summary="For tests.")
    return [
        Descriptor(name="embed-acme", schemes=("acme",), exporter="acme_models:export", **of),
        Descriptor(name="embed-remote", schemes=("remote",), **of),
    ]

def export(spec, directory):
    assert not list(directory.iterdir())
    (directory / "model.onnx").write_text(spec)
    print("what a library prints")
    if spec == "acme:other":
        raise EmbedderMismatch("the vectors differ")
    if spec == "acme:full":
        raise OSError(28, "No space left on device")
    if spec == "acme:slow":
        print("begun", flush=True)
        time.sleep(60)
    return {"space": "acme:one:3", "size": "1 MB"}
"""


@pytest.fixture
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A distribution with an embedder that exports and one that does not."""
    site = tmp_path_factory.mktemp("site")
    (site / "acme_models.py").write_text(PLUGIN, encoding="utf-8")
    info = site / "acme_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-models\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[muniment]\nacme-models = acme_models\n", encoding="utf-8")
    return site


def started(plugin: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command, begun."""
    return subprocess.Popen(
        [sys.executable, "-m", "muniment", "embeddings", "export", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(plugin)},
    )


def ran(plugin: Path, *arguments: str) -> tuple[int, str, str]:
    """Its exit code, output and errors."""
    process = started(plugin, *arguments)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_directory_is_made_and_what_to_configure_is_said(plugin: Path, tmp_path: Path) -> None:
    """Below directories that are not there yet, or in the place of an empty one; with the rights of any new one."""
    (tmp_path / "empty").mkdir()
    for made in (tmp_path / "new" / "one", tmp_path / "empty"):
        code, out, err = ran(plugin, "acme:one", str(made))
        assert (code, out) == (
            0,
            f'Written to {made}: space acme:one:3, size 1 MB.\nNow set embedder = "acme:{made}".\n',
        )
        assert "what a library prints" in err
        assert [file.read_text(encoding="utf-8") for file in made.iterdir()] == ["acme:one"]
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE(made.stat().st_mode) == 0o777 & ~mask
        assert [one.name for one in made.parent.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["acme:other", "new"], cli.FAILED, "the vectors differ"),
        (["acme:full", "new"], cli.MISCONFIGURED, "new cannot be written: no space left on device; name a new"),
        (["acme:one", "taken"], cli.MISCONFIGURED, "taken is there already, and no empty directory; name a new"),
        (["acme:one", "taken/file"], cli.MISCONFIGURED, "file is there already, and no empty directory"),
        (["acme:one", "taken/file/new"], cli.MISCONFIGURED, "new cannot be written: file exists"),
        (["remote:one", "new"], cli.MISCONFIGURED, "embed-remote exports no models"),
        (["nobody:one", "new"], cli.MISCONFIGURED, "No installed plugin serves the embedder scheme 'nobody'"),
        (["acme:one"], cli.MISCONFIGURED, "Missing argument 'DIR'"),
    ],
)
def test_a_refusal_leaves_everything_as_it_was(
    plugin: Path, tmp_path: Path, arguments: Sequence[str], code: int, says: str
) -> None:
    """One line says what is wrong and what to do, and nothing is left of what was begun."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("kept", encoding="utf-8")
    model, *rest = arguments
    done = ran(plugin, model, *(str(tmp_path / one) for one in rest))
    assert done[:2] == (code, "")
    assert says in done[2]
    assert [str(one.relative_to(tmp_path)) for one in sorted(tmp_path.rglob("*"))] == ["taken", "taken/file"]
    assert (tmp_path / "taken" / "file").read_text(encoding="utf-8") == "kept"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing_behind(plugin: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Neither a container's end nor Ctrl-C leaves half a model."""
    process = started(plugin, "acme:slow", str(tmp_path / "new"))
    assert process.stderr is not None
    while "begun" not in process.stderr.readline():
        assert process.poll() is None
    assert list(tmp_path.iterdir())
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (cli.INTERRUPTED, "")
    assert list(tmp_path.iterdir()) == []


def test_a_plain_name_is_a_local_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a scheme the model is one of this machine."""
    assert cli.run(["embeddings", "export", "no/such/model", str(tmp_path / "new")]) != 0
    assert "local" in capsys.readouterr().err
