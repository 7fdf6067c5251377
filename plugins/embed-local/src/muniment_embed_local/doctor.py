"""What ``muniment doctor`` says of this plugin: the libraries that it needs, and where the model is.

Reads package metadata and file names; loads nothing and asks no network.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from muniment.errors import ConfigurationError
from muniment.hookspecs import Finding
from muniment_embed_local.weights import locate

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
    except ConfigurationError as error:
        return Finding(embedder, ok=False, detail=error.message)
    if weights.directory is None:
        return Finding(embedder, ok=True, detail="from the model hub, or its cache on this machine, at the first use")
    return Finding(embedder, ok=True, detail=f"in {weights.directory}")
