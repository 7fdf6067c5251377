"""The embedder under test, with the real weights of all-MiniLM-L6-v2 from their package, and no network."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read by huggingface_hub when it is imported

import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from muniment.conformance.pytest_front import not_run
from muniment.conformance.target import NotRun
from muniment_embed_local.conformance import MODEL, judged, with_onnx_file
from muniment_embed_local.embedder import LocalEmbedder
from muniment_embed_local.model import EngineName
from muniment_embed_local.options import Options
from muniment_embed_local.weights import locate


@pytest.fixture(scope="session")
def weights() -> Path:
    """The directory of the weights; without them the test is "not run", and failed where that is required."""
    try:
        judged(f"local:{MODEL}")
    except NotRun as missing:
        not_run(str(missing))
    directory = locate(MODEL).directory
    assert directory is not None
    return directory


@pytest.fixture(scope="session")
def exported(weights: Path) -> Path:
    """The model as it was exported, once for all tests; it has no weights for PyTorch."""
    try:
        return Path(with_onnx_file(MODEL))
    except NotRun as missing:
        not_run(str(missing))
        raise


@pytest.fixture(scope="session")
def both(weights: Path, exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with its weights for PyTorch and its ONNX file, as the model hub has it."""
    directory = tmp_path_factory.mktemp("both")
    _clone(weights, directory)
    (directory / "onnx").mkdir()
    (directory / "onnx" / "model.onnx").symlink_to(exported / "onnx" / "model.onnx")
    return directory


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    """Makes a copy of a model's directory whose small files can be changed."""

    def copy(directory: Path) -> Path:
        made = Path(tempfile.mkdtemp(dir=tmp_path))
        _clone(directory, made)
        return made

    return copy


@pytest.fixture
def engine() -> EngineName:
    """Which engine the embedder has; a module that tests both gives it parameters."""
    return "torch"


@pytest.fixture
def place(engine: EngineName, request: pytest.FixtureRequest) -> Path:
    """A directory of the model for that engine."""
    return request.getfixturevalue("both" if engine == "onnx" else "weights")


@pytest.fixture
async def embedder(place: Path, engine: EngineName) -> AsyncGenerator[LocalEmbedder]:
    """An open embedder; its model is loaded by the first use."""
    made = LocalEmbedder(str(place), Options(engine=engine))
    await made.open()
    yield made
    await made.close()


def _clone(directory: Path, where: Path) -> None:
    """The directory again, its small files copied so that they can be changed, the large ones linked."""

    def copy(source: str, target: str) -> str:
        if Path(source).stat().st_size > 1_000_000:
            Path(target).symlink_to(Path(source).resolve())
            return target
        return shutil.copyfile(source, target)

    shutil.copytree(directory, where, copy_function=copy, dirs_exist_ok=True)
