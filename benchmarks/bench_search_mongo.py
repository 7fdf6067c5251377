"""What a search of MongoDB costs at 10,000 readable passages, warm and cold, and get, create and patch.

Beside it, in turn within each round, PyMongo alone on the same documents. Warm: a query for the scope's revisions, one
product with the matrix that the process has, and the page's contents. Cold: the same vectors read in raw batches into a
matrix, the product, and the contents. Neither decides who may read, and neither asks for words. Writes are the same
statements in one transaction. The server is one of the benchmark's own. A ratio is the median of the rounds' own.
NumPy computes with one thread, as in ``muniment serve``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from estate import DIMENSIONS, Estate, Query
from mongo_load import OWNER, SPACE, Raw, fill
from mongo_writes import Bare, Pair, Writing
from numpy.typing import NDArray
from pymongo import AsyncMongoClient

from muniment import access, lexical, ranking
from muniment.ports import Audience, PluginContext, SearchQuery, Selector
from muniment_storage_mongo import records
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.schema import LANES, MEMORIES, PASSAGES, SPACE_INDEX
from muniment_storage_mongo.storage import MongoStorage, create

MEMORIES_READABLE = 10_000
ROUNDS = int(os.environ.get("ROUNDS", "15"))
WARM = 10
"""Warm searches of a round; one is cold."""
LIMIT = 10
BATCH = 1_000
DATABASE = "bench"
KEY = access.user_key(OWNER)


class Plain:
    """Search by PyMongo and numpy alone, for one who may read one scope."""

    def __init__(self, database: Raw) -> None:
        self._database = database
        self._seen: dict[int, int] = {}
        self._ids: list[str] = []
        self._matrix = np.zeros((0, DIMENSIONS), dtype=np.float32)

    async def search(self, query: NDArray[np.float32]) -> list[dict[str, Any]]:
        """The page, from what the process has if nothing changed."""
        lanes = await self._database[LANES].find({"scope_key": KEY}, {"_id": 0, "lane": 1, "rev": 1}).to_list()
        seen = {one["lane"]: one["rev"] for one in lanes}
        if seen != self._seen:
            await self._read()
            self._seen = seen
        cosines = self._matrix @ query
        best = np.argpartition(cosines, -LIMIT)[-LIMIT:]
        page: list[str] = [self._ids[place] for place in best[np.argsort(-cosines[best])].tolist()]
        contents = self._database[MEMORIES].find({"_id": {"$in": page}}, records.MEMORY_FIELDS)
        found = {one["_id"]: one async for one in contents}
        return [found[one] for one in page]

    async def _read(self) -> None:
        """Every vector, and whose it is."""
        within = {"scope_key": KEY, "space": SPACE.id}
        fields = {"_id": 0, "memory": 1, "vector": 1}
        passages = self._database[PASSAGES]
        await self._decode(passages.find_raw_batches(within, fields, hint=SPACE_INDEX, batch_size=BATCH))

    async def _decode(self, batches: AsyncIterable[Any]) -> None:
        """Raw batches of documents that are known to have one layout."""
        parts: list[NDArray[np.float32]] = []
        self._ids = []
        async for batch in batches:
            size = int.from_bytes(batch[:4], "little")
            table = np.frombuffer(batch, dtype=np.uint8).reshape(-1, size)
            at = batch.index(b"memory\0") + 11
            self._ids += [row.tobytes().decode() for row in table[:, at : at + 36]]
            parts.append(np.ascontiguousarray(table[:, -1 - 4 * DIMENSIONS : -1]).view("<f4"))
        self._matrix = np.concatenate(parts)


class Bench:
    """The sides on one server, and what each took."""

    def __init__(self, url: str, storage: MongoStorage, raw: Raw, queries: Sequence[Query]) -> None:
        self._url = url
        self._storage = storage
        self._raw = raw
        self._queries = queries
        self._plain = Plain(raw)
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
            lambda: self._plain.search(query.vector),
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
            plain = Plain(client[DATABASE])
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: self._ours(storage, by_meaning(query)),
                lambda: plain.search(query.vector),
            ]
            ours, raw = [await clocked(call) for call in calls[::order]][::order]
            return ours, raw

    async def _ours(self, storage: MongoStorage, query: SearchQuery) -> list[str]:
        return [one.memory.id for one in await storage.search(Audience(OWNER), Selector(), query)]

    async def writes(self, estate: Estate) -> None:
        """Get, create and patch, in turn."""
        writing = Writing(self._storage, Bare(self._raw), estate)
        await writing.start()
        for number in range(ROUNDS * 4 + 1):
            for pair in writing.pairs():
                times = await _both(pair, 1 if number % 2 else -1)
                if number:
                    self.spent[pair.name].append(times)

    async def agreed(self) -> None:
        """Both sides find the same."""
        for query in self._queries:
            plain = [one["_id"] for one in await self._plain.search(query.vector)]
            assert await self._ours(self._storage, by_meaning(query)) == plain


async def _both(pair: Pair, order: int) -> tuple[float, float]:
    ours, raw = [await clocked(call) for call in (pair.ours, pair.raw)[::order]][::order]
    return ours, raw


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
                await fill(client[DATABASE], estate, MEMORIES_READABLE)
                bench = Bench(url, storage, client[DATABASE], estate.queries(WARM))
                await bench.agreed()
                await bench.searches()
                await bench.writes(estate)
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
