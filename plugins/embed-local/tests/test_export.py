"""What an export writes, what it refuses, and that vectors which are not the model's are never kept."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from muniment.errors import CapabilityNotSupported, ConfigurationError, EmbedderMismatch
from muniment_embed_local import export, onnx_engine, weights
from muniment_embed_local.recipe import Unsupported

NAME = "all-MiniLM-L6-v2"
Write = Callable[[Any, Any, Path], None]


def test_the_directory_is_complete_and_keeps_the_name(exported: Path) -> None:
    """All that the ONNX engine reads, no weights for PyTorch, and the model's own name wherever the directory is."""
    files = {file.relative_to(exported).as_posix() for file in exported.rglob("*") if file.is_file()}
    assert {
        "README.md",
        "config.json",
        "config_sentence_transformers.json",
        "modules.json",
        "1_Pooling/config.json",
        "onnx/model.onnx",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    } <= files
    assert not [name for name in files if name.endswith((".safetensors", ".bin"))]
    assert weights.locate(str(exported)).model == NAME


@pytest.mark.parametrize(
    "card", ["", "# Some words\n", "---\nlicense: mit\n---\n\n# Two words\n", "# other-name\n", None]
)
def test_the_card_carries_the_name(copied: Callable[[Path], Path], exported: Path, card: str | None) -> None:
    """Whatever the model card was, its first title becomes the name, below the front matter that it may have."""
    directory = copied(exported)
    (directory / "README.md").unlink()
    if card is not None:
        (directory / "README.md").write_text(card)
    export._write_card("our/model-3", directory)  # pyright: ignore[reportPrivateUsage]
    assert weights.locate(str(directory)).model == "our/model-3"
    written = (directory / "README.md").read_text()
    if card and card.startswith("---"):
        assert written.startswith("---\nlicense: mit\n---\n# our/model-3\n")
    assert written.endswith((card or "").rpartition("---\n")[2])


def test_a_model_that_the_engine_does_not_know_is_refused_at_once(
    weights: Path, copied: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before PyTorch is even loaded, with the reason."""

    def load(*_: object) -> None:
        pytest.fail("it was loaded")

    monkeypatch.setattr("muniment_embed_local.torch_engine.import_libraries", load)
    directory = copied(weights)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "max"}))
    with pytest.raises(ConfigurationError, match="would be of no use, since its pooling is max"):
        export.export(f"local:{directory}", tmp_path)


def test_what_an_export_needs_is_named(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyTorch or the exporter's library the refusal says what to install."""

    def find(name: str) -> str | None:
        return None if name in ("torch", "onnxscript") else name

    monkeypatch.setattr(export, "find_spec", find)
    with pytest.raises(ConfigurationError, match="torch and onnxscript must be installed") as refused:
        export.export(f"local:{NAME}", tmp_path)
    assert 'pip install "muniment-embed-local[torch]"' in refused.value.message


def test_a_library_that_is_not_needed_is_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    """PyTorch's lines about torchvision are kept back while it exports, also where it is imported meanwhile."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    with export._quiet():  # pyright: ignore[reportPrivateUsage]
        log.setLevel(logging.WARNING)
        log.warning("torchvision is not installed. Skipping %s", "torchvision::nms")
        log.warning("Something that matters.")
    log.warning("torchvision is not installed.")
    assert caplog.messages == ["Something that matters.", "torchvision is not installed."]


def test_other_vectors_are_never_kept(
    weights: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that computes something else than PyTorch is refused, however it came about."""

    def write(loaded: Any, known: Any, file: Path) -> None:
        graph = onnx.ModelProto.FromString((exported / "onnx" / "model.onnx").read_bytes())
        largest = max(graph.graph.initializer, key=lambda one: len(one.raw_data))
        table = numpy_helper.to_array(largest)
        noise = np.random.default_rng(5).normal(scale=0.01, size=table.shape).astype(np.float32)
        largest.CopyFrom(numpy_helper.from_array(table + noise, largest.name))
        file.parent.mkdir()
        file.write_bytes(graph.SerializeToString())

    monkeypatch.setattr(export, "_write_graph", write)
    with pytest.raises(EmbedderMismatch, match=r"cosine 0\.\d+, 0\.9999 is needed"):
        export.export(f"local:{NAME}", tmp_path)


@pytest.mark.parametrize(("content", "says"), [(None, "cannot write this model as ONNX"), (b"no", "cannot be used")])
def test_a_failed_export_is_told(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, says: str
) -> None:
    """An exporter that raises, and one that writes nonsense, are refusals with what to do instead."""

    def write(loaded: Any, known: Any, file: Path) -> None:
        if content is None:
            raise NotImplementedError("an operator is missing")
        file.parent.mkdir()
        file.write_bytes(content)

    monkeypatch.setattr(export, "_write_graph", write)
    with pytest.raises(CapabilityNotSupported, match=f"{says}.*PyTorch"):
        export.export(f"local:{NAME}", tmp_path)
    with pytest.raises(Unsupported):
        onnx_engine.load(NAME, tmp_path, threads=1)
