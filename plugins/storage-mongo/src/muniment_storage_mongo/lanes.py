"""The revisions of a scope: what makes a cache of its vectors exact, whoever writes and whatever crashes.

A scope has a few *lanes*, each a document with a revision. A transaction that changes what a search sees takes the next
revision of one lane, writes it into what it changes, and commits both or neither. Two transactions that take the same
lane conflict, so the revisions of a lane are without gaps and in the order of their commits; different writers take
different lanes, so they do not wait for each other. In any snapshot the lanes therefore say exactly what is in it, and
what a reader has not seen is what bears a higher revision of a lane than it knows. No clock is asked.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from pymongo import ReturnDocument

from muniment import access
from muniment.ports import Audience
from muniment_storage_mongo import projects
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.schema import LANES, PROJECTS

COUNT = 64
"""Lanes of a scope: so many writers of one scope can commit at once."""
_BATCH = 10_000
"""Lanes of one reply."""

Revisions: TypeAlias = Mapping[int, int]
"""The revision of each lane of a scope; a lane that is missing is at 0."""


class Lanes:
    """The lanes that this process is writing in, so that its own writers take different ones."""

    def __init__(self) -> None:
        self._first = random.randrange(COUNT)
        self._taken: set[tuple[str, int]] = set()

    @contextmanager
    def lane(self, scope_key: str) -> Generator[Lane]:
        """A lane of the scope that no other writer of this process is in; any, where all are taken."""
        numbers = ((self._first + step) % COUNT for step in range(COUNT))
        number = next((one for one in numbers if (scope_key, one) not in self._taken), None)
        if number is None:
            yield Lane(scope_key, random.randrange(COUNT))
            return
        self._taken.add((scope_key, number))
        try:
            yield Lane(scope_key, number)
        finally:
            self._taken.discard((scope_key, number))


class Lane:
    """A lane to write in. Another process may be in it too; then the loser of the race changes to another one."""

    def __init__(self, scope_key: str, number: int) -> None:
        self._scope_key = scope_key
        self._number: int | None = number

    async def advance(self, database: Database, session: Session) -> Document:
        """Take the next revision: the fields ``lane`` and ``rev`` of what the transaction changes."""
        number, self._number = self._number, None
        if number is None:
            number = random.randrange(COUNT)
        return await advance(database, session, self._scope_key, number)


async def advance(database: Database, session: Session, scope_key: str, number: int) -> Document:
    """Take the next revision of a lane of the scope."""
    lane: Document | None = await database.collection(LANES).find_one_and_update(
        {"_id": f"{number} {scope_key}", "scope_key": scope_key},
        {"$inc": {"rev": 1}, "$setOnInsert": {"lane": number}},
        projection={"_id": 0, "lane": 1, "rev": 1},
        upsert=True,
        return_document=ReturnDocument.AFTER,
        session=session,
    )
    assert lane is not None  # it is inserted where there is none
    return lane


async def readable(database: Database, session: Session, audience: Audience) -> dict[str, dict[int, int]]:
    """The revisions of every scope that the audience reads and that has had a memory, in the session's snapshot.

    The audience's own scope is the first, whether it has had one or not.
    """
    fields: Document = {"_id": 0, "scope_key": 1, "lane": 1, "rev": 1}
    key = {"$concat": [access.project_key(""), "$_id"]}
    of_projects: list[Document] = [
        {"$match": projects.readable_by(audience)},
        {"$project": {"_id": 0, "key": key}},
        {"$lookup": {"from": LANES, "localField": "key", "foreignField": "scope_key", "as": "lane"}},
        {"$unwind": "$lane"},
        {"$replaceWith": "$lane"},
    ]
    own = access.user_key(audience.user)
    pipeline: list[Document] = [
        {"$match": {"scope_key": own}},
        {"$unionWith": {"coll": PROJECTS, "pipeline": of_projects}},
        {"$project": fields},
    ]
    by_scope: dict[str, dict[int, int]] = {own: {}}
    async for one in await database.collection(LANES).aggregate(pipeline, session=session, batchSize=_BATCH):
        by_scope.setdefault(one["scope_key"], {})[one["lane"]] = one["rev"]
    return by_scope
