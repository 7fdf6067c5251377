"""One loaded sentence-transformers model: its space, its token counts, its vectors.

Owns what is asked of sentence-transformers and PyTorch, and what their errors mean. Everything here blocks
and is used from one thread at a time: a tokeniser changes its own state as it works. Both libraries are
imported inside ``load``, which takes seconds.
"""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from muniment.errors import ConfigurationError, EmbedderUnavailable, InvalidInput, MunimentError
from muniment.ports import Space, Vector, Vectors

UNLIMITED_PASSAGE_TOKENS: Final = 512
"""Tokens of a passage for a model that names no limit; longer passages would blur what they say."""
_DOCUMENT_PROMPTS: Final = ("document", "passage", "corpus")
_QUIET: Final = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def quieten() -> None:
    """Ask the model libraries, before their import, for no telemetry, no progress bars and no threads of
    their own.

    What the environment says already stays.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


def import_libraries(threads: int) -> None:
    """Import PyTorch and sentence-transformers, bound PyTorch to ``threads``. Raises ConfigurationError."""
    try:
        importlib.import_module("sentence_transformers")
        import torch
        from transformers.utils import logging
    except (ImportError, OSError) as error:
        raise ConfigurationError(
            f"embedder local: PyTorch or sentence-transformers cannot be imported ({error}); install them again "
            "with pip install torch, then pip install muniment-embed-local."
        ) from error
    torch.set_num_threads(threads)
    logging.disable_progress_bar()  # pyright: ignore[reportUnknownMemberType]


def load(model: str, directory: Path, *, device: str | None) -> Model:
    """The model in ``directory``, called ``model``, in full precision and proven by a first vector.

    Raises ConfigurationError for a directory that holds no working model or a device that is not there, and
    EmbedderUnavailable where memory runs out.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    where = f" on the device {device!r}" if device else ""
    with _translated(
        model,
        lambda cause: ConfigurationError(
            f"embedder local:{model}: the files in {directory} cannot be loaded{where} ({cause}); they are incomplete, "
            "damaged, or of a kind that this version of sentence-transformers does not read. Replace them with a "
            "whole copy of the model, or choose another model.",
            model=model,
        ),
    ):
        loaded = SentenceTransformer(
            str(directory), device=device, local_files_only=True, model_kwargs={"dtype": torch.float32}
        )
        return Model(model, loaded)


class Model:
    """A working model. Vectors are float32 of unit length, one a text, in order."""

    def __init__(self, name: str, loaded: Any) -> None:
        self._name = name
        self._loaded = loaded
        self._prompt = _document_prompt(loaded)
        dimensions = len(self.query("The model is ready."))
        limit = self._passage_tokens()
        pooling = _pooling(loaded)
        self.space: Final = Space(
            id=f"local:{name}:{dimensions}:{pooling}:unit:{limit}",
            provider="local",
            model=name,
            dimensions=dimensions,
            pooling=pooling,
            normalised=True,
            passage_tokens=limit,
        )

    def count(self, texts: Sequence[str]) -> list[int]:
        """How many of the model's tokens each text has, without special tokens and without a limit."""
        _check_text(texts)
        if not texts:
            return []
        tokenizer = self._loaded.tokenizer
        if hasattr(tokenizer, "encode_batch"):
            encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
            return [len(each.ids) for each in encoded]
        encoded = tokenizer(
            list(texts),
            add_special_tokens=False,
            padding=False,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return [len(ids) for ids in encoded["input_ids"]]

    def passages(self, texts: Sequence[str]) -> Vectors:
        """The texts' vectors as passages, ``(len(texts), dimensions)``. Raises EmbedderUnavailable."""
        return self._vectors(self._loaded.encode_document, texts, prompt=self._prompt)

    def query(self, text: str) -> Vector:
        """The text's vector as a query, ``(dimensions,)``. Raises EmbedderUnavailable."""
        return self._vectors(self._loaded.encode_query, [text])[0]

    def _vectors(self, encode: Callable[..., Any], texts: Sequence[str], **options: str) -> Vectors:
        _check_text(texts)
        with _translated(self._name, self._failed):
            made = encode(
                list(texts),
                batch_size=len(texts),
                normalize_embeddings=True,
                show_progress_bar=False,
                **options,
            )
        vectors = np.ascontiguousarray(made, dtype=np.float32)
        if not np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-3):
            raise self._failed("it gives no vector for a text in which it knows no token")
        return vectors

    def _failed(self, cause: str) -> EmbedderUnavailable:
        return EmbedderUnavailable(
            f"embedder local:{self._name}: the model failed on a text ({cause}); change the text, or, where it fails "
            "on others too, replace the model's files.",
            model=self._name,
        )

    def _passage_tokens(self) -> int:
        longest = self._loaded.max_seq_length
        if longest is None or not math.isfinite(longest) or longest > 1_000_000:
            return UNLIMITED_PASSAGE_TOKENS
        limit = int(longest) - _special_tokens(self._loaded) - self.count([self._prompt])[0]
        if limit < 1:
            raise ConfigurationError(
                f"embedder local:{self._name}: the model takes {int(longest)} tokens, and its special tokens and its "
                "prompt leave none for text; choose another model.",
                model=self._name,
            )
        return limit


def _pooling(loaded: Any) -> str:
    from sentence_transformers.sentence_transformer.modules import Pooling

    for module in loaded:
        if isinstance(module, Pooling):
            mode: str | tuple[str, ...] = module.pooling_mode
            return mode if isinstance(mode, str) else "+".join(mode)
    return "own"


def _special_tokens(loaded: Any) -> int:
    tokenizer = loaded.tokenizer
    return int(getattr(tokenizer, "num_special_tokens_to_add", lambda: 0)())


def _document_prompt(loaded: Any) -> str:
    """What stands before a passage: the first of the model's prompts for one that is not empty.

    Named to ``encode_document``, which would take the empty ``document`` that every model has over a ``passage``.
    """
    prompts: dict[str, str] = loaded.prompts
    return next((prompts[name] for name in _DOCUMENT_PROMPTS if prompts.get(name)), "")


def _check_text(texts: Sequence[str]) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                "text", f"it has half of a surrogate pair at {error.start}; send whole characters"
            ) from error


@contextmanager
def _translated(model: str, refusal: Callable[[str], MunimentError]) -> Generator[None]:
    """Turn a library's error into ``refusal`` of its first line, and memory that ran out into a refusal of its own."""
    try:
        yield
    except MunimentError:
        raise
    except Exception as error:
        if not _is_out_of_memory(error):
            first = str(error).strip().partition("\n")[0][:200]
            raise refusal(f"{type(error).__name__}: {first}") from error
        raise EmbedderUnavailable(
            f"embedder local:{model}: memory ran out; give the process more, stop other work on the device, or choose "
            "a smaller model.",
            model=model,
        ) from error


def _is_out_of_memory(error: Exception) -> bool:
    """Whether it is Python's, or PyTorch's, which raises a RuntimeError for the processor's memory."""
    said = isinstance(error, RuntimeError) and re.search(r"out of memory|can't allocate memory", str(error))
    return isinstance(error, MemoryError) or bool(said)
