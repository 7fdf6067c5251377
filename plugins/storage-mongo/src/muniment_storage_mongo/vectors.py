"""The passages of memories, with their vectors: which there are, and how a transaction changes those of one memory."""

from __future__ import annotations

from collections.abc import Sequence

from muniment.ports import Passages
from muniment_storage_mongo import records
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.schema import PASSAGES


def of(scope_key: str, memory_id: str) -> Document:
    """All passages of a memory."""
    return {"scope_key": scope_key, "memory": memory_id}


async def drop(database: Database, session: Session, within: Document, passages: Passages | None) -> None:
    """Delete what ``within`` selects of a memory's passages, but for those that ``passages`` keeps."""
    condition = dict(within)
    if passages is not None:
        condition["$or"] = [{"space": {"$ne": passages.space}}, {"hash": {"$nin": sorted(kept(passages))}}]
    await database.collection(PASSAGES).delete_many(condition, session=session)


async def add(database: Database, session: Session, scope_key: str, memory_id: str, passages: Passages | None) -> None:
    """Store the new passages of a memory."""
    fresh = records.of_passages(scope_key, memory_id, passages)
    if fresh:
        await database.collection(PASSAGES).insert_many(fresh, session=session)


async def carry(database: Database, session: Session, within: Document, target: str) -> None:
    """Take every passage to another scope. Made anew there, since a shard key is not changed in many at once."""
    collection = database.collection(PASSAGES)
    carried = await collection.find(within, {"_id": 0}, session=session).to_list()
    if carried:
        await collection.delete_many(within, session=session)
        await collection.insert_many([{**one, "scope_key": target} for one in carried], session=session)


async def hashes(
    database: Database, session: Session, memories: Sequence[Document], space: str
) -> dict[str, frozenset[str]]:
    """The hashes that each of these memories has in the space, by its id."""
    condition = {
        "scope_key": {"$in": sorted({one["scope_key"] for one in memories})},
        "memory": {"$in": [one["_id"] for one in memories]},
        "space": space,
    }
    fields = {"_id": 0, "memory": 1, "hash": 1}
    found: dict[str, set[str]] = {one["_id"]: set() for one in memories}
    async for one in database.collection(PASSAGES).find(condition, fields, hint="memory", session=session):
        found[one["memory"]].add(one["hash"])
    return {memory_id: frozenset(of_one) for memory_id, of_one in found.items()}


async def has_kept(database: Database, session: Session, within: Document, passages: Passages) -> bool:
    """Whether what ``passages`` keeps of a memory is there: a space that is being dropped may have lost it."""
    wanted = sorted(kept(passages))
    if not wanted:
        return True
    condition = {**within, "space": passages.space, "hash": {"$in": wanted}}
    return await database.collection(PASSAGES).count_documents(condition, session=session) == len(wanted)


def kept(passages: Passages) -> frozenset[str]:
    """The hashes that come without a vector, since they are stored."""
    return passages.hashes - {one.hash for one in passages.vectors}
