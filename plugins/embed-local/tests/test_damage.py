"""Directories that are damaged or incomplete and devices that are not there: the true cause, the configured name."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from muniment.errors import ConfigurationError
from muniment.hookspecs import DoctorContext, Finding
from muniment.ports import PluginContext
from muniment_embed_local import engines, export, muniment_doctor, onnx_file
from muniment_embed_local.embedder import LocalEmbedder, create
from muniment_embed_local.model import translated
from muniment_embed_local.options import Options
from muniment_embed_local.weights import locate

NAME = "all-MiniLM-L6-v2"
FILE = "onnx/model.onnx"
WHOLE_COPY = "whole copy of the model"
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "a byte": lambda whole: whole[:1],
    "100 bytes": lambda whole: whole[:100],
    "3 million bytes": lambda whole: whole[:3_000_000],
    "all but 300 bytes": lambda whole: whole[:-300],
    "random": lambda whole: random.Random(11).randbytes(len(whole)),
    "zeros": lambda whole: bytes(len(whole)),
}
damaged = pytest.mark.parametrize("damage", DAMAGES)


@damaged
def test_a_damaged_onnx_file_is_pytorch_s_model(
    both: Path, copied: Callable[[Path], Path], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Where whole weights for PyTorch are beside it, PyTorch computes the model, and the log says why."""
    directory = damage_in(copied(both), damage)
    with caplog.at_level(logging.WARNING, "muniment_embed_local"):
        model = engines.load(NAME, directory, Options())
    assert model.engine == "torch"
    assert f"{FILE} cannot be read" in caplog.text
    found = doctor(directory)
    assert found[-1].ok
    assert "computed by PyTorch" in found[-1].detail


@damaged
@pytest.mark.parametrize("engine", ["auto", "onnx"])
async def test_a_damaged_onnx_file_alone_is_refused(
    exported: Path, copied: Callable[[Path], Path], damage: str, engine: str
) -> None:
    """At the opening and by the doctor: the file, what is wrong with it, and the remedy."""
    directory = damage_in(copied(exported), damage)
    message = await refusal(str(directory), engine=engine)
    assert f"{FILE} cannot be read (it " in message
    assert WHOLE_COPY in message
    assert "safetensors" not in message or engine == "auto"
    assert doctor(directory, engine=engine) == [Finding(f"local:{directory}", ok=False, detail=message)]


@damaged
async def test_a_damaged_onnx_file_is_refused_where_it_is_asked_for(
    both: Path, copied: Callable[[Path], Path], damage: str
) -> None:
    """``engine = "onnx"`` falls to no other engine; leaving it to PyTorch is one of the remedies."""
    message = await refusal(str(damage_in(copied(both), damage)), engine="onnx")
    assert f"engine is onnx, and {FILE} cannot be read (it " in message
    assert WHOLE_COPY in message
    assert "remove engine from [plugins.embed-local]" in message
    assert "pip install" not in message


async def test_an_onnx_file_is_no_model_of_pytorch_s(exported: Path) -> None:
    """``engine = "torch"`` with a directory that has an ONNX file alone: nothing is damaged, and that is not said."""
    message = await refusal(str(exported), engine="torch")
    assert "has no weights for PyTorch" in message
    assert "remove engine from [plugins.embed-local]" in message
    assert "damaged" not in message
    with pytest.raises(ConfigurationError, match="has no weights for PyTorch"):
        export.export(f"local:{exported}", exported)


def test_a_file_that_is_read_is_let_go(exported: Path, tmp_path: Path) -> None:
    """Whether it could be read or not, it is closed again: no exception of Python's own comes in between."""
    assert onnx_file.read(exported / FILE).outputs
    (tmp_path / "model.onnx").write_bytes((exported / FILE).read_bytes()[:100])
    with pytest.raises(onnx_file.Damaged, match="ends too early"):
        onnx_file.read(tmp_path / "model.onnx")


@pytest.mark.parametrize("file", ["tokenizer.json", "modules.json", "config.json"])
async def test_a_file_that_is_missing_is_what_the_refusal_names(
    exported: Path, copied: Callable[[Path], Path], file: str
) -> None:
    """Not the weights of the engine that came second."""
    directory = copied(exported)
    (directory / file).unlink()
    message = await refusal(str(directory))
    assert f"it has no {file}" in message
    assert WHOLE_COPY in message
    assert not doctor(directory)[-1].ok


def test_both_causes_are_told_where_both_engines_fail(both: Path, copied: Callable[[Path], Path]) -> None:
    """A directory whose weights are damaged for either engine."""
    directory = damage_in(copied(both), "100 bytes")
    weights = directory / "model.safetensors"
    content = weights.read_bytes()[:1_000]
    weights.unlink()
    weights.write_bytes(content)
    with pytest.raises(ConfigurationError) as refused:
        engines.load(NAME, directory, Options())
    assert f"{FILE} cannot be read (it ends too early)" in refused.value.message
    assert f"the files in {directory} cannot be loaded by PyTorch" in refused.value.message


@pytest.mark.parametrize("device", ["xx", "CUDA", "cuda:x", "", "cuda:", "cpu "])
def test_an_unknown_device_is_refused_by_the_known_ones(device: str) -> None:
    """Before any model is looked for."""
    with pytest.raises(ConfigurationError, match=r"device, set in .*: must be cpu, cuda, mps, .*such as cuda:1"):
        create(PluginContext(spec=f"local:{NAME}", data_dir=Path(), options={"device": device}))


async def test_a_device_for_pytorch_needs_a_model_for_pytorch(exported: Path) -> None:
    """A model that has an ONNX file alone is computed on the processor, whose device is cpu."""
    message = await refusal(str(exported), device="cuda")
    assert "device = 'cuda'" in message
    assert "onnxruntime has only the device cpu" in message
    assert "damaged" not in message
    assert engines.choose(NAME, exported, Options(device="cpu")) == "onnx"


def test_a_device_that_is_not_there_is_no_damage(weights: Path) -> None:
    """A known name of a device that this machine or this PyTorch lacks."""
    with pytest.raises(ConfigurationError, match="PyTorch cannot use the device 'cuda:99'") as refused:
        engines.load(NAME, weights, Options(device="cuda:99"))
    assert "damaged" not in refused.value.message
    assert "device from [plugins.embed-local]" in refused.value.message


def test_a_path_is_shown_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the directory that was looked for beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("./nowhere", "~/nowhere", "../" + tmp_path.name + "/nowhere"):
        with pytest.raises(ConfigurationError) as refused:
            locate(value)
        assert refused.value.message.startswith(
            f"embedder local:{value}: the directory {tmp_path / 'nowhere'} does not exist"
        )


async def test_a_broken_directory_is_called_as_configured(
    exported: Path, copied: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by its model's name, nor by ``model_name``."""
    directory = copied(exported)
    (directory / "tokenizer.json").write_text("{")
    monkeypatch.chdir(directory.parent)
    value = f"./{directory.name}"
    embedder = LocalEmbedder(value, Options(model_name="other"))
    with pytest.raises(ConfigurationError) as refused:
        await used(embedder)
    assert refused.value.message.startswith(f"embedder local:{value}: ")
    assert NAME not in refused.value.message
    assert refused.value.details["model"] == value


async def used(embedder: LocalEmbedder) -> None:
    """Open it, load its model, and close it."""
    await embedder.open()
    await embedder.space()
    await embedder.close()


async def refusal(value: str, **options: Any) -> str:
    """What opening is refused with; it names the configured value."""
    with pytest.raises(ConfigurationError) as refused:
        await LocalEmbedder(value, Options(**options)).open()
    assert refused.value.message.startswith(f"embedder local:{value}: ")
    return refused.value.message


def doctor(directory: Path, **options: object) -> Sequence[Finding]:
    """What the doctor finds for the directory."""
    return muniment_doctor(DoctorContext("memory:", f"local:{directory}", "", options=options))


def damage_in(directory: Path, damage: str) -> Path:
    """The directory, its ONNX file damaged."""
    file = directory / FILE
    content = DAMAGES[damage](file.read_bytes())
    file.unlink()
    file.write_bytes(content)
    return directory


def test_a_panic_of_a_library_is_its_failure() -> None:
    """One in Rust raises what is no ``Exception``; what ends the process goes on."""

    class Panic(BaseException):
        pass

    with pytest.raises(ConfigurationError, match="Panic: no such token"), translated(NAME, ConfigurationError):
        raise Panic("no such token")
    with pytest.raises(KeyboardInterrupt), translated(NAME, ConfigurationError):
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["foo--bar", "a..b", "name.git", "name-", "a/b.", "n" * 200])
async def test_a_name_that_the_hub_refuses_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the remedies, as any other that is nowhere."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "Correct the name" in await refusal(name)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sentence_bert_config.json", '{"max_seq_length": NaN}'),
        ("config.json", "[" * 100_000),
        ("modules.json", "[" * 100_000),
    ],
)
async def test_a_small_file_that_makes_no_sense_is_refused(
    exported: Path, copied: Callable[[Path], Path], file: str, text: str
) -> None:
    """As what is damaged, whatever reading it raises."""
    directory = copied(exported)
    (directory / file).write_text(text, encoding="utf-8")
    assert str(directory) in await refusal(str(directory), engine="onnx")
