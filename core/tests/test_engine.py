"""What the engine does when its embedder is slow, absent, broken or another one, and what observers see."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from muniment import lexical, operations
from muniment.agent_models import SectionReceipt
from muniment.engine import Engine, background, terms
from muniment.engine.cutting import cut
from muniment.errors import (
    ConfigurationError,
    EmbedderMismatch,
    EmbedderUnavailable,
    NotFound,
    StorageUnavailable,
    VersionConflict,
)
from muniment.lexical import ANALYSER, Terms
from muniment.models import (
    Agent,
    AuditRecord,
    CallContext,
    EmbeddingState,
    MemoryRecord,
    Principal,
    Receipt,
    SearchPage,
)
from muniment.ports import Space, Vector, Vectors
from muniment.reference import HashEmbedder, ReferenceData, ReferenceStorage

ANN = CallContext(principal=Principal(user="ann"))


class FlakyEmbedder(HashEmbedder):
    """Fails while ``down``, blocks while ``gate`` is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        await self.gate.wait()
        if self.down:
            raise EmbedderUnavailable
        return await super().embed_passages(texts)

    async def embed_query(self, text: str) -> Vector:
        await self.gate.wait()
        if self.down:
            raise EmbedderUnavailable
        return await super().embed_query(text)


async def write(engine: Engine, content: str) -> Receipt:
    receipt = await engine.call("memory.write", {"content": content}, ANN)
    assert isinstance(receipt, Receipt)
    return receipt


async def search(engine: Engine, query: str) -> SearchPage:
    page = await engine.call("memory.search", {"query": query}, ANN)
    assert isinstance(page, SearchPage)
    return page


def test_every_operation_has_a_handler() -> None:
    """An operation that is added to the registry alone is found here, not by a client."""
    engine = Engine(ReferenceStorage(), None)
    assert engine.operations == frozenset(operations.OPERATIONS)


async def test_an_unknown_operation_is_refused() -> None:
    """The refusal lists what there is."""
    async with Engine(ReferenceStorage(), None) as engine:
        with pytest.raises(NotFound, match=r"memory\.search"):
            await engine.call("memory.drop", {}, ANN)


async def test_without_an_embedder_words_answer_and_nothing_is_degraded() -> None:
    """`none` is a valid deployment."""
    async with Engine(ReferenceStorage(), None) as engine:
        assert (await write(engine, "the archive is in the cellar")).embedding is EmbeddingState.OFF
        page = await search(engine, "cellar")
        assert [hit.memory.content for hit in page.items] == ["the archive is in the cellar"]
        assert page.degraded is None
        assert page.items[0].meaning is None


async def test_a_write_survives_an_embedder_that_is_down_and_is_healed() -> None:
    """Pending, found by words and said to be degraded; then healed, and found by meaning too."""
    embedder = FlakyEmbedder()
    async with Engine(ReferenceStorage(), embedder, background=False) as engine:
        first = await write(engine, "before the outage")
        embedder.down = True
        receipt = await write(engine, "written during the outage")
        assert (first.embedding, receipt.embedding) == (EmbeddingState.READY, EmbeddingState.PENDING)
        page = await search(engine, "written outage")
        assert page.degraded is not None
        assert page.degraded.endswith(f"; answered from words and tags: {EmbedderUnavailable().message}")
        assert receipt.id in [hit.memory.id for hit in page.items]
        embedder.down = False
        assert await engine.embeddings.heal() == 1
        assert await engine.embeddings.heal() == 0
        page = await search(engine, "written outage")
        assert page.degraded is None
        healed = next(hit for hit in page.items if hit.memory.id == receipt.id)
        assert healed.meaning is not None


async def test_a_write_survives_an_embedder_that_turns_out_to_be_misconfigured() -> None:
    """A model that nobody knows is found out at its first use; the text is kept, and the search says why."""

    class Unknown(HashEmbedder):
        async def space(self) -> Space:
            raise ConfigurationError("There is no model no-such-model; correct its name.")

    async with Engine(ReferenceStorage(), Unknown(), background=False) as engine:
        assert (await write(engine, "kept all the same")).embedding is EmbeddingState.PENDING
        page = await search(engine, "kept")
        assert [hit.memory.content for hit in page.items] == ["kept all the same"]
        assert "no-such-model" in (page.degraded or "")


async def test_pending_memories_heal_by_themselves() -> None:
    """The background task heals as soon as the embedder is back, without being asked."""
    embedder = FlakyEmbedder()
    embedder.down = True
    storage = ReferenceStorage()
    async with Engine(storage, embedder) as engine:
        receipt = await write(engine, "to be healed")
        assert receipt.embedding is EmbeddingState.PENDING
        embedder.down = False
        await write(engine, "an announcement")
        for _ in range(1_000):
            if all(row.embedded for row in storage.data.memories.values()):
                break
            await asyncio.sleep(0.01)
        assert all(row.embedded for row in storage.data.memories.values())


async def test_a_slow_embedder_delays_a_write_only_so_long() -> None:
    """Past the time-out the write is stored as pending; a search says that the model is busy or loading."""
    embedder = FlakyEmbedder()
    embedder.gate.clear()
    async with Engine(ReferenceStorage(), embedder, embed_timeout=0.05, patience=0.05) as engine:
        receipt = await write(engine, "nobody waits for ever")
        assert receipt.embedding is EmbeddingState.PENDING
        page = await search(engine, "nobody")
        assert [hit.memory.id for hit in page.items] == [receipt.id]
        assert page.degraded is not None
        embedder.gate.set()


async def test_a_slow_failure_is_no_loading() -> None:
    """Why a model cannot be loaded is said, also where finding that out lasts longer than anybody waits."""
    embedder = FlakyEmbedder()
    async with Engine(ReferenceStorage(), embedder, background=False, patience=0.05) as engine:
        embedder.gate.clear()
        page = await search(engine, "nothing")
        assert "is still loading" in (page.degraded or "") or "is busy" in (page.degraded or "")
        embedder.down = True
        embedder.gate.set()
        await asyncio.sleep(0.05)
        embedder.gate.clear()
        page = await search(engine, "nothing")
        assert "is unavailable" in (page.degraded or "")
        embedder.gate.set()


async def test_vectors_that_come_late_are_dropped() -> None:
    """A memory that changed while its vectors were made keeps none of them."""
    embedder = FlakyEmbedder()
    storage = ReferenceStorage()
    async with Engine(storage, embedder, background=False) as engine:
        await engine.embeddings.space()
        embedder.down = True
        receipt = await write(engine, "the first text")
        embedder.down = False
        embedder.gate.clear()
        healing = asyncio.create_task(engine.embeddings.heal())
        await asyncio.sleep(0.01)
        await engine.call("memory.delete", {"id": receipt.id}, ANN)
        embedder.gate.set()
        assert await healing == 0
        assert storage.data.memories[receipt.id].passages == {}


async def test_another_model_under_the_same_name_is_refused() -> None:
    """Its probe vectors differ, so it is never mixed with what is stored; the right one still works."""

    class Changed(HashEmbedder):
        async def embed_passages(self, texts: Sequence[str]) -> Vectors:
            return np.roll(await super().embed_passages(texts), 1, axis=1)

    data = ReferenceData()
    async with Engine(ReferenceStorage(data), HashEmbedder(), background=False) as engine:
        await write(engine, "stored by the first model")
    async with Engine(ReferenceStorage(data), Changed(), background=False) as engine:
        with pytest.raises(EmbedderMismatch):
            await write(engine, "stored by the second model")
    assert len(data.memories) == 1
    async with Engine(ReferenceStorage(data), HashEmbedder(), background=False) as engine:
        assert (await write(engine, "again by the first")).embedding is EmbeddingState.READY


async def test_an_embedder_that_gives_nonsense_leaves_the_write_pending() -> None:
    """Not a number is never stored."""

    class Broken(HashEmbedder):
        async def embed_passages(self, texts: Sequence[str]) -> Vectors:
            made = await super().embed_passages(texts)
            return made * np.float32("nan") if len(texts) == 1 else made

    storage = ReferenceStorage()
    async with Engine(storage, Broken(), background=False) as engine:
        receipt = await write(engine, "one passage")
        assert receipt.embedding is EmbeddingState.PENDING
        assert storage.data.memories[receipt.id].passages == {}


async def test_terms_of_another_analyser_are_healed() -> None:
    """A memory that an older analyser indexed is found by words again, at the same version."""
    storage = ReferenceStorage()
    async with Engine(storage, None, background=False) as engine:
        receipt = await write(engine, "the archive is in the cellar")
        row = storage.data.memories[receipt.id]
        storage.data.memories[receipt.id] = replace(row, analyser="older", terms=Terms({"nothing": 1}, 1))
        assert (await search(engine, "cellar")).items == ()
        assert await engine.terms.heal() == 1
        assert await engine.terms.heal() == 0
        assert [hit.memory.version for hit in (await search(engine, "cellar")).items] == [1]


async def terms_heal(storage: ReferenceStorage, memory_id: str) -> None:
    """A memory has terms of this analyser some time after a start."""
    async with Engine(storage, None):
        for _ in range(1_000):
            if storage.data.memories[memory_id].analyser == ANALYSER:
                return
            await asyncio.sleep(0.01)
    pytest.fail("the terms are of another analyser still")


async def test_terms_heal_by_themselves_after_a_start() -> None:
    """The background task does it without being asked."""
    storage = ReferenceStorage()
    async with Engine(storage, None, background=False) as engine:
        receipt = await write(engine, "the archive is in the cellar")
    storage.data.memories[receipt.id] = replace(storage.data.memories[receipt.id], analyser="older")
    await terms_heal(storage, receipt.id)


async def test_terms_are_tried_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that was away for a moment leaves nothing old until the next start."""
    monkeypatch.setattr(background, "INTERVAL", 0.01)
    storage = ReferenceStorage()
    async with Engine(storage, None, background=False) as engine:
        receipt = await write(engine, "the archive is in the cellar")
    storage.data.memories[receipt.id] = replace(storage.data.memories[receipt.id], analyser="older")
    really, failures = storage.outdated_terms, iter([StorageUnavailable])

    async def outdated_terms(analyser: str, *, limit: int) -> Any:
        for failure in failures:
            raise failure
        return await really(analyser, limit=limit)

    monkeypatch.setattr(storage, "outdated_terms", outdated_terms)
    await terms_heal(storage, receipt.id)


@pytest.mark.parametrize("given", [None, [[1.0], [1.0, 2.0]], "text", [[1e300] * 64]])
@pytest.mark.parametrize("method", ["embed_passages", "embed_query"])
async def test_what_is_no_vector_is_not_used(monkeypatch: pytest.MonkeyPatch, method: str, given: Any) -> None:
    """Whatever an embedder gives instead."""

    async def broken(*_: Any) -> Any:
        return given

    embedder = HashEmbedder(64)
    async with Engine(ReferenceStorage(), embedder, background=False) as engine:
        await search(engine, "so that its space is known")
        monkeypatch.setattr(embedder, method, broken)
        receipt = await write(engine, "kept all the same")
        page = await search(engine, "kept")
    assert [hit.memory.id for hit in page.items] == [receipt.id]
    assert (receipt.embedding is EmbeddingState.PENDING) == (method == "embed_passages")
    assert ("not all usable" in (page.degraded or "")) == (method == "embed_query")


@pytest.mark.parametrize("turns", range(4))
async def test_an_engine_closes_at_any_moment(turns: int) -> None:
    """Also where something was announced to its background task in the same moment."""
    engine = Engine(ReferenceStorage(), HashEmbedder())
    await engine.open()
    await asyncio.sleep(0.05)
    engine.embeddings.pending.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    closing = asyncio.create_task(engine.close())
    await asyncio.wait([closing], timeout=10)
    assert closing.done()


class Panic(BaseException):
    """As libraries in Rust raise it."""


@pytest.mark.parametrize("error", [ValueError, OSError, asyncio.CancelledError, Panic])
@pytest.mark.parametrize("method", ["space", "count_tokens", "embed_passages", "embed_query"])
async def test_what_an_embedder_raises_is_told_as_unavailable(
    monkeypatch: pytest.MonkeyPatch, method: str, error: type[BaseException]
) -> None:
    """Whatever its author has not thought of: a write is stored, and a search answers by words."""

    async def broken(*_: Any) -> Any:
        raise error("thought of by nobody")

    embedder = HashEmbedder()
    async with Engine(ReferenceStorage(), embedder, background=False) as engine:
        if method != "space":
            await search(engine, "so that its space is known")
        monkeypatch.setattr(embedder, method, broken)
        receipt = await write(engine, "kept all the same")
        page = await search(engine, "kept")
    assert [hit.memory.id for hit in page.items] == [receipt.id]
    assert (receipt.embedding is EmbeddingState.PENDING) == (method != "embed_query")
    assert (f"failed with {error.__name__}" in (page.degraded or "")) == (method in ("space", "embed_query"))


async def test_terms_are_made_while_the_storage_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a short content, after the storage was asked; of a long one not before it is known who may change it."""
    order: list[str] = []
    really = lexical.analyse

    def analyse(text: str) -> Terms:
        order.append("analysed")
        return really(text)

    async def loading() -> str:
        order.append("asked")
        await asyncio.sleep(0.01)
        order.append("loaded")
        return "facts"

    monkeypatch.setattr(lexical, "analyse", analyse)
    assert await terms.analyse_beside("some words", loading()) == ("facts", really("some words"))
    assert order == ["asked", "analysed", "loaded"]
    for unmade in (terms.LONG_TEXT * "a", None):
        order.clear()
        assert await terms.analyse_beside(unmade, loading()) == ("facts", None)
        assert order == ["asked", "loaded"]


async def test_what_stops_an_update_stops_its_loading() -> None:
    """A refusal comes as it is, and who is cancelled leaves nothing that still waits for the storage."""

    async def refused() -> None:
        raise NotFound("not there")

    with pytest.raises(NotFound):
        await terms.analyse_beside("some words", refused())
    ended: list[str] = []

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("the loading")

    for turns in range(3):
        update = asyncio.create_task(terms.analyse_beside("some words", waiting()))
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        update.cancel()
        with pytest.raises(asyncio.CancelledError):
            await update
        assert ended.pop() == "the loading"


async def test_observers_see_what_was_committed_and_cannot_undo_it() -> None:
    """An observer that raises is logged; the write stands and the others are told."""
    seen: list[tuple[str, str]] = []

    def failing(receipt: Receipt, audit: AuditRecord) -> None:
        raise RuntimeError("observer")

    def watching(receipt: Receipt, audit: AuditRecord) -> None:
        seen.append((receipt.id, audit.action))

    async with Engine(ReferenceStorage(), None, observers=(failing, watching)) as engine:
        receipt = await write(engine, "observed")
        memory = await engine.call("memory.get", {"id": receipt.id}, ANN)
    assert isinstance(memory, MemoryRecord)
    assert seen == [(receipt.id, "memory.write")]


@pytest.mark.parametrize("limit", [1, 3, 16, 254])
async def test_passages_fit_the_embedder_whatever_the_text(limit: int) -> None:
    """No passage has more tokens than the limit; none is blank; in order they hold all the rest of the text."""
    embedder = HashEmbedder()
    words = " ".join(f"w{number}" for number in range(400))
    han = "".join(chr(0x4E00 + number) for number in range(500))
    text = f"{words}\n{'é' * 300}{han}\n\n\n{'; '.join(str(n) for n in range(300))}\n\nend."
    passages = await cut(text, embedder, limit)
    assert max(await embedder.count_tokens(list(passages.values()))) <= limit
    assert all(passage.strip() for passage in passages.values())
    assert limit < 16 or "".join("".join(passages.values()).split()) == "".join(text.split())
    hostile = await cut("word " * 300 + "👩‍👩‍👧" * 50 + "!" * 700 + "\n\n" * 20, embedder, limit)
    assert max(await embedder.count_tokens(list(hostile.values()))) <= limit


async def test_the_same_full_sync_twice_at_once_is_written_once() -> None:
    """The one that comes second finds what it wanted to write, and is no conflict; another payload still is one."""
    agent = CallContext(principal=Principal(user="ann", agent=Agent(name="ada", instance="1")))
    async with Engine(ReferenceStorage(), None, background=False) as engine:

        async def sync(text: str) -> SectionReceipt:
            payload = {"mode": "full", "runtime": "r", "sections": {"soul": {"value": text}}}
            receipt = await engine.call("section.sync", payload, agent)
            assert isinstance(receipt, SectionReceipt)
            return receipt

        receipts = await asyncio.gather(sync("curious"), sync("curious"))
        assert sorted(receipt.deduped for receipt in receipts) == [False, True]
        outcomes = await asyncio.gather(sync("brave"), sync("shy"), return_exceptions=True)
        (conflict,) = [outcome for outcome in outcomes if isinstance(outcome, VersionConflict)]
        assert "soul" in conflict.message
