"""How fast a space is filled on PostgreSQL, beside its embedder alone: embed-local on an ONNX file.

MEMORIES memories (default 200) of some sixty words lack vectors. Each round fills a space of its own, as a swap, a
healing or `muniment reembed` does: leased, cut, embedded, stored; and has the embedder alone embed the same passages,
in portions of as many memories. The two take turns. A figure is the median of ROUNDS rounds, a ratio the median of the
rounds' own. MODEL names an exported directory; without it one is exported first.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from bench_embedding import NAME, WORDS

from muniment.engine import Engine, filling, spaces
from muniment.engine.cutting import cut
from muniment.engine.vectors import VectorCache, VectorSource
from muniment.models import CallContext, Principal
from muniment.ports import PluginContext
from muniment_embed_local.embedder import LocalEmbedder
from muniment_embed_local.export import export
from muniment_embed_local.options import Options
from muniment_storage_postgres.storage import PostgresStorage, create

MEMORIES = int(os.environ.get("MEMORIES", "200"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
OWNER = CallContext(principal=Principal(user="owner"))


async def main() -> None:
    """Write, then fill and embed in turn, and print."""
    place = Path(tempfile.mkdtemp(prefix="muniment-bench-"))
    place.chmod(0o755)
    model = Path(os.environ.get("MODEL", place / "model"))
    storage = create(PluginContext("embedded:", place))
    try:
        if not model.exists():
            export(f"local:{NAME}", model)
        contents = made()
        async with Engine(storage, None, background=False) as engine:
            for content in contents:
                await engine.call("memory.write", {"content": content}, OWNER)
        storage = create(PluginContext("embedded:", place))
        await storage.open()
        rates = [await one(storage, model, contents, number) for number in range(-1, ROUNDS)][1:]
        filled, alone = (median(side) for side in zip(*rates, strict=True))
        ratio = median(fill / own for fill, own in rates)
        print(f"{MEMORIES} memories, medians of {ROUNDS} rounds: {filled:.1f} passages a second, {alone:.1f} by the")
        print(f"embedder alone: {ratio:.2f} (goal: at least 0.9)")
    finally:
        await storage.close()
        shutil.rmtree(place, ignore_errors=True)


def made() -> list[str]:
    """Texts of a passage or two; no two are equal."""
    chance = random.Random(3)
    return [f"{number} {'. '.join(map(_sentence, [chance] * chance.randint(1, 12)))}" for number in range(MEMORIES)]


def _sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(6, 14)))


async def one(storage: PostgresStorage, model: Path, contents: list[str], number: int) -> tuple[float, float]:
    """Passages a second that fill a space of this round, and that its embedder makes alone."""
    embedder = LocalEmbedder(str(model), Options(engine="onnx", model_name=f"round-{number}"))
    await embedder.open()
    space = await spaces.register(storage, embedder)
    texts = [list((await cut(content, embedder, space.passage_tokens)).values()) for content in contents]
    passages = sum(map(len, texts))

    async def fill() -> None:
        work = filling.Filling(storage, VectorSource(embedder, VectorCache(0)), space)
        assert await work.fill() == len(contents)

    async def alone() -> None:
        for start in range(0, len(texts), filling.BATCH):
            portion = [text for found in texts[start : start + filling.BATCH] for text in found]
            await embedder.embed_passages(portion)

    sides = [fill, alone] if number % 2 else [alone, fill]
    rates: dict[object, float] = {}
    for side in sides:
        started = perf_counter()
        await side()
        rates[side] = passages / (perf_counter() - started)
    await embedder.close()
    return rates[fill], rates[alone]


if __name__ == "__main__":
    asyncio.run(main())
