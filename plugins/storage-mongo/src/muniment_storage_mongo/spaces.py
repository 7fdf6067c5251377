"""``muniment.ports.SpaceStorage`` on MongoDB: the registry of spaces; how one is filled is ``filling``'s.

Activations write every space's document, so of two at once the second begins again from what the first left, and its
time is the later one. A drop takes the passages away batch by batch, while others go on, and then ends behind closed
``gates`` in a transaction of its own, which keeps all that was registered unless it commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from bson.objectid import ObjectId
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from muniment.ports import Passages, Progress, RegisteredSpace, Space, Unembedded, Vectors
from muniment.ports.refusals import no_space
from muniment_storage_mongo import filling, gates, records
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.dropping import Stays, take_most, take_rest
from muniment_storage_mongo.lanes import Lanes
from muniment_storage_mongo.records import literal
from muniment_storage_mongo.schema import SPACES

_MOMENT = timedelta(milliseconds=1)
"""What the server's clock tells apart."""


class MongoSpaces:
    """The spaces' part of the storage."""

    _lanes: Lanes

    @property
    def _database(self) -> Database:
        raise NotImplementedError

    # ------------------------------------------------------------ the registry

    async def register_space(self, space: Space, probes: Vectors) -> Vectors:
        """Insert the space unless it is there; the stored vectors of its probe sentences."""
        database = self._database
        new = records.of_space(space, probes)
        stamped = [{"$replaceWith": {"$mergeObjects": [literal(new), {"registered_at": "$$NOW"}]}}]

        async def insert(session: Session) -> None:
            await database.collection(SPACES).find_one_and_update(
                {"_id": space.id, "registration": None},
                stamped,
                {"_id": 1},
                upsert=True,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            await gates.make(database, session, space.id)

        while True:  # another process may drop it in between
            stored = await database.read(lambda: database.collection(SPACES).find_one({"_id": space.id}))
            if stored is not None:
                return records.probes(stored)
            with suppress(DuplicateKeyError):  # another process was first; its vectors count
                await database.transaction(insert)

    async def list_spaces(self) -> Sequence[RegisteredSpace]:
        """In the order in which they were registered."""
        database = self._database
        fields = {"probes": 0}
        order = [("registered_at", 1), ("_id", 1)]
        found = await database.read(lambda: database.collection(SPACES).find({}, fields).sort(order).to_list())
        return [records.registered_space(one) for one in found]

    async def activate_space(self, space: str, embedder: str) -> bool:
        """At the server's time, or after the active one's where that is later."""
        database = self._database
        spaces = database.collection(SPACES)

        async def work(session: Session) -> bool:
            found = await _activated(database, session)
            if space not in found:
                raise no_space(space)
            latest = _latest(found)
            if latest is not None and found[space] == latest:
                return False
            await spaces.update_many({}, {"$inc": {"activations": 1}}, session=session)
            after = [] if latest is None else [latest + _MOMENT]
            changed = {"embedder": literal(embedder), "activated_at": {"$max": ["$$NOW", *after]}}
            await spaces.update_one({"_id": space}, [{"$set": changed}], session=session)
            return True

        return await database.transaction(work)

    async def drop_space(self, space: str) -> bool:
        """Passages first, then the registration; one that is activated meanwhile stays, and lacks what was taken."""
        database = self._database
        registration = await database.snapshot(lambda session: _droppable(database, session, space))

        async def check(session: Session) -> None:
            if registration is None or await _droppable(database, session, space) != registration:
                raise Stays

        async def end(session: Session) -> None:
            await check(session)
            await gates.delete(database, session, space)
            await gates.close_lanes(database, space)
            await take_rest(database, space, check)
            await database.collection(SPACES).delete_one({"_id": space}, session=session)

        try:
            await database.snapshot(check)
            await take_most(database, space, check)
            await database.transaction(end)
        except Stays:
            return False
        return True

    async def optimize(self) -> Sequence[str]:
        """Nothing: search is exact, and what it reads is in indexes that the server keeps in order by itself."""
        return ()

    # ------------------------------------------------------------ how a space fills

    async def space_progress(self, space: str) -> Progress:
        """Counted in one index."""
        return await filling.progress(self._database, space)

    async def unembedded(self, space: str, *, limit: int) -> Sequence[Unembedded]:
        """Live memories whose passages in the space are not complete, whoever works on them."""
        return await filling.unembedded(self._database, space, limit)

    async def lease_unembedded(
        self, space: str, *, after: str | None, limit: int, lease: timedelta
    ) -> Sequence[Unembedded]:
        """Those that nobody works on."""
        return await filling.lease(self._database, space, after=after, limit=limit, lease=lease)

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        """Store background vectors if the memory is still at this version; its lease ends."""
        return await filling.store_passages(self._database, self._lanes, memory_id, version, passages)


async def _activated(database: Database, session: Session) -> dict[str, datetime | None]:
    """When each space was activated."""
    found = database.collection(SPACES).find({}, {"activated_at": 1}, session=session)
    return {one["_id"]: one["activated_at"] async for one in found}


def _latest(activated: dict[str, datetime | None]) -> datetime | None:
    return max((at for at in activated.values() if at is not None), default=None)


async def _droppable(database: Database, session: Session, space: str) -> ObjectId | None:
    """The registration of a space that is not the active one; None for the active one, and for none."""
    found: Document | None = await database.collection(SPACES).find_one({"_id": space}, session=session)
    if found is None:
        return None
    latest = _latest(await _activated(database, session))
    return None if latest is not None and found["activated_at"] == latest else found["registration"]
