"""What ``muniment doctor`` says of this plugin: where the model is, what computes it, and the libraries for that.

Reads package metadata and the model's small files, and asks the model hub for a model that is not on this machine;
loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from muniment import plugin_options
from muniment.errors import MunimentError
from muniment.hookspecs import Finding
from muniment_embed_local import DESCRIPTOR, engines, torch_engine
from muniment_embed_local.model import EngineName
from muniment_embed_local.options import Options
from muniment_embed_local.weights import locate

_LIBRARIES: Final = {"onnx": ("onnxruntime", "tokenizers"), "torch": ("torch", "sentence-transformers")}
_INSTALL: Final = {"onnx": "pip install muniment-embed-local", "torch": torch_engine.EXTRA}
_SCHEME: Final = "local:"


def findings(embedder: str, table: Mapping[str, Any]) -> list[Finding]:
    """The findings for the configured ``embedder`` and options; none where another plugin serves it."""
    if not embedder.startswith(_SCHEME):
        return []
    try:
        options = plugin_options.parse(Options, DESCRIPTOR.name, table)
        weights = locate(embedder.removeprefix(_SCHEME), named=options.model_name)
        directory, engine = engines.look(weights, options)
    except MunimentError as error:
        return [Finding(embedder, ok=False, detail=error.message)]
    if directory is None:
        detail = "not on this machine; it will be downloaded from the model hub at the first use"
    else:
        detail = f"in {directory}"
    return [
        *(_library(name, engine) for name in _LIBRARIES[engine]),
        Finding(embedder, ok=True, detail=f"{detail}, and computed by {_told(engine, embedder)}"),
    ]


def _told(engine: EngineName, embedder: str) -> str:
    if engine == "onnx":
        return "onnxruntime"
    return (
        "PyTorch, which takes seconds to start; muniment embeddings export "
        f"{embedder} DIR makes a directory that needs none, where the model is of the usual kind"
    )


def _library(name: str, engine: EngineName) -> Finding:
    try:
        return Finding(name, ok=True, detail=version(name))
    except PackageNotFoundError:
        return Finding(name, ok=False, detail="not installed", remedy=_INSTALL[engine])
