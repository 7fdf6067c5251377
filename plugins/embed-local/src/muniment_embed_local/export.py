"""Writing a model as an ONNX file with all that its engine reads, by PyTorch's own exporter.

Owns which files make the directory complete, and the proof that its vectors are the model's: it is one space with what
it was made of, or it is refused. That the directory is kept whole or not at all is the command's.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import shutil
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from muniment.errors import CapabilityNotSupported, ConfigurationError, EmbedderMismatch
from muniment_embed_local import engines, model, onnx_engine, onnx_file, recipe, torch_engine, weights
from muniment_embed_local.model import Model
from muniment_embed_local.options import Options
from muniment_embed_local.recipe import Recipe, Unsupported
from muniment_embed_local.weights import Weights

COSINE_MIN: Final = 0.9999
"""Between PyTorch's vector of a text and the file's."""

_KEPT: Final = (".json", ".txt", ".md")
_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
_ONE_FILE_MAX: Final = 1_900_000_000
"""Bytes of weights that fit into the ONNX file itself, which the format bounds to 2 GiB."""
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_TEXTS: Final = (
    "",
    "x",
    "The quick brown fox jumps over the lazy dog.",
    "def parse(line: str) -> dict[str, int]: ...",
    "我们选择了数据库。😀👩‍👩‍👧 e\u0301 אבג",
    "Nightly backups are kept for thirty days in another region. " * 12,
    "word " * 9_000,
)
"""From nothing to beyond the limit of most models, since a graph can hold for one length and not for another."""


def export(spec: str, directory: Path) -> Mapping[str, str]:
    """Fill the empty ``directory`` with the model of a configured ``local:…``; what was written, by name.

    Raises ConfigurationError for a model that is not there or that the ONNX engine does not know, and where a library
    is missing; CapabilityNotSupported where PyTorch cannot write it; EmbedderMismatch where the vectors differ.
    """
    found = weights.locate(spec.partition(":")[2])
    _check_libraries(found.configured)
    options = Options(engine="torch", device="cpu")
    model.quieten()
    source = engines.fetch(found, options)
    engines.choose(found.configured, source, options)
    _check_kind(found.configured, source)
    with _quiet():
        torch_engine.import_libraries(options.threads)
        engine = torch_engine.load_engine(found.configured, source, device="cpu")
        reference = Model(found.model, engine, found.configured)
        expected = [(reference.passages([text])[0], reference.query(text)) for text in _TEXTS]
        _copy(source, directory)
        _write_card(found.model, directory)
        _write_tokenizer(engine.loaded, directory)
        known = recipe.read(directory)
        try:
            _write_graph(engine.loaded, known, directory / onnx_file.PLACES[0])
        except OSError:
            raise
        except Exception as error:
            raise CapabilityNotSupported(
                f"embedder local:{found.configured}: PyTorch cannot write this model as ONNX ({type(error).__name__}: "
                f"{' '.join(str(error).split())[:300]}); use it with PyTorch."
            ) from error
    made = _load(found, directory, options)
    cosine = _compare(found.configured, reference, expected, made)
    size = sum(file.stat().st_size for file in (directory / onnx_file.PLACES[0]).parent.iterdir())
    return {"space": made.space.id, "cosine to PyTorch": f"{cosine:.6f}", "ONNX": f"{size / 1e6:.0f} MB"}


@contextmanager
def _quiet() -> Generator[None]:
    """Without PyTorch's warnings about its own parts while it exports, and about a library that is not needed."""
    # A filter of the logger itself: levels are set anew by the import of PyTorch.
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    log.addFilter(_is_of_use)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.removeFilter(_is_of_use)


def _is_of_use(record: logging.LogRecord) -> bool:
    """Whether it is no word on operators of torchvision, which no model of texts has."""
    return not record.getMessage().startswith("torchvision is not installed")


def missing_libraries() -> list[str]:
    """What must be installed for an export, and is not."""
    return [one for one in ("torch", "sentence_transformers", "onnxscript") if find_spec(one) is None]


def _check_libraries(name: str) -> None:
    if missing := missing_libraries():
        raise ConfigurationError(
            f"embedder local:{name}: {' and '.join(missing)} must be installed to export a model; {torch_engine.EXTRA}."
        )


def _check_kind(name: str, source: Path) -> None:
    try:
        recipe.read(source)
    except Unsupported as error:
        if not error.export_helps:
            raise ConfigurationError(
                f"embedder local:{name}: an ONNX file would be of no use, since {error}; use it with PyTorch.",
                model=name,
            ) from error


def _copy(source: Path, directory: Path) -> None:
    """The descriptions of the model and of its modules, without the weights."""
    modules = cast("list[dict[str, Any]]", json.loads((source / "modules.json").read_text(encoding="utf-8")))
    for folder in dict.fromkeys(str(module["path"]) for module in modules):
        for file in (source / folder).glob("*"):
            if file.is_file() and file.suffix in _KEPT and not file.name.endswith(".index.json"):
                copy = directory / folder / file.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)


def _write_card(name: str, directory: Path) -> None:
    """Let the model card's title be what the model is called, so that the directory is this model wherever it is."""
    if weights.identity(directory) == name:
        return
    card = directory / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    front = _FRONT_MATTER.match(text)
    head = front[0] if front else ""
    card.write_text(f"{head}# {name}\n\n{text[len(head) :]}", encoding="utf-8")
    if weights.identity(directory) != name:
        raise ConfigurationError(
            f"embedder local:{name}: this name cannot be a model card's title, so the new directory would be called "
            "otherwise; rename the model's directory to letters, digits, - and _ first.",
            model=name,
        )


def _write_tokenizer(loaded: Any, directory: Path) -> None:
    """The tokeniser as it works, which is not always as its files say."""
    tokenizer = loaded.tokenizer.backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(directory / "tokenizer.json"))


def _write_graph(loaded: Any, known: Recipe, file: Path) -> None:
    """The transformer alone; pooling and what follows are few lines of the engine."""
    import torch

    transformer = loaded[0].auto_model.eval()
    # Attention in single steps: the fused kernel becomes a graph that onnxruntime computes more slowly.
    transformer.set_attn_implementation("eager")
    example = loaded.tokenizer(["one", "two of more words"], padding=True, return_tensors="pt")
    takes = inspect.signature(transformer.forward).parameters
    names = [name for name in _INPUTS if name in example and name in takes]

    class States(torch.nn.Module):
        def forward(self, *tokens: Any) -> Any:
            return transformer(**dict(zip(names, tokens, strict=True))).last_hidden_state

    module = States()
    module.transformer = transformer
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=known.longest)
    weight = sum(parameter.numel() * parameter.element_size() for parameter in transformer.parameters())
    file.parent.mkdir(parents=True, exist_ok=True)
    # The older exporter, which traces, writes files that are wrong for batches of another shape than the example's.
    torch.onnx.export(  # pyright: ignore[reportUnknownMemberType]
        module,
        tuple(example[name] for name in names),
        str(file),
        input_names=names,
        output_names=[recipe.OUTPUTS[0]],
        dynamic_shapes=(tuple({0: batch, 1: length} for _ in names),),
        dynamo=True,
        external_data=weight > _ONE_FILE_MAX,
        verbose=False,
    )


def _load(found: Weights, directory: Path, options: Options) -> Model:
    try:
        return onnx_engine.load(found.model, directory, threads=options.threads, configured=found.configured)
    except Unsupported as error:
        raise CapabilityNotSupported(
            f"embedder local:{found.configured}: what PyTorch wrote cannot be used, since {error}; use the model "
            "with PyTorch."
        ) from error


def _compare(name: str, reference: Model, expected: list[tuple[Any, Any]], made: Model) -> float:
    """The least cosine of a text alone, and of all in one batch, to PyTorch's. Raises EmbedderMismatch."""
    passages = np.array([passage for passage, _ in expected])
    queries = np.array([query for _, query in expected])
    if made.space == reference.space and made.count(_TEXTS) == reference.count(_TEXTS):
        cosine = min(
            _least(made.passages(_TEXTS), passages),
            _least(np.array([made.passages([text])[0] for text in _TEXTS]), passages),
            _least(np.array([made.query(text) for text in _TEXTS]), queries),
        )
    else:
        cosine = 0.0
    if cosine < COSINE_MIN:
        raise EmbedderMismatch(
            f"embedder local:{name}: what PyTorch wrote makes other vectors or other tokens than the model itself "
            f"(cosine {cosine:.4f}, {COSINE_MIN} is needed), so it was not kept; use the model with PyTorch."
        )
    return cosine


def _least(vectors: Any, others: Any) -> float:
    return float(np.einsum("ij,ij->i", vectors, others).min())
