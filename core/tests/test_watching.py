"""What a watch sees of an engine at work, and that nobody who calls can make it see a name of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from muniment.engine import Engine
from muniment.engine.watching import UNKNOWN, Part, Watch, Watched, together, unwatched, watched
from muniment.errors import MunimentError, NotFound, StorageUnavailable
from muniment.models import CallContext, Principal, SearchPage
from muniment.ports import BacklogStorage, Storage, TokenStorage
from muniment.reference import HashEmbedder, ReferenceStorage

ANN = CallContext(principal=Principal(user="ann"), surface="here", request_id="r1")

REFERENCE = ReferenceStorage()

Seen = tuple[Part, str, CallContext | None, str | None]


class Recorder:
    """Keeps what it sees, in the order in which it ended, with the code of what failed."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    @contextmanager
    def watch(self, part: Part, name: str, context: CallContext | None = None) -> Generator[None]:
        code = None
        try:
            yield
        except MunimentError as error:
            code = error.code
            raise
        finally:
            self.seen.append((part, name, context, code))

    def names(self, part: Part) -> list[str]:
        return [name for found, name, _, _ in self.seen if found is part]


class Broken(HashEmbedder):
    """Fails at everything."""

    async def embed_query(self, text: str) -> Any:
        raise StorageUnavailable


async def test_an_operation_is_seen_with_what_it_does() -> None:
    """Its name and its caller; within it the rankers, and each method of the storage and of the embedder. How much of
    the space is complete is known from an earlier search."""
    recorder = Recorder()
    async with Engine(ReferenceStorage(), HashEmbedder(), background=False, watch=recorder.watch) as engine:
        await engine.call("memory.write", {"content": "a lighthouse"}, ANN)
        await engine.call("memory.search", {"query": "lighthouse"}, ANN)
        recorder.seen.clear()
        await engine.call("memory.search", {"query": "lighthouse"}, ANN)

    assert recorder.seen[:5] == [
        (Part.EMBEDDER, "embed_query", None, None),
        (Part.STORAGE, "search", None, None),
        (Part.SEARCH, "meaning,words,tags", None, None),
        (Part.OPERATION, "memory.search", ANN, None),
        (Part.EMBEDDER, "close", None, None),
    ]


async def test_a_search_without_meaning_is_seen_as_one() -> None:
    """With no embedder the rankers are those that answered."""
    recorder = Recorder()
    async with Engine(ReferenceStorage(), None, background=False, watch=recorder.watch) as engine:
        page = await engine.call("memory.search", {"query": "lighthouse"}, ANN)

    assert isinstance(page, SearchPage)
    assert recorder.names(Part.SEARCH) == ["words,tags"]


async def test_a_refusal_leaves_by_its_exception() -> None:
    """A watch learns how the operation ended, and its caller is refused all the same."""
    recorder = Recorder()
    async with Engine(ReferenceStorage(), None, background=False, watch=recorder.watch) as engine:
        with pytest.raises(NotFound):
            await engine.call("memory.get", {"id": "none"}, ANN)

    assert (Part.OPERATION, "memory.get", ANN, "not_found") in recorder.seen


async def test_a_name_that_a_client_made_up_is_not_seen() -> None:
    """All operations that there are not are one name."""
    recorder = Recorder()
    async with Engine(ReferenceStorage(), None, background=False, watch=recorder.watch) as engine:
        for name in ("memory.drop", "x" * 100):
            with pytest.raises(NotFound):
                await engine.call(name, {}, ANN)

    assert recorder.names(Part.OPERATION) == [UNKNOWN, UNKNOWN]


async def test_what_is_watched_is_the_same_thing() -> None:
    """Answers, refusals and what is no coroutine are the subject's; a protocol finds it to be what it is."""
    recorder = Recorder()
    embedder = HashEmbedder()
    proxy = watched(embedder, Part.EMBEDDER, recorder.watch)
    storage = watched(ReferenceStorage(), Part.STORAGE, recorder.watch)

    assert (proxy.name, proxy.ready) == (embedder.name, embedder.ready)
    assert (await proxy.embed_query("text") == await embedder.embed_query("text")).all()
    assert isinstance(storage, Storage | TokenStorage)
    assert type(storage) is Watched
    with pytest.raises(StorageUnavailable):
        await watched(Broken(), Part.EMBEDDER, recorder.watch).embed_query("text")
    assert recorder.seen == [
        (Part.EMBEDDER, "embed_query", None, None),
        (Part.EMBEDDER, "embed_query", None, "storage_unavailable"),
    ]


def test_nobody_watching_costs_nothing() -> None:
    """There is no proxy, and one context for everything."""
    storage = ReferenceStorage()

    assert watched(storage, Part.STORAGE, unwatched) is storage
    assert unwatched(Part.STORAGE, "a") is unwatched(Part.OPERATION, "b")
    assert together() is unwatched


def test_watches_are_nested_in_their_order() -> None:
    """The first one is outermost, and one alone is itself."""
    order: list[str] = []

    def noting(who: str) -> Watch:
        @contextmanager
        def watch(part: Part, name: str, context: CallContext | None = None) -> Generator[None]:
            order.append(f"{who} in")
            yield
            order.append(f"{who} out")

        return watch

    first = noting("first")
    with together(first, noting("second"))(Part.SEARCH, "words,tags"):
        order.append("work")

    assert order == ["first in", "second in", "work", "second out", "first out"]
    assert together(first) is first


async def test_a_call_that_is_cancelled_ends_what_watches_it() -> None:
    """Nothing stays open."""
    recorder = Recorder()
    reached = asyncio.Event()

    class Stuck(ReferenceStorage):
        async def history(self, *_: Any, **__: Any) -> Any:
            reached.set()
            await asyncio.Event().wait()

    async with Engine(Stuck(), None, background=False, watch=recorder.watch) as engine:
        call = asyncio.create_task(engine.call("memory.history", {"id": "x"}, ANN))
        await reached.wait()
        call.cancel()
        await asyncio.wait({call})

    assert "history" in recorder.names(Part.STORAGE)
    assert recorder.names(Part.OPERATION) == ["memory.history"]


async def test_an_older_storage_counts_nothing() -> None:
    """A plugin of contract 1.0 has no ``backlog``; the engine says so instead of failing, watched or not."""

    class Older:
        def __getattr__(self, name: str) -> Any:
            if name == "backlog":
                raise AttributeError(name)
            return getattr(REFERENCE, name)

    older = cast(Storage, Older())
    assert not isinstance(older, BacklogStorage)
    for watch in (Recorder().watch, unwatched):
        async with Engine(older, None, background=False, watch=watch) as engine:
            assert await engine.backlog() is None
