"""Who may store vectors of a space: the lanes that are open to it, and the gates by which a lane is opened.

A transaction that stores passages takes a revision of a lane anyway, and the lane's document lists the spaces that it
is open to, so looking costs nothing. A lane that is not open yet is opened by a write of one of the space's gates, in
the same transaction. Whoever drops a space deletes all gates in one transaction, and before it commits closes the
lanes and takes away what they let through: who is in a lane is waited for, who comes to one that was closed conflicts
with its closing, and who tries to open one conflicts with the deletion of its gate. So when the deletion commits
nothing of the space is stored and nothing can come, and if it does not commit all is as it was.
"""

from __future__ import annotations

import random

from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.schema import GATES, LANES, OPEN_LANES_INDEX

COUNT = 64
"""Gates of a space: so many lanes can be opened to it at once."""
_BATCH = 1_000


async def make(database: Database, session: Session, space: str) -> None:
    """Make the gates of a space that is being registered."""
    gates = [{"_id": _key(number, space), "space": space, "passed": 0} for number in range(COUNT)]
    await database.collection(GATES).insert_many(gates, session=session)


async def open_lane(database: Database, session: Session, lane: str, space: str) -> bool:
    """Open a lane that the transaction has advanced in; False where there is no such space."""
    gate = {"_id": _key(random.randrange(COUNT), space)}
    passed = await database.collection(GATES).update_one(gate, {"$inc": {"passed": 1}}, session=session)
    if not passed.matched_count:
        return False
    await database.collection(LANES).update_one({"_id": lane}, {"$addToSet": {"spaces": space}}, session=session)
    return True


async def delete(database: Database, session: Session, space: str) -> None:
    """Let nobody open a lane any more, if the transaction commits, nor until it ends."""
    await database.collection(GATES).delete_many({"space": space}, session=session)


async def close_lanes(database: Database, space: str) -> None:
    """Close every lane, batch by batch, each as soon as whoever is in it has committed."""
    lanes = database.collection(LANES)
    condition: Document = {"spaces": space}

    async def some() -> list[str]:
        found = lanes.find(condition, {"_id": 1}, hint=OPEN_LANES_INDEX).limit(_BATCH)
        return [one["_id"] async for one in found]

    while ids := await database.read(some):
        closing: Document = {"_id": {"$in": ids}}
        await database.write(lambda closing=closing: lanes.update_many(closing, {"$pull": {"spaces": space}}))


def _key(number: int, space: str) -> str:
    return f"{number} {space}"
