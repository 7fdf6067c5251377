"""The engine that computes any sentence-transformers model with PyTorch.

Owns what is asked of sentence-transformers and PyTorch. Both are imported by ``import_libraries``, which takes seconds.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from muniment.errors import ConfigurationError
from muniment.ports import Vectors
from muniment_embed_local.model import EngineName, Model, Task, translated
from muniment_embed_local.recipe import LONGEST

EXTRA: Final = 'pip install "muniment-embed-local[torch]"'


def is_installed() -> bool:
    """Whether PyTorch and sentence-transformers are there; neither is imported."""
    return all(find_spec(name) is not None for name in ("torch", "sentence_transformers"))


def import_libraries(threads: int) -> None:
    """Import PyTorch and sentence-transformers, bound PyTorch to ``threads``. Raises ConfigurationError."""
    try:
        importlib.import_module("sentence_transformers")
        import torch
        from transformers.utils import logging
    except (ImportError, OSError) as error:
        raise ConfigurationError(
            f"embedder local: PyTorch or sentence-transformers cannot be imported ({error}); install them again "
            f"with pip install torch, then {EXTRA}."
        ) from error
    torch.set_num_threads(threads)
    logging.disable_progress_bar()  # pyright: ignore[reportUnknownMemberType]


def load(
    model: str, directory: Path, *, device: str | None, configured: str | None = None, obstacle: object = None
) -> Model:
    """The model in ``directory``, called ``model``, in full precision. Raises as ``load_engine``."""
    called = configured or model
    engine = load_engine(called, directory, device=device, obstacle=obstacle)
    with _damage_told(called, directory, obstacle):
        return Model(model, engine, configured)


def load_engine(configured: str, directory: Path, *, device: str | None, obstacle: object = None) -> TorchEngine:
    """The engine of that model; the libraries must be imported. ``obstacle`` is why the ONNX engine cannot, if it was
    to.

    Raises ConfigurationError for a directory that holds no working model or a device that is not there, and
    EmbedderUnavailable where memory runs out.
    """
    import torch
    from sentence_transformers import SentenceTransformer

    if device is not None:
        _check_device(configured, device)
    with _damage_told(configured, directory, obstacle):
        return TorchEngine(
            SentenceTransformer(
                str(directory), device=device, local_files_only=True, model_kwargs={"dtype": torch.float32}
            )
        )


def _check_device(configured: str, device: str) -> None:
    """Refuse a device that PyTorch cannot put a number on, before a model is blamed. Raises ConfigurationError."""
    import torch

    def refusal(cause: str) -> ConfigurationError:
        return ConfigurationError(
            f"embedder local:{configured}: PyTorch cannot use the device {device!r} on this machine ({cause}); correct "
            "or remove device from [plugins.embed-local].",
            model=configured,
        )

    with translated(configured, refusal):
        torch.zeros(1, device=device)


def _damage_told(configured: str, directory: Path, obstacle: object) -> AbstractContextManager[None]:
    first = f"{obstacle}, and " if obstacle is not None else ""
    return translated(
        configured,
        lambda cause: ConfigurationError(
            f"embedder local:{configured}: {first}the files in {directory.absolute()} cannot be loaded by PyTorch "
            f"({cause}); they are incomplete, damaged, or of a kind that this version of sentence-transformers does "
            "not read. Replace them with a whole copy of the model, or choose another model.",
            model=configured,
        ),
    )


class TorchEngine:
    """``model.Engine`` on a loaded SentenceTransformer, which ``loaded`` is."""

    def __init__(self, loaded: Any) -> None:
        self.name: EngineName = "torch"
        self.loaded = loaded

    @property
    def prompts(self) -> Mapping[str, str]:
        """Those of the model."""
        return self.loaded.prompts

    @property
    def pooling(self) -> str:
        """The modes of the first pooling; "own" for a model without one."""
        from sentence_transformers.sentence_transformer.modules import Pooling

        for module in self.loaded:
            if isinstance(module, Pooling):
                mode: str | tuple[str, ...] = module.pooling_mode
                return mode if isinstance(mode, str) else "+".join(mode)
        return "own"

    @property
    def longest(self) -> int | None:
        """The model's limit."""
        found = self.loaded.max_seq_length
        return None if found is None or not math.isfinite(found) or found > LONGEST else int(found)

    @property
    def special_tokens(self) -> int:
        """None for a tokeniser that knows none."""
        return int(getattr(self.loaded.tokenizer, "num_special_tokens_to_add", lambda: 0)())

    def count(self, texts: Sequence[str]) -> list[int]:
        """As the tokeniser counts."""
        tokenizer = self.loaded.tokenizer
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

    def embed(self, texts: Sequence[str], prompt: str, task: Task) -> Vectors:
        """By ``encode_query`` or ``encode_document``, which differ for models with a part for each."""
        encode = self.loaded.encode_query if task == "query" else self.loaded.encode_document
        made = encode(
            list(texts), prompt=prompt, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
        )
        return np.ascontiguousarray(made, dtype=np.float32)
