"""The embedder ``local:…``: a sentence-transformers model in this process, loaded by its first use.

Owns when the model is loaded, and how texts are dealt to the worker: in batches of like length, small enough that a
query is never long behind them. What the model does is ``model``'s, what computes it ``engines``', where it lies
``weights``'s.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np

from muniment import plugin_options
from muniment.errors import ConfigurationError, EmbedderUnavailable, MunimentError
from muniment.ports import PluginContext, Space, Vector, Vectors
from muniment_embed_local import DESCRIPTOR, engines, model
from muniment_embed_local.options import Options
from muniment_embed_local.weights import Weights, locate
from muniment_embed_local.worker import Priority, Worker

T = TypeVar("T")

_log = logging.getLogger(__name__)

SCHEME: Final = "local:"
CLOSE_SECONDS: Final = 5.0
"""How long ``close`` waits for work under way; a load cannot be interrupted and ends by itself."""
BATCH_TEXTS: Final = 16
BATCH_CHARACTERS: Final = 4_000
"""Characters of one batch for the model, its texts padded to the longest; one text always fits."""
COUNT_CHARACTERS: Final = 200_000
COUNT_TEXTS: Final = 2_000


def create(context: PluginContext) -> LocalEmbedder:
    """The embedder of a configured ``local:NAME`` or ``local:/path``. Raises ConfigurationError."""
    value = context.spec.removeprefix(SCHEME)
    if not value:
        raise ConfigurationError("embedder local: it names no model; write local:NAME, such as local:all-MiniLM-L6-v2.")
    return LocalEmbedder(value, plugin_options.parse(Options, DESCRIPTOR.name, context.options))


class LocalEmbedder:
    """``muniment.ports.Embedder`` on one worker thread; the model is loaded once, however many ask for it
    first.

    A load that failed fails the calls that waited for it, and the next call tries again.
    """

    def __init__(self, value: str, options: Options | None = None) -> None:
        self._value = value
        self._options = options or Options()
        self._worker = Worker(f"muniment-embed-{value}")
        self._weights: Weights | None = None
        self._model: model.Model | None = None
        self._failure: tuple[float, MunimentError] | None = None

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        return SCHEME + self._value

    @property
    def ready(self) -> bool:
        """Whether the model is loaded."""
        return self._model is not None and not self._worker.stopped

    async def open(self) -> None:
        """Find the model's files where that takes no network; loads nothing. Raises ConfigurationError."""
        if self._worker.stopped:
            self._worker = Worker(f"muniment-embed-{self._value}")
        model.quieten()
        self._weights = await asyncio.to_thread(self._locate)

    async def close(self) -> None:
        """Refuse what waits, let go of the model, wait a little for work under way. Safe to call twice."""
        await self._worker.stop(patience=CLOSE_SECONDS)
        self._model = None

    async def space(self) -> Space:
        """The model's space. Raises EmbedderUnavailable, ConfigurationError."""
        if self._model is not None and self.ready:
            return self._model.space
        return await self._call(Priority.QUERY, lambda loaded: loaded.space)

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, special tokens left out. Raises InvalidInput, EmbedderUnavailable."""
        counts: list[int] = []
        for start, end in _runs([len(text) for text in texts], COUNT_TEXTS, COUNT_CHARACTERS):
            part = texts[start:end]
            counts.extend(await self._call(Priority.COUNT, lambda loaded, part=part: loaded.count(part)))
        return counts

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One unit vector a text, ``(len(texts), dimensions)``. Raises EmbedderUnavailable, InvalidInput.

        A text longer than the space's ``passage_tokens`` is represented by its beginning.
        """
        dimensions = (await self.space()).dimensions
        vectors = np.empty((len(texts), dimensions), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        for start, end in _runs([len(texts[place]) for place in order], BATCH_TEXTS, BATCH_CHARACTERS):
            places = order[start:end]
            part = [texts[place] for place in places]
            vectors[places] = await self._call(Priority.PASSAGES, lambda loaded, part=part: loaded.passages(part))
        return vectors

    async def embed_query(self, text: str) -> Vector:
        """The query's unit vector, ``(dimensions,)``, made before any waiting passages.

        Raises EmbedderUnavailable, InvalidInput. A query longer than the model takes is represented by its
        beginning.
        """
        return await self._call(Priority.QUERY, lambda loaded: loaded.query(text))

    async def _call(self, priority: Priority, work: Callable[[model.Model], T]) -> T:
        asked = time.monotonic()
        worker = self._worker
        return await worker.run(priority, lambda: work(self._loaded(worker, asked)))

    def _loaded(self, worker: Worker, asked: float) -> model.Model:
        """The model, in the worker; a failure answers everybody who asked before it."""
        if self._model is not None:
            return self._model
        if self._failure is not None and asked <= self._failure[0]:
            raise self._failure[1]
        try:
            loaded = self._load(worker)
        except MunimentError as error:
            self._failure = (time.monotonic(), error)
            raise
        if not worker.stopped:
            self._model = loaded
        return loaded

    def _load(self, worker: Worker) -> model.Model:
        model.quieten()
        weights = self._weights or self._locate()
        directory = engines.fetch(weights, self._options)
        loaded = engines.load(
            weights.model, directory, self._options, lambda: _go_on(worker), configured=weights.configured
        )
        _log.info("%s is loaded, by the engine %s", self.name, loaded.engine)
        return loaded

    def _locate(self) -> Weights:
        weights = locate(self._value, named=self._options.model_name)
        if weights.directory is None:
            engines.check_offline(weights, self._options)
        else:
            engines.choose(weights.configured, weights.directory, self._options)
        return weights


def _go_on(worker: Worker) -> None:
    if worker.stopped:
        raise EmbedderUnavailable("The local embedder was closed while its model was loading.")


def _runs(lengths: Sequence[int], texts: int, characters: int) -> Iterator[tuple[int, int]]:
    """Cut a row of texts into runs ``(start, end)`` of at most so many texts and characters, one text at
    least.

    Characters are counted as if each text of a run were as long as its longest.
    """
    start, longest = 0, 0
    for place, length in enumerate(lengths):
        longest = max(longest, length)
        if place > start and (place - start >= texts or longest * (place + 1 - start) > characters):
            yield start, place
            start, longest = place, length
    if start < len(lengths):
        yield start, len(lengths)
