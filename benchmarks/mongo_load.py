"""Fills a MongoDB of the benchmarks with one owner's memories, each of one passage, as the storage writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from estate import DIMENSIONS, Estate
from pymongo.asynchronous.database import AsyncDatabase

from muniment import access, lexical
from muniment.ports import Passages, PassageVector, Space
from muniment_storage_mongo import records
from muniment_storage_mongo.schema import COLLECTIONS, LANES, MEMORIES, PASSAGES, WORDS_INDEX

OWNER = "ann"
SPACE = Space("bench:384", "bench", "bench", DIMENSIONS, "mean", True, 256)
BATCH = 1_000

Raw = AsyncDatabase[dict[str, Any]]


async def fill(database: Raw, estate: Estate, count: int) -> None:
    """``count`` memories of OWNER, a batch in each of the scope's first lanes; the index of words comes last."""
    await database[MEMORIES].drop_index(WORDS_INDEX)
    place = access.own_placement(OWNER)
    at = datetime(2024, 1, 1, tzinfo=UTC)
    for lane, start in enumerate(range(0, count, BATCH)):
        memories: list[dict[str, Any]] = []
        passages: list[dict[str, Any]] = []
        for number in range(start, min(start + BATCH, count)):
            text = estate.texts[number % len(estate.texts)]
            memory = str(uuid4())
            memories.append(
                {
                    "_id": memory,
                    **records.of_placement(place),
                    **records.of_terms(lexical.ANALYSER, text.terms),
                    "embedded_in": {"spaces": [SPACE.id]},
                    **{"content": text.content, "tags": estate.tags(), "version": 1, "last_edited_by": OWNER},
                    **{"created_at": at, "updated_at": at, "deleted": False},
                    **{"lane": lane, "rev": number - start + 1},
                }
            )
            passages += records.of_passages(place.scope_key, memory, _passages(estate, text.topic))
        await database[MEMORIES].insert_many(memories)
        await database[PASSAGES].insert_many(passages)
        key = place.scope_key
        await database[LANES].insert_one({"_id": f"{lane} {key}", "scope_key": key, "lane": lane, "rev": len(memories)})
    indexes = [index for one in COLLECTIONS if one.name == MEMORIES for index in one.indexes]
    await database[MEMORIES].create_indexes(indexes)


def _passages(estate: Estate, topic: int) -> Passages:
    fresh: Sequence[PassageVector] = tuple(PassageVector(uuid4().hex, one) for one in estate.vectors(topic, 1))
    return Passages(SPACE.id, frozenset(one.hash for one in fresh), fresh, complete=True)
