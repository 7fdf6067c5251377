"""One working model, whichever engine computes it: its space, its token counts, its vectors.

Owns what both engines must do alike, so that their vectors are one space: how the space is called, what a passage may
have, which prompt is used, what is refused, and what a library's error means. The libraries are the engines'.
Everything here blocks and is used from one thread at a time: a tokeniser changes its own state as it works.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal, Protocol

import numpy as np

from muniment.errors import ConfigurationError, EmbedderUnavailable, InvalidInput, MunimentError
from muniment.ports import Space, Vector, Vectors
from muniment_embed_local.recipe import Unsupported

EngineName = Literal["onnx", "torch"]
Task = Literal["query", "document"]

UNLIMITED_PASSAGE_TOKENS: Final = 512
"""Tokens of a passage for a model that names no limit; longer passages would blur what they say."""
_DOCUMENT_PROMPTS: Final = ("document", "passage", "corpus")
_QUIET: Final = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_OUT_OF_MEMORY: Final = re.compile(r"out of memory|can't allocate memory|failed to allocate memory|bad.alloc", re.I)


class Engine(Protocol):
    """What computes a model. ``longest`` is the most tokens of a text, special ones included, None without a limit."""

    @property
    def name(self) -> EngineName:
        """Which of the two it is."""
        ...

    @property
    def prompts(self) -> Mapping[str, str]:
        """What the model wants before a text, by the kind of text."""
        ...

    @property
    def pooling(self) -> str:
        """How the tokens' vectors become one."""
        ...

    @property
    def longest(self) -> int | None:
        """As above."""
        ...

    @property
    def special_tokens(self) -> int:
        """How many tokens the tokeniser adds to each text."""
        ...

    def count(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, special ones left out and nothing cut off."""
        ...

    def embed(self, texts: Sequence[str], prompt: str, task: Task) -> Vectors:
        """The vectors of one text at least, ``(len(texts), dimensions)`` float32, of unit length where there is one."""
        ...


def quieten() -> None:
    """Ask the model libraries, before their import, for no telemetry, no progress bars and no threads of
    their own.

    What the environment says already stays.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


class Model:
    """A model that works, proven by a first vector. Vectors are float32 of unit length, one a text, in order.

    ``configured`` is what refusals call it, its name where that is None.

    Raises ConfigurationError for a model that has no room for text, EmbedderUnavailable where it fails.
    """

    def __init__(self, name: str, engine: Engine, configured: str | None = None) -> None:
        self._configured = configured or name
        self._engine = engine
        self._query_prompt = engine.prompts.get("query") or ""
        # Not the first that there is: every model has an empty ``document``, beside which a ``passage`` may stand.
        self._document_prompt = next((found for key in _DOCUMENT_PROMPTS if (found := engine.prompts.get(key))), "")
        dimensions = len(self.query("The model is ready."))
        limit = self._passage_tokens()
        self.space: Final = Space(
            id=f"local:{name}:{dimensions}:{engine.pooling}:unit:{limit}",
            provider="local",
            model=name,
            dimensions=dimensions,
            pooling=engine.pooling,
            normalised=True,
            passage_tokens=limit,
        )

    @property
    def engine(self) -> EngineName:
        """Which engine computes it."""
        return self._engine.name

    def count(self, texts: Sequence[str]) -> list[int]:
        """How many of the model's tokens each text has, without special tokens and without a limit."""
        _check_text(texts)
        return self._engine.count(texts) if texts else []

    def passages(self, texts: Sequence[str]) -> Vectors:
        """The texts' vectors as passages, ``(len(texts), dimensions)``. Raises EmbedderUnavailable."""
        return self._vectors(texts, self._document_prompt, "document")

    def query(self, text: str) -> Vector:
        """The text's vector as a query, ``(dimensions,)``. Raises EmbedderUnavailable."""
        return self._vectors([text], self._query_prompt, "query")[0]

    def _vectors(self, texts: Sequence[str], prompt: str, task: Task) -> Vectors:
        _check_text(texts)
        with translated(self._configured, self._failed):
            vectors = self._engine.embed(texts, prompt, task)
        if not np.all(np.abs(np.einsum("ij,ij->i", vectors, vectors) - 1.0) < 2e-3):
            raise self._failed("it gives no vector for a text in which it knows no token")
        return vectors

    def _failed(self, cause: str) -> EmbedderUnavailable:
        return EmbedderUnavailable(
            f"embedder local:{self._configured}: the model failed on a text ({cause}); change the text, or, where it "
            "fails on others too, replace the model's files.",
            model=self._configured,
        )

    def _passage_tokens(self) -> int:
        longest = self._engine.longest
        if longest is None:
            return UNLIMITED_PASSAGE_TOKENS
        limit = longest - self._engine.special_tokens - self.count([self._document_prompt])[0]
        if limit < 1:
            raise ConfigurationError(
                f"embedder local:{self._configured}: the model takes {longest} tokens, and its special tokens and "
                "its prompt leave none for text; choose another model.",
                model=self._configured,
            )
        return limit


@contextmanager
def translated(model: str, refusal: Callable[[str], Exception]) -> Generator[None]:
    """Turn a library's error into ``refusal`` of its first line, and memory that ran out into a refusal of its own.

    A library in Rust that panics raises what is no ``Exception``.
    """
    try:
        yield
    except (MunimentError, Unsupported, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if not _is_out_of_memory(error):
            first = str(error).strip().partition("\n")[0][:200]
            raise refusal(f"{type(error).__name__}: {first}") from error
        raise EmbedderUnavailable(
            f"embedder local:{model}: memory ran out; give the process more, stop other work on the device, or choose "
            "a smaller model.",
            model=model,
        ) from error


def _check_text(texts: Sequence[str]) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                "text", f"it has half of a surrogate pair at {error.start}; send whole characters"
            ) from error


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether it is Python's, or a library's, each of which says so in words of its own."""
    return isinstance(error, MemoryError) or bool(_OUT_OF_MEMORY.search(str(error)))
