"""What a search of MongoDB costs at 10,000 readable passages, warm and cold.

Beside it, in turn within each round, PyMongo alone on the same documents. Warm: a query for the scope's revisions, one
product with the matrix that the process has, and the page's contents. Cold: the same vectors read in raw batches into a
matrix, the product, and the contents. Neither decides who may read, and neither asks for words. The server is one of
the benchmark's own. A ratio is the median of the rounds' own.
NumPy computes with one thread, as in ``muniment serve``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from estate import DIMENSIONS, Estate, Floats, Query, memories
from mongo_load import Raw, fill
from mongo_search import Plain
from pymongo import AsyncMongoClient

from muniment import lexical, ranking
from muniment.ports import Audience, PluginContext, SearchQuery, Selector, Space
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.storage import MongoStorage, create

MEMORIES_READABLE = 10_000
ROUNDS = int(os.environ.get("ROUNDS", "15"))
WARM = 10
"""Warm searches of a round; one is cold."""
LIMIT = 10
DATABASE = "bench"
OWNER = "ann"
SPACE = Space("bench:384", "bench", "bench", DIMENSIONS, "mean", True, 256)


class Bench:
    """The sides on one server, and what each took."""

    def __init__(self, url: str, storage: MongoStorage, raw: Raw, queries: Sequence[Query]) -> None:
        self._url = url
        self._storage = storage
        self._raw = raw
        self._queries = queries
        self._plain = Plain(raw, OWNER, SPACE.id)
        self.spent: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    async def searches(self) -> None:
        """All rounds; the first does not count."""
        for number in range(ROUNDS + 1):
            order = 1 if number % 2 else -1
            cold = await self._cold(self._queries[number % len(self._queries)], order)
            warm = [await self._warm(one, order) for one in self._queries[:WARM]]
            if number:
                self.spent["search by meaning, cold"].append(cold)
                for name, pick in (("search by meaning, warm", 0), ("meaning, words and a tag, warm", 1)):
                    ours, plain = zip(*((one[pick], one[2]) for one in warm), strict=True)
                    self.spent[name].append((median(ours), median(plain)))

    async def _warm(self, query: Query, order: int) -> tuple[float, float, float]:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: self._ours(self._storage, by_meaning(query)),
            lambda: self._ours(self._storage, hybrid(query)),
            lambda: self._plain.search(query.vector, LIMIT),
        ]
        times = [await clocked(call) for call in calls[::order]]
        ours, whole, plain = times[::order]
        return ours, whole, plain

    async def _cold(self, query: Query, order: int) -> tuple[float, float]:
        """The first search of a fresh client that is connected."""
        async with AsyncExitStack() as stack:
            storage = create(PluginContext(self._url, Path(tempfile.gettempdir())))
            await storage.open()
            stack.push_async_callback(storage.close)
            client = await stack.enter_async_context(AsyncMongoClient[dict[str, Any]](self._url, tz_aware=True))
            await client.admin.command("ping")
            plain = Plain(client[DATABASE], OWNER, SPACE.id)
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: self._ours(storage, by_meaning(query)),
                lambda: plain.search(query.vector, LIMIT),
            ]
            ours, raw = [await clocked(call) for call in calls[::order]][::order]
            return ours, raw

    async def _ours(self, storage: MongoStorage, query: SearchQuery) -> list[str]:
        return [one.memory.id for one in await storage.search(Audience(OWNER), Selector(), query)]

    async def agreed(self) -> None:
        """Both sides find the same."""
        for query in self._queries:
            plain = [one["_id"] for one in await self._plain.search(query.vector, LIMIT)]
            assert await self._ours(self._storage, by_meaning(query)) == plain


async def clocked(call: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds of one call."""
    began = perf_counter()
    await call()
    return (perf_counter() - began) * 1e3


def hybrid(query: Query) -> SearchQuery:
    """As the engine hands it to a storage, where words and tags come in one text."""
    text = f"{query.words} {query.tag}"
    terms, tags = lexical.query_terms(text), ranking.query_tags(text)
    return SearchQuery(terms, tags, query.vector, SPACE.id, ranking.Fusion.weighted, None, 0, LIMIT)


def by_meaning(query: Query) -> SearchQuery:
    """The search without words and tags."""
    return replace(hybrid(query), terms={}, tags=frozenset())


def one_vector(estate: Estate) -> Callable[[int], Floats]:
    """Each memory is one passage."""
    return lambda text: estate.vectors(estate.texts[text].topic, 1)


async def main() -> None:
    """Load, ask, print."""
    estate = Estate()
    with ReplicaSet() as running:
        url = running.url(DATABASE)
        storage = create(PluginContext(url, running.directory))
        async with AsyncMongoClient[dict[str, Any]](url, tz_aware=True, w="majority") as client:
            await storage.open()
            try:
                await storage.register_space(SPACE, np.eye(DIMENSIONS, dtype=np.float32)[:1])
                made = memories(estate, {OWNER: MEMORIES_READABLE}, 0, seed=1, vectors=one_vector(estate))
                await fill(client[DATABASE], estate, made, SPACE.id)
                bench = Bench(url, storage, client[DATABASE], estate.queries(WARM))
                await bench.agreed()
                await bench.searches()
                report(bench.spent)
            finally:
                await storage.close()


def report(spent: dict[str, list[tuple[float, float]]]) -> None:
    """A line for each kind of call."""
    print(f"{MEMORIES_READABLE:,} readable passages, medians of {ROUNDS} rounds; both sides find the same")
    print(f"{'':<32}{'ours ms':>9}{'raw ms':>9}{'ratio':>9}")
    for name, pairs in spent.items():
        ours, raw = (median(times) for times in zip(*pairs, strict=True))
        ratio = median(mine / theirs for mine, theirs in pairs)
        print(f"{name:<32}{ours:>9.2f}{raw:>9.2f}{ratio:>9.2f}")


if __name__ == "__main__":
    asyncio.run(main())
