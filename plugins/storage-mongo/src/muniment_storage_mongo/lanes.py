"""The revisions of a scope: what makes a cache of its vectors exact, whoever writes and whatever crashes.

A scope has a few *lanes*, each a document with a revision. A transaction that changes what a search sees takes the next
revision of one lane, writes it into what it changes, and commits both or neither. Two transactions that take the same
lane conflict, so the revisions of a lane are without gaps and in the order of their commits; different writers take
different lanes, so they do not wait for each other. In any snapshot the lanes therefore say exactly what is in it, and
what a reader has not seen is what bears a higher revision of a lane than it knows. No clock is asked.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from pymongo import ReturnDocument

from muniment import access
from muniment.ports import Audience
from muniment_storage_mongo import gates, projects
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.schema import LANES, PROJECTS

COUNT = 64
"""Lanes of a scope: so many writers of one scope can commit at once."""
_BATCH = 10_000
"""Lanes of one reply."""
_FIELDS: Document = {"_id": 0, "scope_key": 1, "lane": 1, "rev": 1}

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
        self._taken: Document = {}

    async def advance(self, database: Database, session: Session) -> Document:
        """Take the next revision: the fields ``lane`` and ``rev`` of what the transaction changes."""
        number, self._number = self._number, None
        if number is None:
            number = random.randrange(COUNT)
        self._taken = await advance(database, session, self._scope_key, number)
        return {"lane": number, "rev": self._taken["rev"]}

    async def admits(self, database: Database, session: Session, space: str) -> bool:
        """Whether the transaction, which has advanced, may store vectors of a space; see ``gates``."""
        return space in self._taken.get("spaces", ()) or await gates.open_lane(
            database, session, self._taken["_id"], space
        )


async def advance(database: Database, session: Session, scope_key: str, number: int) -> Document:
    """Take the next revision of a lane of the scope; the lane."""
    lane: Document | None = await database.collection(LANES).find_one_and_update(
        {"_id": f"{number} {scope_key}", "scope_key": scope_key},
        {"$inc": {"rev": 1}, "$setOnInsert": {"lane": number}},
        upsert=True,
        return_document=ReturnDocument.AFTER,
        session=session,
    )
    assert lane is not None  # it is inserted where there is none
    return lane


async def readable(
    database: Database,
    session: Session,
    audience: Audience,
    *,
    expected: Iterable[str] = (),
    beside: Sequence[Document] = (),
) -> tuple[dict[str, dict[int, int]], list[Document]]:
    """The revisions of every scope that the audience reads, in the session's snapshot; of one without a memory, none.

    The audience's own scope is the first. All is one request where the audience reads no projects but those among the
    ``expected`` scopes. ``beside`` are stages that add documents of other collections to the request, each with its
    ``_id``; they come back as they were read.
    """
    own = access.user_key(audience.user)
    asked = {own, *expected}
    project: Document = {"_id": 0, "project": "$_id"}
    of_projects: list[Document] = [{"$match": projects.readable_by(audience)}, {"$project": project}]
    pipeline: list[Document] = [
        {"$match": {"scope_key": {"$in": sorted(asked)}}},
        {"$project": _FIELDS},
        {"$unionWith": {"coll": PROJECTS, "pipeline": of_projects}},
        *beside,
    ]
    by_scope: dict[str, dict[int, int]] = {own: {}}
    lanes: list[Document] = []
    others: list[Document] = []
    cursor = await database.collection(LANES).aggregate(pipeline, session=session, batchSize=_BATCH)
    for one in await cursor.to_list():
        if "_id" in one:
            others.append(one)
        elif "project" in one:
            by_scope[access.project_key(one["project"])] = {}
        else:
            lanes.append(one)
    if missing := by_scope.keys() - asked:
        condition: Document = {"scope_key": {"$in": sorted(missing)}}
        lanes += await database.collection(LANES).find(condition, _FIELDS, session=session, batch_size=_BATCH).to_list()
    for one in lanes:
        if one["scope_key"] in by_scope:
            by_scope[one["scope_key"]][one["lane"]] = one["rev"]
    return by_scope, others
