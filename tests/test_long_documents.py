"""Edits deep inside and near the top of a long document, with the real model on the real database."""

from __future__ import annotations

import random
import statistics
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from muniment.config import Settings
from muniment.engine import Engine
from muniment.models import CallContext, Hit, Principal, Receipt, SearchPage
from muniment.plugins import Plugins
from muniment.ports import Embedder, Vectors

ANN = CallContext(principal=Principal(user="ann"))
LENGTH = 13_000

SUBJECTS = ("The night shift", "A forklift driver", "The quality inspector", "Our carrier", "The planning office")
VERBS = ("counts", "labels", "stacks", "weighs", "photographs", "scans", "unloads", "re-packs")
OBJECTS = ("the pallets", "each crate of screws", "returned parcels", "steel drums", "the cable reels", "glass panes")
PLACES = ("at dock four", "near the ramp", "in the cold hall", "behind gate nine", "on the upper rack")
TIMES = ("before dawn", "every Tuesday", "after the inventory", "when the belt stops", "at the end of the month")

NEAR_THE_TOP = (
    480,
    "The veterinarian vaccinates our guard dogs against rabies. Puppies get a second injection after four weeks.",
    "immunising canines: when does a young hound need its next shot",
)
DEEP_INSIDE = (
    12_000,
    "The choir rehearses a requiem by Mozart in the canteen. Sopranos meet an hour before the tenors.",
    "singers practising classical music for a funeral",
)


def prose(seed: int, length: int) -> str:
    """Paragraphs of plain sentences about a warehouse, exactly ``length`` characters."""
    chance = random.Random(seed)
    text = ""
    while len(text) < length:
        sentence = " ".join(chance.choice(part) for part in (SUBJECTS, VERBS, OBJECTS, PLACES, TIMES))
        end = chance.choice((" ", " ", " ", "\n\n"))
        text += f"{sentence}, order {chance.randrange(100_000, 1_000_000)}.{end}"
    return text[:length]


class Counting:
    """The real embedder, with a count of the passages that it embeds."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.passages = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._embedder, name)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.passages += len(texts)
        return await self._embedder.embed_passages(texts)


@pytest.fixture
async def counting(tmp_path: Path) -> AsyncIterator[tuple[Engine, Counting]]:
    plugins = Plugins.load()
    settings = Settings.load({"data_dir": tmp_path})
    embedder = plugins.embedder(settings.embedder, settings)
    assert embedder is not None
    counting = Counting(embedder)
    engine = Engine(
        plugins.storage(settings.storage, settings),
        cast("Embedder", counting),
        embed_timeout=120,
        background=False,
    )
    async with engine:
        await engine.embeddings.space()
        yield engine, counting


async def search(engine: Engine, query: str) -> Sequence[Hit]:
    page = await engine.call("memory.search", {"query": query}, ANN)
    assert isinstance(page, SearchPage)
    assert page.degraded is None
    return page.items


async def write(engine: Engine, content: str) -> str:
    receipt = await engine.call("memory.write", {"content": content}, ANN)
    assert isinstance(receipt, Receipt)
    return receipt.id


def of(hits: Sequence[Hit], memory_id: str) -> Hit:
    return next(hit for hit in hits if hit.memory.id == memory_id)


async def test_a_patch_in_a_long_document_is_found_and_what_it_replaced_is_gone(
    counting: tuple[Engine, Counting],
) -> None:
    """12,000 and 500 characters in: found by meaning in other words; the old words match in no ranker any more."""
    engine, counter = counting
    text = prose(1, LENGTH)
    edited = await write(engine, text)
    others = [await write(engine, prose(seed, 3_000)) for seed in range(2, 8)]
    for offset, new, in_other_words in (DEEP_INSIDE, NEAR_THE_TOP):
        before = of(await search(engine, in_other_words), edited).meaning
        start = text.index(". ", offset) + 2
        old = text[start : text.index(".", start) + 1]
        number = old.rstrip(".").rsplit(" ", 1)[1]
        assert text.count(old) == text.count(f"order {number}.") == 1
        assert of(await search(engine, f"order {number}"), edited).words is not None
        counter.passages = 0
        await engine.call("memory.patch", {"id": edited, "old_string": old, "new_string": new}, ANN)
        text = text.replace(old, new)
        assert 1 <= counter.passages <= 5

        hits = await search(engine, in_other_words)
        after = of(hits, edited)
        assert after.meaning is not None
        assert after.meaning.rank == 1
        assert after.meaning.score > (before.score if before else 0.0) + 0.1
        assert after.words is None or after.words.score < 0.1  # stop words at the most
        assert hits[0].memory.id == edited
        assert {hit.memory.id for hit in hits} <= {edited, *others}
        old_words = [hit for hit in await search(engine, number) if hit.memory.id == edited and hit.words]
        assert old_words == []


async def test_an_edit_embeds_only_what_changed(counting: tuple[Engine, Counting]) -> None:
    """VEC-04 with the real model's own tokens: over 40 seeded edits the median is at most 2, the 95th percentile 5."""
    engine, counter = counting
    text = prose(9, LENGTH)
    memory = await write(engine, text)
    chance = random.Random(10)
    embedded: list[int] = []
    for position in (0, *(chance.randrange(LENGTH - 20) for _ in range(39))):
        new = text[:position] + f"note {chance.randrange(10_000)} " + text[position + 11 :]
        counter.passages = 0
        await engine.call("memory.update", {"id": memory, "content": new}, ANN)
        embedded.append(counter.passages)
        text = new
    assert statistics.median(embedded) <= 2
    assert sorted(embedded)[int(0.95 * len(embedded))] <= 5
    assert max(embedded) >= 1
