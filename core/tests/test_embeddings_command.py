"""``muniment reembed`` and ``muniment embeddings``: a swap ahead of time, the way back, and what is refused."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import numpy as np
import pytest

from muniment import cli, config_file
from muniment.config import Settings
from muniment.engine import Engine
from muniment.errors import ConfigurationError
from muniment.models import CallContext, Principal
from muniment.ports import PluginContext, Space, Vectors
from muniment.reference import HashEmbedder, ReferenceData, ReferenceStorage

OLD, NEW = "hash:64", "hash:96"
MEMORIES = 5


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ReferenceData:
    """What every command's storage in memory keeps; the configuration's file names ``OLD``."""
    kept = ReferenceData()

    def create(context: PluginContext) -> ReferenceStorage:
        return ReferenceStorage(kept)

    monkeypatch.setattr("muniment.reference.storage.create", create)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUNIMENT_STORAGE", "memory:")
    Path("muniment.toml").write_text(f'# ours\nembedder = "{OLD}"  # for now\n', encoding="utf-8")
    return kept


def serve(data: ReferenceData, embedder: str, written: int = 0) -> None:
    """A server with this embedder runs for a while, and somebody writes memories."""

    async def served() -> None:
        async with Engine(ReferenceStorage(data), HashEmbedder.named(embedder), background=False) as engine:
            await engine.embeddings.space()
            for number in range(written):
                content = f"memory {len(data.memories)} of {embedder}, the {number}. one"
                await engine.call("memory.write", {"content": content}, CallContext(principal=Principal(user="ann")))

    asyncio.run(served())


def space_of(embedder: str) -> str:
    """The id of an embedder's space."""
    return asyncio.run(HashEmbedder.named(embedder).space()).id


def vectors(data: ReferenceData, embedder: str) -> list[Vectors]:
    """The vectors in an embedder's space, by memory and passage."""
    rows = sorted(data.memories.values(), key=lambda row: row.id)
    space = space_of(embedder)
    return [vector for row in rows for (of, _), vector in sorted(row.passages.items()) if of == space]


def configure(embedder: str) -> None:
    """Write it into the configuration's file."""
    Path("muniment.toml").write_text(f'embedder = "{embedder}"\n', encoding="utf-8")


def configured() -> str:
    """The embedder that the configuration's file names."""
    return Settings.load().embedder


def test_a_swap_ahead_of_time_and_back(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """Filled while the old space is active, then activated and configured; back by one command; pruned at the end."""
    serve(data, OLD, MEMORIES)
    before = vectors(data, OLD)
    assert cli.run(["reembed", "--to", NEW, "--batch", "2"]) == 0
    printed = capsys.readouterr()
    assert f"{MEMORIES} of {MEMORIES} memories have their vectors in {space_of(NEW)}." in printed.out
    assert f"{MEMORIES} of {MEMORIES} memories lack vectors" in printed.err
    assert len(vectors(data, NEW)) == MEMORIES
    assert configured() == OLD
    assert state(capsys) == {space_of(OLD): "active", space_of(NEW): "never active"}

    assert cli.run(["embeddings", "activate", NEW]) == 0
    assert configured() == NEW
    assert Path("muniment.toml").read_text(encoding="utf-8") == f'# ours\nembedder = "{NEW}"  # for now\n'
    assert state(capsys) == {space_of(NEW): "active", space_of(OLD): "previous"}
    assert all(np.array_equal(old, now) for old, now in zip(before, vectors(data, OLD), strict=True))

    assert cli.run(["embeddings", "rollback"]) == 0
    assert configured() == OLD
    assert state(capsys) == {space_of(OLD): "active", space_of(NEW): "previous"}

    assert cli.run(["embeddings", "prune", "--yes"]) == 0
    assert state(capsys) == {space_of(OLD): "active"}
    assert vectors(data, NEW) == []
    assert all(np.array_equal(old, now) for old, now in zip(before, vectors(data, OLD), strict=True))


def state(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The state of each space, as it is shown, in its order."""
    capsys.readouterr()
    assert cli.run(["embeddings", "status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = lines[0]
    start, end, embedder = head.index("STATE"), head.index("DIMENSIONS"), head.index("EMBEDDER")
    return {line[:embedder].strip(): line[start:end].strip() for line in lines[1:] if "%" in line}


def test_what_is_not_complete_is_not_activated(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it is asked for by name; nothing changes before."""
    serve(data, OLD, MEMORIES)
    assert cli.run(["embeddings", "activate", NEW]) == cli.MISCONFIGURED
    assert f"0 of {MEMORIES} memories" in capsys.readouterr().err
    assert configured() == OLD
    assert state(capsys)[space_of(OLD)] == "active"
    assert cli.run(["embeddings", "activate", NEW, "--incomplete"]) == 0
    assert state(capsys)[space_of(NEW)] == "active"


def test_the_way_back_is_not_pruned_too_early(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """While the active space lacks vectors the one before it stays, unless it is named; the active one always does."""
    serve(data, OLD, MEMORIES)
    serve(data, NEW)
    assert cli.run(["embeddings", "prune", "--yes"]) == cli.MISCONFIGURED
    assert "muniment reembed" in capsys.readouterr().err
    assert len(vectors(data, OLD)) == MEMORIES
    assert cli.run(["embeddings", "prune", "--yes", space_of(NEW)]) == cli.MISCONFIGURED
    assert cli.run(["embeddings", "prune", "--yes", "nothing:8"]) == cli.MISCONFIGURED
    assert len(vectors(data, OLD)) == MEMORIES
    assert cli.run(["embeddings", "prune", "--yes", space_of(OLD)]) == 0
    assert vectors(data, OLD) == []


def test_a_space_that_is_being_filled_is_pruned_by_name_only(data: ReferenceData) -> None:
    """One that never served is somebody's swap to come."""
    serve(data, OLD, MEMORIES)
    assert cli.run(["reembed", "--to", NEW]) == 0
    assert cli.run(["embeddings", "prune", "--yes"]) == 0
    assert len(vectors(data, NEW)) == MEMORIES
    assert cli.run(["embeddings", "prune", "--yes", space_of(NEW)]) == 0
    assert vectors(data, NEW) == []


def test_nobody_to_ask_is_a_refusal(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal nothing is deleted without --yes."""
    serve(data, OLD, MEMORIES)
    assert cli.run(["reembed", "--to", NEW]) == 0
    assert cli.run(["embeddings", "activate", NEW]) == 0
    assert cli.run(["embeddings", "prune"]) == cli.MISCONFIGURED
    assert "--yes" in capsys.readouterr().err
    assert len(vectors(data, OLD)) == MEMORIES


def test_there_is_no_way_back_from_the_first(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing changes, and it says what to do."""
    serve(data, OLD, 1)
    assert cli.run(["embeddings", "rollback"]) == cli.MISCONFIGURED
    assert "configure the embedder" in capsys.readouterr().err
    assert state(capsys) == {space_of(OLD): "active"}


def test_another_model_under_the_name_is_refused(
    data: ReferenceData, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By both that would use it; the stored vectors stay as they are."""
    serve(data, OLD, MEMORIES)
    before = vectors(data, OLD)

    async def reversed_(self: HashEmbedder, texts: list[str]) -> Vectors:
        return -(await original(self, texts))

    original = HashEmbedder.embed_passages
    monkeypatch.setattr(HashEmbedder, "embed_passages", reversed_)
    for arguments in (["reembed"], ["embeddings", "activate", OLD]):
        assert cli.run(arguments) == cli.FAILED
        assert "restore that model" in capsys.readouterr().err
    assert all(np.array_equal(old, now) for old, now in zip(before, vectors(data, OLD), strict=True))


def test_a_variable_is_not_changed(
    data: ReferenceData, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a variable sets the embedder the file would change nothing; what to do is printed."""
    monkeypatch.setenv("MUNIMENT_EMBEDDER", OLD)
    serve(data, OLD, 1)
    assert cli.run(["reembed", "--to", NEW]) == 0
    assert cli.run(["embeddings", "activate", NEW]) == 0
    assert f"set MUNIMENT_EMBEDDER to {NEW}" in capsys.readouterr().out
    assert OLD in Path("muniment.toml").read_text(encoding="utf-8")


def test_none_makes_no_vectors(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused with what to name instead."""
    assert cli.run(["reembed", "--to", "none"]) == cli.MISCONFIGURED
    assert "--to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 'embedder = "hash:96"\n'),
        ("# all ours\n", 'embedder = "hash:96"\n# all ours\n'),
        ('user = "ann"\n\n[plugins.x]\na = 1\n', 'embedder = "hash:96"\nuser = "ann"\n\n[plugins.x]\na = 1\n'),
        ("[plugins.x]\nembedder = 1\n", 'embedder = "hash:96"\n[plugins.x]\nembedder = 1\n'),
        ("embedder = 'hash:64' # why\n[a]\n", 'embedder = "hash:96" # why\n[a]\n'),
    ],
)
def test_one_key_of_the_file_changes(tmp_path: Path, text: str, expected: str) -> None:
    """Comments, order and tables stay; a new key never falls into a table."""
    file = tmp_path / "a.toml"
    file.write_text(text, encoding="utf-8")
    assert config_file.with_value(file, "embedder", NEW) == expected


def test_a_file_that_is_no_toml_is_left_alone(tmp_path: Path) -> None:
    """With what to write into it."""
    file = tmp_path / "a.toml"
    file.write_text("embedder = \n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match='write embedder = "hash:96" into it'):
        config_file.with_value(file, "embedder", NEW)


def test_a_command_gives_the_handlers_of_signals_back(data: ReferenceData) -> None:
    """Whoever calls it in a process of their own is ended by signals as before."""
    serve(data, OLD, 1)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert cli.run(["reembed"]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_back_from_none(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """The way back is to the embedder that served last, and until then the status says that none does."""
    serve(data, OLD, 1)
    serve(data, NEW, 1)
    configure("none")
    assert cli.run(["embeddings", "status"]) == 0
    said = capsys.readouterr().out
    assert "embedder none: servers answer by words and tags" in said
    assert f"rollback goes back to {NEW}" in said
    assert cli.run(["embeddings", "rollback"]) == 0
    assert configured() == NEW


def test_no_way_back_where_options_changed(
    data: ReferenceData, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedder would make vectors in another space; nothing is changed, and what is to be changed is said."""
    serve(data, OLD, 1)
    serve(data, NEW, 1)
    configure(NEW)
    before = state(capsys)

    async def other(embedder: HashEmbedder) -> Space:
        return Space(f"{embedder.name}:other", "hash", "hash", embedder.dimensions, "mean", True, 254)

    old = space_of(OLD)
    with monkeypatch.context() as patched:
        patched.setattr(HashEmbedder, "space", other)
        code = cli.run(["embeddings", "rollback"])
    assert code == cli.MISCONFIGURED
    said = capsys.readouterr().err
    assert old in said
    assert "set the plugin's options, such as model_name or dimensions, back" in said
    assert state(capsys) == before
    assert configured() == NEW


def test_what_is_refused_registers_no_space(data: ReferenceData, capsys: pytest.CaptureFixture[str]) -> None:
    """An embedder without vectors is not activated, and leaves nothing behind."""
    serve(data, OLD, MEMORIES)
    assert cli.run(["embeddings", "activate", NEW]) == cli.MISCONFIGURED
    assert list(state(capsys)) == [space_of(OLD)]
