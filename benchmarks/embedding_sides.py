"""The sides that embed-local is compared with, and each side's first vector as a program: SIDE DIRECTORY THREADS."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

OURS, RAW, TORCH = "embed-local", "onnxruntime", "sentence-transformers"
NAMES = (RAW, OURS, TORCH)
SIZE = 32
Work = Callable[[Sequence[str]], Awaitable[Any]]


def raw(directory: Path, threads: int) -> Work:
    """The ONNX file by hand, on the event loop's own thread."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.enable_truncation(json.loads((directory / "sentence_bert_config.json").read_text())["max_seq_length"])
    tokenizer.no_padding()
    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(
        str(directory / "onnx" / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )

    async def work(texts: Sequence[str]) -> Any:
        encoded = tokenizer.encode_batch(list(texts))
        order = sorted(range(len(texts)), key=lambda place: len(encoded[place].ids))
        vectors: Any = None
        for start in range(0, len(order), SIZE):
            places = order[start : start + SIZE]
            longest = max(len(encoded[place].ids) for place in places)
            ids = np.zeros((len(places), longest), dtype=np.int64)
            mask = np.zeros_like(ids)
            for row, place in enumerate(places):
                ids[row, : len(encoded[place].ids)] = encoded[place].ids
                mask[row, : len(encoded[place].ids)] = 1
            tokens = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            states = session.run(None, tokens)[0]
            made = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
            vectors = np.empty((len(texts), made.shape[1]), dtype=np.float32) if vectors is None else vectors
            vectors[places] = made / np.linalg.norm(made, axis=1, keepdims=True)
        return vectors

    return work


def torch(directory: Path, threads: int) -> Work:
    """The model by sentence-transformers, with its own batches."""
    import torch as library
    from sentence_transformers import SentenceTransformer

    library.set_num_threads(threads)
    loaded: Any = SentenceTransformer(str(directory), device="cpu", local_files_only=True)

    async def work(texts: Sequence[str]) -> Any:
        return loaded.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)

    return work


async def ours(directory: Path, threads: int) -> None:
    """The plugin's first vector."""
    from muniment_embed_local.embedder import LocalEmbedder
    from muniment_embed_local.options import Options

    embedder = LocalEmbedder(str(directory), Options(threads=threads))
    await embedder.open()
    await embedder.embed_query("first")
    await embedder.close()


if __name__ == "__main__":
    side, place, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if side == OURS:
        asyncio.run(ours(place, count))
    else:
        asyncio.run((raw if side == RAW else torch)(place, count)(["first"]))  # pyright: ignore[reportArgumentType]
