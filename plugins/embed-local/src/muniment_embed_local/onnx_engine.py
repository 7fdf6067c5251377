"""The engine that computes a model from its ONNX file, with onnxruntime and tokenizers and without PyTorch.

Owns what is asked of the two libraries, and doing it as sentence-transformers does: the same tokens, the same pooling.
Which models it can follow is ``recipe``'s. Both libraries are imported inside ``load``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from muniment.ports import Vectors
from muniment_embed_local import recipe
from muniment_embed_local.model import EngineName, Model, Task, translated
from muniment_embed_local.recipe import Recipe, Unsupported

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SMALLEST: Final = 1e-9
"""What sentence-transformers divides by where a text has no token."""


def load(model: str, directory: Path, *, threads: int, configured: str | None = None) -> Model:
    """The model in ``directory``, called ``model``, in refusals ``configured``, bound to ``threads``.

    Raises Unsupported where it cannot make the model's vectors, EmbedderUnavailable where memory runs out.
    """
    found = recipe.read(directory)
    file = recipe.check_file(directory)
    refusal = partial(_unusable, file.relative_to(directory).as_posix())
    with translated(configured or model, refusal):
        engine = OnnxEngine(found, _session(file, threads), _tokenizer(directory / "tokenizer.json", found))
        engine.embed(["a"], "", "query")
    return Model(model, engine, configured)


def _unusable(name: str, cause: str) -> Unsupported:
    reason = f"its ONNX engine cannot be made of {name} and tokenizer.json ({cause})"
    return Unsupported(reason, export_helps=True, broken=True)


class OnnxEngine:
    """``model.Engine`` on an onnxruntime session and a tokeniser."""

    def __init__(self, found: Recipe, session: Any, tokenizer: Tokenizer) -> None:
        self.name: EngineName = "onnx"
        self._recipe = found
        self._session = session
        self._tokenizer: Any = tokenizer  # whose options are annotated as unknown
        self._takes_types = "token_type_ids" in {one.name for one in session.get_inputs()}
        given = {one.name for one in session.get_outputs()}
        self._outputs = [next(name for name in recipe.OUTPUTS if name in given)]
        self._padding = _padding(found, tokenizer)
        self._cuts = True
        self._count_whole()

    @property
    def prompts(self) -> Mapping[str, str]:
        """Those of the recipe."""
        return self._recipe.prompts

    @property
    def pooling(self) -> str:
        """The recipe's."""
        return self._recipe.pooling

    @property
    def longest(self) -> int | None:
        """The recipe's."""
        return self._recipe.longest

    @property
    def special_tokens(self) -> int:
        """As the tokeniser has it."""
        return self._tokenizer.num_special_tokens_to_add(False)

    def count(self, texts: Sequence[str]) -> list[int]:
        """As the tokeniser counts."""
        self._count_whole()
        return [len(each) for each in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def embed(self, texts: Sequence[str], prompt: str, task: Task) -> Vectors:
        """The pooled output of the graph, for all texts at once, each padded to the longest."""
        self._cut_and_pad()
        encoded = self._tokenizer.encode_batch_fast([prompt + text for text in texts])
        mask = np.array([each.attention_mask for each in encoded], dtype=np.int64)
        tokens = {"input_ids": np.array([each.ids for each in encoded], dtype=np.int64), "attention_mask": mask}
        if self._takes_types:
            tokens["token_type_ids"] = np.zeros_like(mask)
        (states,) = self._session.run(self._outputs, tokens)
        pooled = _mean(states, mask) if self._recipe.pooling == "mean" else _first(states, mask)
        kept = pooled[:, : self._recipe.dimensions]
        lengths = np.sqrt(np.einsum("ij,ij->i", kept, kept))
        return np.divide(kept, np.maximum(lengths, 1e-12)[:, None], dtype=np.float32)

    def _cut_and_pad(self) -> None:
        if self._cuts:
            return
        if self._recipe.longest is not None:
            self._tokenizer.enable_truncation(self._recipe.longest, direction=self._recipe.truncation_side)
        self._tokenizer.enable_padding(**self._padding)
        self._cuts = True

    def _count_whole(self) -> None:
        if self._cuts:
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            self._cuts = False


def _session(file: Path, threads: int) -> Any:
    library: Any = importlib.import_module("onnxruntime")  # it ships no annotations
    library.disable_telemetry_events()
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait by spinning take the processor from the rest of the server, and from each other.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # A plan of the memory would be kept for every shape of a batch that ever was.
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return library.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _tokenizer(file: Path, found: Recipe) -> Tokenizer:
    """The tokeniser as transformers makes it of the same files. Raises Unsupported where it would be another."""
    from tokenizers import Tokenizer, normalizers

    tokenizer = Tokenizer.from_file(str(file))
    normalizer = tokenizer.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        for flag, value in found.flags.items():
            if getattr(normalizer, flag) != value:
                raise Unsupported(f"its tokeniser's two files disagree about {flag}", export_helps=True)
    if found.lowercase:
        steps = _steps(normalizer)
        if not any(isinstance(step, normalizers.Lowercase) for step in steps):
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])
    if any(tokenizer.encode("a").type_ids):
        raise Unsupported("its tokeniser numbers the types of tokens")
    return tokenizer


def _steps(normalizer: Any) -> list[Any]:
    from tokenizers import normalizers

    if normalizer is None:
        return []
    return [*cast("Iterable[Any]", normalizer)] if isinstance(normalizer, normalizers.Sequence) else [normalizer]


def _padding(found: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """The options of the tokeniser's padding. Raises Unsupported."""
    number = tokenizer.token_to_id(found.padding_token) if found.padding_token is not None else None
    number = found.padding_id if number is None else number
    if number is None:
        raise Unsupported("its files name no token to pad with")
    return {"direction": found.padding_side, "pad_id": number, "pad_token": found.padding_token or "[PAD]"}


def _mean(states: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """The mean of the vectors of the tokens that are no padding."""
    weights = mask.astype(np.float32)
    sums = np.matmul(weights[:, None, :], states)[:, 0, :]
    return sums / np.maximum(weights.sum(axis=1, keepdims=True), _SMALLEST)


def _first(states: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """The vector of the first token that is no padding."""
    return states[np.arange(len(states)), mask.argmax(axis=1)]
