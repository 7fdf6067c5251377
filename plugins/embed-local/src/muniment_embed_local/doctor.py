"""What ``muniment doctor`` says of this plugin: the libraries that it needs, and where the model is.

Reads package metadata and file names, and asks the model hub for a model that is not on this machine; loads nothing.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from muniment.errors import ConfigurationError, MunimentError
from muniment.hookspecs import Finding
from muniment_embed_local.weights import Weights, locate

_LIBRARIES: Final = ("torch", "sentence-transformers")
_SCHEME: Final = "local:"


def findings(embedder: str) -> list[Finding]:
    """The findings for the configured ``embedder``; none where another plugin serves it."""
    if not embedder.startswith(_SCHEME):
        return []
    return [*(_library(name) for name in _LIBRARIES), _weights(embedder)]


def _library(name: str) -> Finding:
    try:
        return Finding(name, ok=True, detail=version(name))
    except PackageNotFoundError:
        return Finding(name, ok=False, detail="not installed", remedy=f"pip install {name}")


def _weights(embedder: str) -> Finding:
    try:
        weights = locate(embedder.removeprefix(_SCHEME))
        directory = weights.directory or _in_the_hub(weights)
    except MunimentError as error:
        return Finding(embedder, ok=False, detail=error.message)
    if directory is None:
        return Finding(
            embedder, ok=True, detail="not on this machine; it will be downloaded from the model hub at the first use"
        )
    return Finding(embedder, ok=True, detail=f"in {directory}")


def _in_the_hub(weights: Weights) -> Path | None:
    """The model in the hub's cache on this machine; None where the hub has it. Raises MunimentError."""
    if find_spec("huggingface_hub") is None:
        raise ConfigurationError(
            f"embedder local:{weights.model}: huggingface_hub is not installed; pip install muniment-embed-local."
        )
    from muniment_embed_local import hub

    return hub.look(weights)
