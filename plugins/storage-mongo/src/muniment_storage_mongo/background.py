"""Changes of a memory that are made in the background: only of the version that was read, and without a new one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.lanes import Lane, Lanes
from muniment_storage_mongo.schema import MEMORIES


class _Changed(Exception):
    """The memory is no longer as it was; nothing is stored."""


async def change(
    database: Database,
    lanes: Lanes,
    memory_id: str,
    version: int,
    changed: list[Document],
    then: Callable[[Session, str, Lane], Awaitable[None]] | None = None,
) -> bool:
    """Change a live memory if it is still at ``version``; whether it was.

    ``changed`` is a pipeline. ``then`` gets the transaction's session, the memory's scope key, and the lane.
    """
    condition = {"_id": memory_id, "version": version, "deleted": False}
    memories = database.collection(MEMORIES)
    found = await database.read(lambda: memories.find_one(condition, {"scope_key": 1}))
    if found is None:
        return False
    scope_key: str = found["scope_key"]
    with lanes.lane(scope_key) as lane:

        async def work(session: Session) -> bool:
            stamp = await lane.advance(database, session)
            pipeline = [*changed, {"$set": stamp}]
            done = await memories.update_one({**condition, "scope_key": scope_key}, pipeline, session=session)
            if not done.matched_count:
                raise _Changed
            if then is not None:
                await then(session, scope_key, lane)
            return True

        try:
            return await database.transaction(work)
        except _Changed:
            return False
