"""Whether an engine can serve: by a storage that answers, is away or hangs, and an embedder in each state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from muniment.engine import Engine, readiness
from muniment.engine.embeddings import EmbedderState
from muniment.engine.readiness import Readiness, StorageState
from muniment.errors import EmbedderUnavailable, StorageUnavailable
from muniment.models import CallContext, Principal
from muniment.ports import StoredReceipt, Vector, Vectors
from muniment.reference import HashEmbedder, ReferenceStorage

ANN = CallContext(principal=Principal(user="ann"))


class Away(ReferenceStorage):
    """Counts how often it is asked; fails or hangs when told."""

    asked = 0
    error: Exception | None = None
    hangs = False

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        self.asked += 1
        self.reached.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.error:
            raise self.error
        return await super().find_receipt(principal, key)


class Loading(HashEmbedder):
    """Answers once it is let go, and fails while it is down."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.down = False

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        await self.gate.wait()
        if self.down:
            raise EmbedderUnavailable
        return await super().embed_passages(texts)

    async def embed_query(self, text: str) -> Vector:
        if self.down:
            raise EmbedderUnavailable
        return await super().embed_query(text)


@pytest.fixture(autouse=True)
def looked_at_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is kept, unless a test says so."""
    monkeypatch.setattr(readiness, "KEPT_SECONDS", 0.0)


async def test_a_storage_that_answers_is_ready() -> None:
    """With the facts that it tells of itself."""
    async with Engine(ReferenceStorage(), None, background=False) as engine:
        found = await engine.readiness()

    assert found == Readiness(StorageState.REACHABLE, EmbedderState.OFF, {"server": "in memory"})
    assert found.ready


@pytest.mark.parametrize("error", [StorageUnavailable(), RuntimeError("secret")])
async def test_a_storage_that_fails_is_not_ready_until_it_is_back(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it fails with, whose text is not repeated."""
    storage = Away()
    async with Engine(storage, None, background=False) as engine:
        storage.error = error
        found = await engine.readiness()
        assert (found.ready, found.storage, found.facts) == (False, "unreachable", {})
        storage.error = None
        assert (await engine.readiness()).ready
    assert "secret" not in caplog.text


async def test_a_storage_that_hangs_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for longer than its time."""
    monkeypatch.setattr(readiness, "ANSWER_SECONDS", 0.01)
    storage = Away()
    storage.hangs = True
    async with Engine(storage, None, background=False) as engine, asyncio.timeout(20):
        assert not (await engine.readiness()).ready


async def test_a_storage_that_cannot_be_interrupted_holds_up_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is asked is given up without waiting for that, and nothing else is asked until it is over."""
    monkeypatch.setattr(readiness, "ANSWER_SECONDS", 0.01)
    go_on = asyncio.Event()

    class Stubborn(Away):
        async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
            self.asked += 1
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                await go_on.wait()
                raise
            return None

    storage = Stubborn()
    async with Engine(storage, None, background=False) as engine, asyncio.timeout(20):
        for _ in range(3):
            assert not (await engine.readiness()).ready
        assert storage.asked == 1
        go_on.set()
        monkeypatch.setattr(readiness, "ANSWER_SECONDS", 10.0)
        while not (await engine.readiness()).ready:
            continue
    assert storage.asked == 2


async def test_one_look_answers_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who ask at once, and those who ask while it is good: strangers cannot keep the storage busy."""
    monkeypatch.setattr(readiness, "KEPT_SECONDS", 3_600.0)
    storage = Away()
    async with Engine(storage, None, background=False) as engine:
        await asyncio.gather(*(engine.readiness() for _ in range(50)))
        await engine.readiness()

    assert storage.asked == 1


async def test_who_stops_waiting_ends_no_look_of_others() -> None:
    """A probe that hangs up takes nothing from the next one."""
    storage = Away()
    storage.hangs = True
    async with Engine(storage, None, background=False) as engine:
        first, second = (asyncio.create_task(engine.readiness()) for _ in range(2))
        await storage.reached.wait()
        first.cancel()
        await asyncio.wait({first})
        assert not second.done()
        assert storage.asked == 1
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_the_states_of_an_embedder() -> None:
    """Loading until it told its space; unavailable after a use that failed, until one succeeds; ready all the same."""
    embedder = Loading()
    async with Engine(ReferenceStorage(), embedder, background=False, patience=0.01, embed_timeout=0.01) as engine:

        async def state() -> EmbedderState:
            found = await engine.readiness()
            assert found.ready
            return found.embedder

        assert await state() == "loading"
        await engine.call("memory.search", {"query": "x"}, ANN)
        assert await state() == "loading"
        embedder.gate.set()
        await engine.embeddings.space()
        assert await state() == "ready"
        embedder.down = True
        await engine.call("memory.search", {"query": "x"}, ANN)
        assert await state() == "unavailable"
        embedder.down = False
        await engine.call("memory.search", {"query": "x"}, ANN)
        assert await state() == "ready"


async def test_an_embedder_that_never_loaded_is_unavailable() -> None:
    """It failed before it told its space."""
    embedder = Loading()
    embedder.gate.set()
    embedder.down = True
    async with Engine(ReferenceStorage(), embedder, background=False) as engine:
        await engine.call("memory.write", {"content": "text"}, ANN)
        assert (await engine.readiness()).embedder == "unavailable"
