"""How a space is filled: a portion at a time, by several at once, past texts that no embedder takes, and to the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, cast

import numpy as np
import pytest

from muniment.engine import Engine, filling, spaces
from muniment.engine.cutting import cut, cut_all
from muniment.engine.filling import Filling
from muniment.engine.vectors import VectorCache, VectorSource
from muniment.errors import EmbedderUnavailable, InvalidInput
from muniment.models import CallContext, Principal
from muniment.ports import Passages, PassageVector, Storage, Vectors
from muniment.reference import HashEmbedder, ReferenceData, ReferenceStorage

ANN = CallContext(principal=Principal(user="ann"))


class Counting(HashEmbedder):
    """Notes what it is asked for; ``before`` is awaited with each batch of passages."""

    def __init__(self, dimensions: int = 16, passage_tokens: int = 40) -> None:
        super().__init__(dimensions, passage_tokens)
        self.batches: list[list[str]] = []
        self.counted = 0
        self.before: Callable[[Sequence[str]], Any] = lambda texts: None

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        self.counted += 1
        return await super().count_tokens(texts)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        waiting = self.before(texts)
        if waiting is not None:
            await waiting
        return await super().embed_passages(texts)


class Refusing(Counting):
    """Does not take a text with a certain word, by ``error``; ``down`` it takes none."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.down = False
        self._error = error

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        made = await super().embed_passages(texts)
        if self.down:
            raise EmbedderUnavailable
        if any("indigestible" in text for text in texts):
            raise InvalidInput("text", "it is not taken") if self._error is InvalidInput else self._error()
        return made


async def written(storage: ReferenceStorage, *contents: str) -> list[str]:
    """The ids of memories that have no vectors."""
    async with Engine(storage, None, background=False) as engine:
        receipts = [await engine.call("memory.write", {"content": content}, ANN) for content in contents]
    return [receipt.model_dump()["id"] for receipt in receipts]


async def filling_of(storage: Storage, embedder: Counting, **settings: Any) -> Filling:
    """What fills the embedder's space, its probes not counted."""
    space = await spaces.register(storage, embedder)
    embedder.batches.clear()
    return Filling(storage, VectorSource(embedder, VectorCache(0)), space, **settings)


async def assert_whole(storage: ReferenceStorage, embedder: Counting) -> None:
    """Every live memory has exactly its passages, with their vectors."""
    space = await embedder.space()
    for row in storage.data.memories.values():
        texts = await cut(row.content, embedder, space.passage_tokens)
        mine = {key: vector for (of, key), vector in row.passages.items() if of == space.id}
        assert mine.keys() == texts.keys()
        assert space.id in row.embedded
        for key, text in texts.items():
            np.testing.assert_allclose(mine[key], embedder.vector(text), atol=1e-6)


def long(number: int, length: int) -> str:
    """A content of so many characters, no two passages alike."""
    return "".join(f"w{number:03}n{word:04} " for word in range(length // 10 + 1))[:length]


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until it holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def paragraphs(number: int, count: int) -> str:
    """A content of about so many passages, all its own."""
    return "\n\n".join(f"Note {number}, paragraph {part}. " + f"word{number}x{part} " * 30 for part in range(count))


async def test_all_passages_of_a_portion_are_embedded_at_once() -> None:
    """And cut with as few questions; what is there already is not embedded again."""
    storage, embedder = ReferenceStorage(), Counting()
    await written(storage, *(paragraphs(number, 3) for number in range(10)))
    work = await filling_of(storage, embedder, batch=5)

    embedder.counted = 0
    assert await work.fill() == 10
    assert len(embedder.batches) == 2
    assert embedder.counted <= 2 * 3
    await assert_whole(storage, embedder)
    embedder.batches.clear()
    assert await work.fill() == 0
    assert embedder.batches == []


async def test_many_contents_are_cut_as_each_alone() -> None:
    """Also where units, or passages, must be halved."""
    embedder = Counting()
    contents = [paragraphs(1, 3), "", " \n ", "é" * 300, "one", "word " * 300 + "!" * 700 + "\n\n" * 20]
    for limit in (1, 3, 16, 40):
        assert await cut_all(contents, embedder, limit) == [await cut(content, embedder, limit) for content in contents]


async def test_while_a_portion_is_embedded_the_one_before_is_stored() -> None:
    """And the one after it is leased."""
    storage, embedder = ReferenceStorage(), Counting()
    await written(storage, *(paragraphs(number, 1) for number in range(4)))
    work = await filling_of(storage, embedder, batch=1)
    third, go_on = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        third.set()
        await go_on.wait()

    embedder.before = lambda texts: held() if len(embedder.batches) == 3 else None
    running = asyncio.create_task(work.fill())
    await third.wait()
    await until(lambda: sum(bool(row.embedded) for row in storage.data.memories.values()) == 2)
    await until(lambda: len(storage.data.leases) == 2)
    go_on.set()
    assert await running == 4


async def test_what_is_held_in_memory_is_bounded_by_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many memories are leased at once; one that is longer still goes alone."""
    monkeypatch.setattr(filling, "PORTION_CHARACTERS", 4_000)
    storage, embedder = ReferenceStorage(), Counting()
    lengths = [500] * 9 + [9_000] + [3_000] * 3
    await written(storage, *(long(number, length) for number, length in enumerate(lengths)))
    work = await filling_of(storage, embedder)

    assert await work.fill() == len(lengths)
    sizes = sorted(sum(map(len, batch)) for batch in embedder.batches)
    assert sizes[-2] <= 4_000 < sizes[-1] < 9_100
    assert len(sizes) < len(lengths)
    await assert_whole(storage, embedder)


async def test_two_that_fill_at_once_share_the_work() -> None:
    """Each passage is embedded by one of them."""
    data = ReferenceData()
    await written(ReferenceStorage(data), *(paragraphs(number, 2) for number in range(30)))
    embedders = [Counting(), Counting()]
    works = [await filling_of(ReferenceStorage(data), embedder, batch=3) for embedder in embedders]

    completed = await asyncio.gather(*(work.fill() for work in works))
    assert min(completed) > 0
    assert sum(completed) == 30
    embedded = [text for embedder in embedders for batch in embedder.batches for text in batch]
    assert len(embedded) == len(set(embedded))
    await assert_whole(ReferenceStorage(data), embedders[0])


@pytest.mark.parametrize("error", [InvalidInput, EmbedderUnavailable])
async def test_a_text_that_is_not_taken_holds_nothing_up(error: type[Exception]) -> None:
    """However it is refused: all others are filled, and of its own memory all other passages. It is not tried again and
    again, but it is once it changed."""
    storage, embedder = ReferenceStorage(), Refusing(error)
    bad = f"{paragraphs(1, 2)}\n\nindigestible " + "stuff " * 30
    ids = await written(storage, *(paragraphs(number, 2) for number in range(2, 6)), bad)
    work = await filling_of(storage, embedder)

    assert await work.fill() == 4
    assert work.aside == 1
    row = storage.data.memories[ids[-1]]
    assert 0 < len(row.passages) < len(await cut(bad, embedder, 40))
    embedder.batches.clear()
    assert await work.fill() == 0
    assert embedder.batches == []

    async with Engine(storage, None, background=False) as engine:
        await engine.call("memory.patch", {"id": ids[-1], "old_string": "indigestible", "new_string": "good"}, ANN)
    assert await work.fill() == 1
    assert work.aside == 0
    await assert_whole(storage, embedder)


async def test_an_outage_gives_back_what_was_leased() -> None:
    """Whoever comes next need not wait; and while it lasts nothing more is leased."""
    storage, embedder = ReferenceStorage(), Refusing(InvalidInput)
    await written(storage, *(paragraphs(number, 1) for number in range(6)))
    work = await filling_of(storage, embedder, batch=2)
    embedder.down = True
    with pytest.raises(EmbedderUnavailable):
        await work.fill()
    assert storage.data.leases == {}
    embedder.batches.clear()
    with pytest.raises(EmbedderUnavailable):
        await work.fill()
    assert embedder.batches == [[spaces.PROBES[0]]]

    other = Counting()
    assert await (await filling_of(storage, other)).fill() == 6
    embedder.down = False
    assert await work.fill() == 0


@pytest.mark.parametrize("outage", [True, False])
async def test_what_others_completed_meanwhile_is_not_given_back(outage: bool) -> None:
    """A lease that ran out is nobody's to end; what another one stored stays."""
    data = ReferenceData()
    await written(ReferenceStorage(data), f"{paragraphs(1, 2)}\n\nindigestible " + "stuff " * 30)
    slow, gate = Refusing(InvalidInput), asyncio.Event()
    held = await filling_of(ReferenceStorage(data), slow, lease=timedelta(seconds=0.2))
    slow.before = lambda texts: gate.wait()
    filling = asyncio.create_task(held.fill())
    await asyncio.sleep(0.3)
    assert await (await filling_of(ReferenceStorage(data), Counting())).fill() == 1
    slow.down = outage
    gate.set()
    await asyncio.wait([filling])
    assert isinstance(filling.exception(), EmbedderUnavailable) == outage
    await assert_whole(ReferenceStorage(data), Counting())


async def test_what_was_set_aside_and_is_gone_is_forgotten() -> None:
    """A search that counted it would call a space whole that is not."""
    storage, embedder = ReferenceStorage(), Refusing(InvalidInput)
    ids = await written(storage, "indigestible " + "stuff " * 30)
    work = await filling_of(storage, embedder, lease=timedelta(seconds=0.2))
    assert await work.fill() == 0
    assert work.aside == 1
    await asyncio.sleep(0.25)
    assert (await work.fill(), work.aside) == (0, 1)
    async with Engine(storage, None, background=False) as engine:
        await engine.call("memory.delete", {"id": ids[0], "version": 1}, ANN)
    await asyncio.sleep(1.0)
    assert (await work.fill(), work.aside) == (0, 0)


async def test_an_outage_in_the_middle_keeps_what_was_stored() -> None:
    """The rest comes with the next call."""
    storage, embedder = ReferenceStorage(), Refusing(InvalidInput)
    await written(storage, *(paragraphs(number, 1) for number in range(6)))
    work = await filling_of(storage, embedder, batch=2)

    def third(texts: Sequence[str]) -> None:
        embedder.down = len(embedder.batches) >= 3

    embedder.before = third
    with pytest.raises(EmbedderUnavailable):
        await work.fill()
    assert (await storage.space_progress(work.space.id)).complete == 4
    assert storage.data.leases == {}
    embedder.before = lambda texts: None
    embedder.down = False
    assert await work.fill() == 2


async def test_who_is_interrupted_leaves_only_leases_behind() -> None:
    """Others work on the rest meanwhile, and on what it was at once its leases have run out."""
    now = ReferenceStorage().clock()
    data = ReferenceData()
    storage = ReferenceStorage(data, clock=lambda: now)
    await written(storage, *(paragraphs(number, 1) for number in range(5)))
    embedder = Counting()
    work = await filling_of(storage, embedder, batch=2)
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    embedder.before = lambda texts: hang()
    running = asyncio.create_task(work.fill())
    await reached.wait()
    await until(lambda: len(data.leases) == 4)
    running.cancel()
    await asyncio.wait([running])

    other = await filling_of(storage, Counting())
    assert await other.fill() == 1
    now += timedelta(seconds=61)
    assert await other.fill() == 4


async def test_what_is_no_longer_leased_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedder so slow that a lease is over before its portion's turn does nobody's work a second time."""
    storage, embedder = ReferenceStorage(), Counting()
    await written(storage, *(paragraphs(number, 1) for number in range(3)))
    work = await filling_of(storage, embedder)
    monkeypatch.setattr(filling, "LEASE_USED", 0.0)
    assert await work.fill() == 0
    assert embedder.batches == []


class Older:
    """A storage of contract 1.1, which has no registry of spaces and gives no leases."""

    def __init__(self, storage: ReferenceStorage) -> None:
        self._storage = storage

    async def register_space(self, *given: Any) -> Any:
        return await self._storage.register_space(*given)

    async def unembedded(self, space: str, *, limit: int) -> Any:
        return await self._storage.unembedded(space, limit=limit)

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        return await self._storage.store_passages(memory_id, version, passages)


async def test_a_storage_of_an_older_contract_is_filled_too() -> None:
    """Each memory once, past those that cannot be embedded, and to the end."""
    storage, embedder = ReferenceStorage(), Refusing(InvalidInput)
    contents = [paragraphs(number, 1) for number in range(7)]
    await written(storage, *(f"indigestible {number}" for number in range(3)), *contents)
    work = await filling_of(cast("Storage", Older(storage)), embedder, batch=2)

    assert await work.fill() == 7
    assert work.aside == 3
    stored = [text for batch in embedder.batches for text in batch if "indigestible" not in text]
    assert len(set(stored)) == 7
    assert await work.fill() == 0


class StoresNothing(ReferenceStorage):
    """Says that it stored vectors, and did not."""

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        self.data.leases.pop((passages.space, memory_id), None)
        return True


async def test_a_storage_that_keeps_nothing_is_not_filled_for_ever() -> None:
    """A round that finds as much as the one before it is the last."""
    storage, embedder = StoresNothing(), Counting()
    await written(storage, *(paragraphs(number, 1) for number in range(4)))
    work = await filling_of(storage, embedder, batch=1)
    async with asyncio.timeout(20):
        await work.fill()


class NotesPassages(ReferenceStorage):
    """Notes how many vectors come for each memory."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors: dict[str, int] = {}

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        self.vectors[memory_id] = len(passages.vectors)
        return await super().store_passages(memory_id, version, passages)


async def test_only_new_vectors_are_stored() -> None:
    """A memory that has a passage already is not sent it again because another one lacks it."""
    storage, embedder = NotesPassages(), Counting()
    begun, other = await written(storage, "the same text", "the same text")
    work = await filling_of(storage, embedder)
    ((key, text),) = (await cut("the same text", embedder, 40)).items()
    vector = PassageVector(key, embedder.vector(text))
    await storage.store_passages(begun, 1, Passages(work.space.id, frozenset({key}), (vector,), complete=False))

    assert await work.fill() == 2
    assert storage.vectors == {begun: 0, other: 1}


async def test_memories_that_change_meanwhile_keep_no_late_vectors() -> None:
    """They are found again, and get those of their present text."""
    storage, embedder = ReferenceStorage(), Counting()
    ids = await written(storage, *(paragraphs(number, 1) for number in range(4)))
    work = await filling_of(storage, embedder)

    async def edit() -> None:
        embedder.before = lambda texts: None
        async with Engine(storage, None, background=False) as engine:
            await engine.call("memory.update", {"id": ids[0], "content": paragraphs(9, 2)}, ANN)
            await engine.call("memory.delete", {"id": ids[1]}, ANN)

    embedder.before = lambda texts: edit()
    completed = await work.fill() + await work.fill()
    assert completed == 3
    assert storage.data.memories[ids[1]].passages == {}
    del storage.data.memories[ids[1]]
    await assert_whole(storage, embedder)
