"""Search of a user's own scope on MongoDB by PyMongo and NumPy alone: a product with a matrix that is kept in mind."""

from __future__ import annotations

from collections.abc import AsyncIterable, Set
from typing import Any

import numpy as np
from estate import DIMENSIONS, Floats
from mongo_load import Raw
from numpy.typing import NDArray

from muniment import access
from muniment_storage_mongo import records
from muniment_storage_mongo.schema import LANES, MEMORIES, PASSAGES, PROJECTS, SPACE_INDEX

BATCH = 1_000


class Plain:
    """What the process has in mind of the scope is good while the scope's revisions are the same."""

    def __init__(self, database: Raw, user: str, space: str) -> None:
        self._database = database
        self._user = user
        self._key = access.user_key(user)
        self._space = space
        self._seen: dict[int, int] = {}
        self._ids: list[str] = []
        self._matrix = np.zeros((0, DIMENSIONS), dtype=np.float32)

    async def search(self, query: Floats, limit: int) -> list[dict[str, Any]]:
        """The page by meaning."""
        lanes = await self._database[LANES].find({"scope_key": self._key}, {"_id": 0, "lane": 1, "rev": 1}).to_list()
        return await self._page(lanes, query, limit)

    async def search_beside(self, query: Floats, tags: Set[str], limit: int) -> list[dict[str, Any]]:
        """The page by meaning. With the revisions come, as for the storage, the user's projects and who holds a tag."""
        projects: list[dict[str, Any]] = [{"$match": {"owner": self._user}}, {"$project": {"_id": 1}}]
        tagged: dict[str, Any] = {"scope_key": {"$in": [self._key]}, "deleted": False, "tags": {"$in": sorted(tags)}}
        pipeline: list[dict[str, Any]] = [
            {"$match": {"scope_key": {"$in": [self._key]}}},
            {"$project": {"_id": 0, "scope_key": 1, "lane": 1, "rev": 1}},
            {"$unionWith": {"coll": PROJECTS, "pipeline": projects}},
            {
                "$unionWith": {
                    "coll": MEMORIES,
                    "pipeline": [{"$match": tagged}, {"$project": {"scope_key": 1, "tags": 1}}],
                }
            },
        ]
        found = await (await self._database[LANES].aggregate(pipeline, batchSize=10_000)).to_list()
        return await self._page([one for one in found if "lane" in one], query, limit)

    async def _page(self, lanes: list[dict[str, Any]], query: Floats, limit: int) -> list[dict[str, Any]]:
        seen = {one["lane"]: one["rev"] for one in lanes}
        if seen != self._seen:
            await self._read()
            self._seen = seen
        cosines = self._matrix @ query
        best = np.argpartition(cosines, -limit)[-limit:]
        page: list[str] = [self._ids[place] for place in best[np.argsort(-cosines[best])].tolist()]
        contents = self._database[MEMORIES].find({"_id": {"$in": page}}, records.MEMORY_FIELDS)
        found = {one["_id"]: one async for one in contents}
        return [found[one] for one in page]

    async def _read(self) -> None:
        """Every vector, and whose it is."""
        within = {"scope_key": self._key, "space": self._space}
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
