"""How an embedder gets its space, what a swap looks like from outside, and what is remembered of vectors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from muniment.engine import Engine, background, completeness
from muniment.engine.completeness import notice
from muniment.engine.embeddings import EmbedderState
from muniment.engine.space_registry import standings
from muniment.engine.vectors import VectorCache, VectorSource
from muniment.errors import ConfigurationError, EmbedderMismatch, EmbedderUnavailable, InvalidInput
from muniment.models import CallContext, EmbeddingState, Principal, Receipt, SearchPage
from muniment.ports import Outdated, Progress, Vector, Vectors
from muniment.reference import HashEmbedder, ReferenceData, ReferenceStorage

ANN = CallContext(principal=Principal(user="ann"))


class Recording(HashEmbedder):
    """Notes the passages that it embeds."""

    def __init__(self, dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self.embedded: list[str] = []

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.embedded.extend(texts)
        return await super().embed_passages(texts)


class OtherWeights(HashEmbedder):
    """Has the name and the dimensions of another model, and other vectors."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return np.roll(await super().embed_passages(texts), 1, axis=1)


class Asked(ReferenceStorage):
    """Counts how often it is asked for the progress of a space."""

    asked = 0

    async def space_progress(self, space: str) -> Progress:
        self.asked += 1
        return await super().space_progress(space)


class Older(ReferenceStorage):
    """A storage of contract 1.1, as far as the engine can tell."""

    lease_unembedded = None  # type: ignore[assignment]


async def write(engine: Engine, content: str) -> Receipt:
    receipt = await engine.call("memory.write", {"content": content}, ANN)
    assert isinstance(receipt, Receipt)
    return receipt


async def search(engine: Engine, query: str) -> SearchPage:
    page = await engine.call("memory.search", {"query": query}, ANN)
    assert isinstance(page, SearchPage)
    return page


async def stored(data: ReferenceData, embedder: HashEmbedder | None, *contents: str) -> None:
    """Memories written through an engine with this embedder."""
    async with Engine(ReferenceStorage(data), embedder, background=False) as engine:
        for content in contents:
            await write(engine, content)


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until it holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


# ---------------------------------------------------------------- the space


@pytest.mark.parametrize(("dimensions", "kept"), [(7, False), (8, True), (4_096, True), (4_097, False)])
async def test_dimensions_that_no_storage_keeps_are_refused_before_anything_is_registered(
    dimensions: int, kept: bool
) -> None:
    """By the embedder's name, its dimensions and what can be kept."""
    data = ReferenceData()
    async with Engine(ReferenceStorage(data), HashEmbedder(dimensions), background=False) as engine:
        if kept:
            assert (await engine.embeddings.space()).dimensions == dimensions
        else:
            with pytest.raises(ConfigurationError, match=rf"hash:{dimensions}.* 8 to 4096"):
                await engine.embeddings.space()
    assert len(data.spaces) == kept


async def test_a_serving_engine_makes_its_embedders_space_the_active_one(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so where that changes it: what it was, what it is, and how to go back."""
    data = ReferenceData()
    caplog.set_level(logging.INFO, "muniment")
    await stored(data, HashEmbedder(64), "one")
    assert [record.levelname for record in caplog.records] == ["INFO"]
    caplog.clear()
    await stored(data, HashEmbedder(64), "two")
    assert caplog.records == []
    await stored(data, HashEmbedder(16), "three")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    for said in ("hash:16:254", "hash:64:254", "embedder hash:64", "configure that embedder and restart", "prune"):
        assert said in record.getMessage()
    active = {space: row.registered.embedder for space, row in data.spaces.items()}
    assert active == {"hash:64:254": "hash:64", "hash:16:254": "hash:16"}
    assert await ReferenceStorage(data).drop_space("hash:16:254") is False


async def test_an_embedder_that_is_refused_is_told_to_who_serves() -> None:
    """Right after the start, once: a state of its own, a sentence that says what to do, and no second try."""
    data = ReferenceData()
    await stored(data, HashEmbedder(), "one")
    embedder = OtherWeights()
    async with Engine(ReferenceStorage(data), embedder) as engine, asyncio.timeout(20):
        refusal = await engine.embeddings.refused()
        assert "restore that model, or give the new one a name of its own" in refusal.message
        assert (await engine.readiness()).embedder is EmbedderState.MISMATCH
        for _ in range(2):
            with pytest.raises(EmbedderMismatch, match="restore that model"):
                await search(engine, "one")
    (row,) = data.memories.values()
    assert np.allclose(next(iter(row.passages.values())), HashEmbedder().vector("one"))


async def test_nobody_is_told_of_an_embedder_that_is_what_it_was() -> None:
    """Who waits for a refusal waits for ever."""
    async with Engine(ReferenceStorage(), HashEmbedder(), background=False) as engine:
        refused = asyncio.create_task(engine.embeddings.refused())
        await write(engine, "one")
        assert not refused.done()
        refused.cancel()


async def test_the_model_is_loaded_while_terms_are_healed() -> None:
    """What the background task does first keeps nobody waiting for the embedder."""
    held = asyncio.Event()

    class SlowTerms(ReferenceStorage):
        async def outdated_terms(self, analyser: str, *, limit: int) -> Sequence[Outdated]:
            await held.wait()
            return []

    async with Engine(SlowTerms(), HashEmbedder()) as engine:
        await until(lambda: engine.embeddings.state is EmbedderState.READY)
        held.set()


# ---------------------------------------------------------------- a swap, seen by searches


async def test_a_swap_is_told_with_the_share_that_is_done() -> None:
    """Words find all of it meanwhile; healing ends it; the old space is as it was."""
    data = ReferenceData()
    await stored(data, HashEmbedder(64), *(f"tower number{number}" for number in range(7)))
    old = {row.id: dict(row.passages) for row in data.memories.values()}
    async with Engine(ReferenceStorage(data), HashEmbedder(16), background=False) as engine:
        page = await search(engine, "tower")
        assert page.degraded == "reembedding 0%"
        assert len(page.items) == 7
        assert not any(hit.meaning for hit in page.items)
        await write(engine, "tower number8")
        assert await engine.embeddings.heal() == 7
        page = await search(engine, "tower")
        assert page.degraded is None
        assert all(hit.meaning for hit in page.items)
    for memory, passages in old.items():
        assert passages.items() <= data.memories[memory].passages.items()


def test_the_share_is_rounded_down_and_leaves_out_what_cannot_be_embedded() -> None:
    """100% would say that nothing is missing; and what nobody works on is not being embedded."""
    assert notice(Progress(43, 99)) == "reembedding 43%"
    assert notice(Progress(999, 1_000)) == "reembedding 99%"
    assert notice(Progress(1_000, 1_000)) is None
    assert notice(Progress(0, 0)) is None
    assert notice(Progress(998, 1_000), aside=2) is None
    assert notice(Progress(997, 1_000), aside=2) == "reembedding 99%"


async def test_an_outage_during_a_swap_is_told_beside_it() -> None:
    """Both reasons."""

    class Down(HashEmbedder):
        async def embed_query(self, text: str) -> Vector:
            raise EmbedderUnavailable("It is down; start it.")

    data = ReferenceData()
    await stored(data, HashEmbedder(64), "one")
    async with Engine(ReferenceStorage(data), Down(16), background=False) as engine:
        said = "reembedding 0%; the embedder is unavailable; answered from words and tags: It is down; start it."
        assert (await search(engine, "one")).degraded == said


async def test_searches_of_a_whole_space_ask_nothing_of_the_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, when it is entered; the background task looks after it, however old the answer is."""
    monkeypatch.setattr(completeness, "REFRESH_SECONDS", 0.0)
    storage = Asked()
    async with Engine(storage, HashEmbedder()) as engine:
        await write(engine, "one")
        for _ in range(20):
            assert (await search(engine, "one")).degraded is None
    assert storage.asked == 1


async def test_searches_of_a_space_that_fills_ask_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most as often as an answer is good, and also where nothing looks after it."""
    storage = Asked()
    async with Engine(storage, None, background=False) as engine:
        await write(engine, "without vectors")
    async with Engine(storage, HashEmbedder(), background=False) as engine:
        monkeypatch.setattr(completeness, "REFRESH_SECONDS", 3_600.0)
        for _ in range(20):
            assert (await search(engine, "one")).degraded == "reembedding 0%"
        assert storage.asked == 1
        async with Engine(storage, HashEmbedder(), background=False) as other:
            assert await other.embeddings.heal() == 1
        assert (await search(engine, "one")).degraded == "reembedding 0%"
        monkeypatch.setattr(completeness, "REFRESH_SECONDS", 0.0)
        # Each finds what the one before it has asked.
        said = [(await search(engine, "one")).degraded for _ in range(3)]
        assert (said[0], said[-1]) == ("reembedding 0%", None)
        await stored(storage.data, None, "another one without vectors")
        said = [(await search(engine, "one")).degraded for _ in range(3)]
        assert (said[0], said[-1]) == (None, "reembedding 50%")


async def test_a_write_that_is_left_pending_is_told_at_once() -> None:
    """By the next search, however lately the storage was asked."""

    class Moody(HashEmbedder):
        down = False

        async def embed_passages(self, texts: Sequence[str]) -> Vectors:
            if self.down:
                raise EmbedderUnavailable
            return await super().embed_passages(texts)

    embedder = Moody()
    async with Engine(ReferenceStorage(), embedder, background=False) as engine:
        await write(engine, "one")
        assert (await search(engine, "one")).degraded is None
        embedder.down = True
        assert (await write(engine, "two")).embedding is EmbeddingState.PENDING
        assert (await search(engine, "one")).degraded == "reembedding 50%"
        embedder.down = False
        assert await engine.embeddings.heal() == 1
        assert (await search(engine, "one")).degraded is None


async def test_a_swap_ends_by_itself() -> None:
    """From none to an embedder, and from one to another, in the background."""
    data = ReferenceData()
    await stored(data, None, *(f"note {number}" for number in range(5)))
    for embedder in (HashEmbedder(16), HashEmbedder(8)):
        space = (await embedder.space()).id
        async with Engine(ReferenceStorage(data), embedder):
            await until(lambda space=space: all(space in row.embedded for row in data.memories.values()))
    async with Engine(ReferenceStorage(data), None, background=False) as engine:
        page = await search(engine, "note")
        assert (page.degraded, len(page.items)) == (None, 5)


async def test_an_outage_is_healed_as_soon_as_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background finds that out by itself; until then neither a write nor a search waits for the embedder."""
    monkeypatch.setattr(background, "INTERVAL", 3_600.0)
    monkeypatch.setattr(background, "SOON", 0.05)
    monkeypatch.setattr(background, "LATER", 0.1)
    embedder = Recording()
    down, refused = False, 0

    async def embed_passages(texts: Sequence[str]) -> Vectors:
        nonlocal refused
        if down:
            refused += 1
            raise EmbedderUnavailable
        return await HashEmbedder.embed_passages(embedder, texts)

    embedder.embed_passages = embed_passages  # type: ignore[method-assign]
    storage = ReferenceStorage()
    async with Engine(storage, embedder) as engine, asyncio.timeout(20):
        await engine.embeddings.space()
        down = True
        receipts = [await write(engine, f"note {number}") for number in range(30)]
        assert {receipt.embedding for receipt in receipts} == {EmbeddingState.PENDING}
        page = await search(engine, "note")
        assert page.degraded is not None
        assert "unavailable" in page.degraded
        assert refused < 5
        assert not any(row.embedded for row in storage.data.memories.values())
        down = False
        await until(lambda: all(row.embedded for row in storage.data.memories.values()))


@pytest.mark.parametrize("background", [True, False])
async def test_a_space_that_is_pruned_while_a_server_uses_it(background: bool) -> None:
    """The server goes on: a write registers the space again and has its vectors, what was there gets them anew, and the
    space that was made active elsewhere stays the active one."""
    data = ReferenceData()
    async with Engine(ReferenceStorage(data), HashEmbedder(64), background=background) as engine:
        first = await write(engine, "the lighthouse")
        space = (await engine.embeddings.space()).id
        other = ReferenceStorage(data)
        await stored(data, HashEmbedder(96), "the other")
        assert await other.drop_space(space)

        receipt = await write(engine, "the harbour")
        assert receipt.embedding is EmbeddingState.READY
        if not background:
            assert await engine.embeddings.heal() == 2
        async with asyncio.timeout(20):
            await until(lambda: all(space in row.embedded for row in data.memories.values()))
        page = await search(engine, "the lighthouse")
        assert page.items[0].memory.id == first.id
        assert page.items[0].meaning is not None
        edited = await engine.call("memory.patch", {"id": first.id, "old_string": "the", "new_string": "a"}, ANN)
        assert isinstance(edited, Receipt)
        assert edited.embedding is EmbeddingState.READY
    standing = await standings(other)
    assert [(one.space.dimensions, one.active) for one in standing] == [(96, True), (64, False)]


async def test_an_outage_that_a_search_meets_first_is_noticed_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing pending the background asks the embedder all the same."""
    monkeypatch.setattr(background, "INTERVAL", 3_600.0)
    monkeypatch.setattr(background, "SOON", 0.05)
    monkeypatch.setattr(background, "LATER", 0.1)
    embedder, down = HashEmbedder(64), False

    async def embed_query(text: str) -> Vector:
        if down:
            raise EmbedderUnavailable
        return await HashEmbedder.embed_query(embedder, text)

    embedder.embed_query = embed_query  # type: ignore[method-assign]
    async with Engine(ReferenceStorage(), embedder) as engine, asyncio.timeout(20):
        await write(engine, "note")
        await asyncio.sleep(0.2)
        down = True
        assert (await search(engine, "note")).degraded is not None
        down = False
        while (await search(engine, "note")).degraded is not None:  # noqa: ASYNC110 - it says so to nobody
            await asyncio.sleep(0.01)


async def test_an_older_storage_serves_as_ever() -> None:
    """Nothing is said of a share that it cannot count, and healing heals."""
    data = ReferenceData()
    await stored(data, None, "one", "two")
    async with Engine(Older(data), HashEmbedder(), background=False) as engine:
        assert (await search(engine, "one")).degraded is None
        assert await engine.embeddings.heal() == 2
        assert all(hit.meaning for hit in (await search(engine, "one two")).items)
    assert data.leases == {}


# ---------------------------------------------------------------- what is not taken, and what is remembered


async def test_a_text_that_the_embedder_does_not_take_is_kept_and_found_by_its_words() -> None:
    """A write of it is pending, and a query of it is answered from words, with the reason."""

    class Picky(HashEmbedder):
        async def embed_passages(self, texts: Sequence[str]) -> Vectors:
            self.check(*texts)
            return await super().embed_passages(texts)

        async def embed_query(self, text: str) -> Vector:
            self.check(text)
            return await super().embed_query(text)

        def check(self, *texts: str) -> None:
            if any("bad" in text for text in texts):
                raise InvalidInput("text", "it is not taken")

    async with Engine(ReferenceStorage(), Picky(), background=False) as engine:
        assert (await write(engine, "bad text")).embedding is EmbeddingState.PENDING
        page = await search(engine, "bad")
        assert len(page.items) == 1
        assert "the embedder does not take this query; answered from words and tags" in (page.degraded or "")
        assert engine.embeddings.state is EmbedderState.READY
        assert await engine.embeddings.heal() == 0
        assert (await search(engine, "text")).degraded is None


async def test_identical_passages_are_embedded_once_a_space() -> None:
    """By writes, and by what fills a space."""
    embedder, storage = Recording(), ReferenceStorage()
    await stored(storage.data, None, "the same text", "the same text", "another text")
    async with Engine(storage, embedder, background=False) as engine:
        await engine.embeddings.space()
        embedder.embedded.clear()
        await write(engine, "the same text")
        await write(engine, "the same text")
        assert await engine.embeddings.heal() == 3
        await write(engine, "another text")
    assert sorted(embedder.embedded) == ["another text", "the same text"]
    vectors = {vector.tobytes() for row in storage.data.memories.values() for vector in row.passages.values()}
    assert len(vectors) == 2


def test_what_is_remembered_is_bounded() -> None:
    """By bytes; what was not used for longest goes first, and none is a bound too."""
    one, two, three = (np.full(100, number, dtype=np.float32) for number in range(3))
    cache = VectorCache(2 * (one.nbytes + 250))
    cache.put("space", "one", one)
    cache.put("space", "two", two)
    assert cache.get("space", "one") is one
    cache.put("space", "three", three)
    assert [cache.get("space", key) is not None for key in ("one", "two", "three")] == [True, False, True]
    assert cache.get("other", "one") is None
    assert len(cache) == 2
    nothing = VectorCache(0)
    nothing.put("space", "one", one)
    assert len(nothing) == 0


async def test_a_remembered_vector_keeps_nothing_else() -> None:
    """Not the batch that it came in."""
    cache = VectorCache()
    embedder = HashEmbedder(64)
    space = await embedder.space()
    source = VectorSource(embedder, cache)
    await source.of_passages(space, {"a": "one", "b": "two"})
    kept = cache.get(space.id, "a")
    assert kept is not None
    assert kept.base is None


async def test_a_query_vector_that_is_no_number_is_not_searched() -> None:
    """The answer says that meaning is left out."""

    class Nan(HashEmbedder):
        async def embed_query(self, text: str) -> Vector:
            return np.full(64, np.nan, dtype=np.float32)

    async with Engine(ReferenceStorage(), Nan(), background=False) as engine:
        await write(engine, "one")
        page = await search(engine, "one")
        assert "not all usable" in (page.degraded or "")
        assert len(page.items) == 1
        assert engine.embeddings.state is EmbedderState.UNAVAILABLE
