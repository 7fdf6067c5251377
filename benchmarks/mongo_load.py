"""Fills a MongoDB of the benchmarks with memories in their order of arrival, as the storage writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from estate import Estate, Memory
from pymongo.asynchronous.database import AsyncDatabase

from muniment import access, lexical
from muniment_storage_mongo import records
from muniment_storage_mongo.schema import COLLECTIONS, LANES, MEMORIES, PASSAGES, WORDS_INDEX

BATCH = 1_000
_AT = datetime(2024, 1, 1, tzinfo=UTC)

Raw = AsyncDatabase[dict[str, Any]]


async def fill(database: Raw, estate: Estate, made: Sequence[Memory], space: str) -> None:
    """The memories, BATCH of a scope in each of its first lanes; the index of words comes last."""
    await database[MEMORIES].drop_index(WORDS_INDEX)
    terms = [records.of_terms(lexical.ANALYSER, one.terms) for one in estate.texts]
    stored: Counter[str] = Counter()
    for start in range(0, len(made), BATCH):
        memories: list[dict[str, Any]] = []
        passages: list[dict[str, Any]] = []
        for one in made[start : start + BATCH]:
            place = access.own_placement(one.owner)
            lane, revision = divmod(stored[place.scope_key], BATCH)
            stored[place.scope_key] += 1
            memories.append(
                {
                    "_id": one.id,
                    **records.of_placement(place),
                    **terms[one.text],
                    "embedded_in": {"spaces": [space]},
                    **{"content": estate.texts[one.text].content, "tags": one.tags},
                    **{"version": 1, "last_edited_by": one.owner},
                    **{"created_at": _AT, "updated_at": _AT, "deleted": False},
                    **{"lane": lane, "rev": revision + 1},
                }
            )
            of_memory = {"scope_key": place.scope_key, "memory": one.id, "space": space}
            passages += [
                {**of_memory, "hash": f"{part:032x}", "vector": records.of_vector(vector)}
                for part, vector in enumerate(one.vectors)
            ]
        await database[MEMORIES].insert_many(memories, ordered=False)
        await database[PASSAGES].insert_many(passages, ordered=False)
    lanes = [
        {"_id": f"{lane} {key}", "scope_key": key, "lane": lane, "rev": min(BATCH, count - lane * BATCH)}
        for key, count in stored.items()
        for lane in range(-(-count // BATCH))
    ]
    await database[LANES].insert_many(lanes)
    indexes = [index for one in COLLECTIONS if one.name == MEMORIES for index in one.indexes]
    await database[MEMORIES].create_indexes(indexes)
