"""A model that changed under its name, with the same dimensions, is refused as the server starts, in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_serve import environment

MUNIMENT = (sys.executable, "-m", "muniment")
PLUGIN = '''
import os
from muniment.hookspecs import Descriptor, hookimpl
from muniment.reference import HashEmbedder


class Changing(HashEmbedder):
    """Other weights where a variable says so."""

    async def embed_passages(self, texts):
        vectors = await super().embed_passages(texts)
        return -vectors if os.environ.get("OTHER_WEIGHTS") else vectors


def create(context):
    return Changing()


@hookimpl
def muniment_plugins():
    return [Descriptor(name="embed-acme", kind="embedder", schemes=("acme",), factory="embed_acme:create", summary="")]
'''


@pytest.fixture
def place(tmp_path: Path) -> list[str]:
    """The options that name the embedder and a SQLite file."""
    (tmp_path / "embed_acme.py").write_text(PLUGIN, encoding="utf-8")
    info = tmp_path / "embed_acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: embed-acme\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[muniment]\nembed-acme = embed_acme\n", encoding="utf-8")
    return ["--storage", f"sqlite:{tmp_path / 'memories.db'}", "--data-dir", str(tmp_path), "--embedder", "acme:"]


def test_it_is_refused_at_the_start(place: list[str], tmp_path: Path) -> None:
    """With what to do, and exit code 1; the stored vectors are as they were, and the right model serves on."""
    right = environment(PYTHONPATH=str(tmp_path))
    first = run(["reembed", *place], right)
    assert first.returncode == 0, first.stderr
    activated = run(["embeddings", "activate", "acme:", *place], right)
    assert activated.returncode == 0, activated.stderr

    # Standard input stays open, as a client's would: the server ends by itself.
    with subprocess.Popen(
        [*MUNIMENT, "serve", *place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=right | {"OTHER_WEIGHTS": "1"},
        text=True,
    ) as server:
        try:
            assert server.wait(60) == 1
        finally:
            server.kill()
        assert server.stderr is not None
        said = server.stderr.read()
    assert "muniment: The model behind" in said
    assert "restore that model" in said
    assert "Traceback" not in said
    again = run(["reembed", *place], right)
    assert again.returncode == 0, again.stderr


def run(arguments: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(
        [*MUNIMENT, *arguments],
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
