"""What the documents of earlier releases lack. Every step can be repeated, and taken by several processes at once."""

from __future__ import annotations

from typing import Any

from bson.objectid import ObjectId

from muniment_storage_mongo import gates
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.records import literal
from muniment_storage_mongo.schema import EMBEDDED_INDEX, MEMORIES, SPACES

_BATCH = 1_000
_EMBEDDED_IN: list[Document] = [
    {"$set": {"embedded_in": {"spaces": {"$ifNull": ["$embedded", []]}}}},
    {"$unset": ["embedded", "newest_space"]},
]


async def documents(database: Database) -> None:
    """Bring what is stored to the shape of this release."""
    await _memories(database)
    await _spaces(database)


async def _memories(database: Database) -> None:
    """Before version 3 the spaces that a memory is embedded in were a list, and the latest a field beside it."""
    memories = database.collection(MEMORIES)
    earlier: Document = {"deleted": {"$in": [False, True]}, "embedded_in": None}

    async def some() -> list[str]:
        found = memories.find(earlier, {"_id": 1}, hint=EMBEDDED_INDEX).limit(_BATCH)
        return [one["_id"] async for one in found]

    while ids := await database.read(some):
        condition = {"_id": {"$in": ids}, "embedded_in": None}
        await database.write(lambda condition=condition: memories.update_many(condition, _EMBEDDED_IN))


async def _spaces(database: Database) -> None:
    """Before version 3 a space had no gates and no times."""
    spaces = database.collection(SPACES)
    earlier: Document = {"registration": None}
    for one in await database.read(lambda: spaces.find(earlier, {"_id": 1}).to_list()):
        space: Any = one["_id"]

        async def work(session: Session, space: str = space) -> None:
            added = {"registration": literal(ObjectId()), "embedder": None, "activated_at": None}
            changed = [{"$set": {**added, "registered_at": "$$NOW"}}]
            done = await spaces.update_one({"_id": space, **earlier}, changed, session=session)
            if done.modified_count:
                await gates.make(database, session, space)

        await database.transaction(work)
