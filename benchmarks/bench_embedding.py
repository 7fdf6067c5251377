"""What an embedding costs: embed-local on an ONNX file, beside raw onnxruntime and beside sentence-transformers.

All three have the same weights and as many threads, in one process, and take turns within each round. Raw onnxruntime
does the same by hand, with the plainest code that is right: tokens, graph, mean, unit length, and for a batch texts
sorted by their tokens, SIZE at once. A batch is TEXTS texts from short to long, embedded whole. First vectors are those
of processes of their own, from their start. A figure is the median of ROUNDS rounds (FIRSTS processes), a ratio the
median of the rounds' own. MODEL names an exported directory; without it one is exported first.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import embedding_sides
import numpy as np
from embedding_sides import NAMES, OURS, RAW, TORCH

from muniment_embed_local.embedder import LocalEmbedder
from muniment_embed_local.export import export
from muniment_embed_local.options import Options
from muniment_embed_local.weights import locate

NAME = "all-MiniLM-L6-v2"
ROUNDS = int(os.environ.get("ROUNDS", "15"))
FIRSTS = int(os.environ.get("FIRSTS", "7"))
THREADS = int(os.environ.get("THREADS", str(Options().threads)))
TEXTS = 96
CALLS = {"short text": 20, "256 tokens": 4, "batch": 1}
WORDS = ["ledger", "harbour", "basalt", "orchard", "deploy", "v2.4.7", "snake_case", "meadow", "copper", "thistle"]
Work = Callable[[Sequence[str]], Awaitable[object]]
Rounds = Mapping[tuple[str, str], Sequence[float]]


def texts(seed: int) -> dict[str, list[str]]:
    """Texts of a round, by cell; no two are equal."""
    chance = random.Random(seed)

    def of(words: int) -> str:
        return f"{chance.randrange(10**6)} {' '.join(chance.choices(WORDS, k=words))}"

    return {
        "short text": [of(6) for _ in range(CALLS["short text"])],
        "256 tokens": [of(240) for _ in range(CALLS["256 tokens"])],
        "batch": [of(chance.choice((4, 8, 16, 32, 64, 100))) for _ in range(TEXTS)],
    }


async def main() -> None:
    """Export, measure, print."""
    own = None if "MODEL" in os.environ else Path(tempfile.mkdtemp(prefix="muniment-bench-"))
    try:
        if own is not None:
            export(f"local:{NAME}", own)
        directory = own or Path(os.environ["MODEL"])
        source = locate(NAME).directory
        assert source is not None, f"the weights of {NAME} are not installed"
        report(await rounds(directory, source), firsts(directory, source))
    finally:
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)


async def rounds(directory: Path, source: Path) -> Rounds:
    """Milliseconds by cell and side, a text or the whole batch, one figure a round."""
    ours = LocalEmbedder(str(directory), Options(engine="onnx", threads=THREADS))
    await ours.open()
    sides: Mapping[str, Work] = {
        RAW: embedding_sides.raw(directory, THREADS),
        OURS: ours.embed_passages,
        TORCH: embedding_sides.torch(source, THREADS),
    }
    await alike(sides)
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(-1, ROUNDS):
        for cell, made in texts(number).items():
            spent: defaultdict[str, list[float]] = defaultdict(list)
            for call in range(CALLS[cell]):
                part = made if cell == "batch" else [made[call]]
                for side in NAMES if call % 2 else NAMES[::-1]:
                    started = perf_counter()
                    await (ours.embed_query(part[0]) if side == OURS and cell != "batch" else sides[side](part))
                    spent[side].append((perf_counter() - started) * 1e3)
            if number >= 0:
                for side in NAMES:
                    found[cell, side].append(median(spent[side]))
    await ours.close()
    return found


async def alike(sides: Mapping[str, Work]) -> None:
    """All sides make the same vectors, or nothing here is worth a comparison."""
    made: list[Any] = [await work(texts(99)["batch"]) for work in sides.values()]
    for other in made[1:]:
        assert np.einsum("ij,ij->i", made[0], other).min() > 0.9999


def firsts(directory: Path, source: Path) -> Mapping[str, Sequence[float]]:
    """Seconds from the start of a process to its first vector, in turn."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    script = str(Path(__file__).with_name("embedding_sides.py"))
    for _ in range(FIRSTS):
        for side in NAMES:
            place = source if side == TORCH else directory
            started = perf_counter()
            subprocess.run([sys.executable, script, side, str(place), str(THREADS)], check=True, capture_output=True)
            found[side].append(perf_counter() - started)
    return found


def report(found: Rounds, first: Mapping[str, Sequence[float]]) -> None:
    """A line a cell: medians, p10 of ours and raw, and the ratios that the goals name."""
    print(f"{THREADS} threads, medians of {ROUNDS} rounds; ms a text, ms a batch of {TEXTS}, s to the first vector")
    print(f"{'':14}{'ours':>9}{'raw':>9}{'torch':>9}{'ours/raw':>10}{'torch/ours':>12}")
    for cell in CALLS:
        line(cell, {side: found[cell, side] for side in NAMES})
    line("first vector", first)
    single = ratio(found["short text", OURS], found["short text", RAW])
    fastest = min((RAW, TORCH), key=lambda side: median(found["batch", side]))
    batch = ratio(found["batch", fastest], found["batch", OURS])
    print(f"single text: {single:.2f} of raw onnxruntime (goal: at most 1.1)")
    print(f"batch: {batch:.2f} of the throughput of {fastest}, the faster one (goal: at least 0.95)")


def line(name: str, sides: Mapping[str, Sequence[float]]) -> None:
    """Medians, and the ratios round by round."""
    ours, raw, torch = sides[OURS], sides[RAW], sides[TORCH]
    figures = "".join(f"{median(one):>9.2f}" for one in (ours, raw, torch))
    print(f"{name:14}{figures}{ratio(ours, raw):>10.2f}{ratio(torch, ours):>12.2f}   p10 {low(ours)} {low(raw)}")


def ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """The median of the rounds' own."""
    return median(one / other for one, other in zip(ones, others, strict=True))


def low(figures: Sequence[float]) -> str:
    """The tenth percentile."""
    return f"{quantiles(figures, n=10)[0]:.2f}"


if __name__ == "__main__":
    asyncio.run(main())
