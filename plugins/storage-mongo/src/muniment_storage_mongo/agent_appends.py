"""Exchanges: appended to the envelopes of all recipients, with their dedupe keys, in one transaction.

It touches the envelopes first, in the order of their keys: they are what appends meet in, so the one that comes later
fails at once and is run again, and who holds the envelope decides. Revision, entry and cap are one pipeline on one
document; exchanges that are appended together are as many of those, one after the other. Where one of them must not be
stored none is; only an append that is alone finds out what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from pymongo import ReturnDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError

from muniment.errors import StorageUnavailable
from muniment.ports import Appended, ExchangeAppend, ReceiptTaken
from muniment_storage_mongo import agent_records, receipts
from muniment_storage_mongo.agent_records import EMPTY, NOW
from muniment_storage_mongo.agent_schema import ENVELOPES, EXCHANGE_KEYS
from muniment_storage_mongo.agent_turns import Together, Turns
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.records import literal

_ATTEMPTS = 8
_DUPLICATE_KEY = 11000


class Appends:
    """Appends of this process; those for the same recipients that wait for each other are one transaction."""

    def __init__(self, database: Callable[[], Database], turns: Turns) -> None:
        self._database = database
        self._together: Together[ExchangeAppend, Appended] = Together(turns, self._serve)

    async def append(self, append: ExchangeAppend) -> Appended:
        """To every recipient or to none. Raises ReceiptTaken."""
        return await self._together.call(_recipients(append), append)

    async def _serve(self, appends: Sequence[ExchangeAppend]) -> Sequence[Appended]:
        database = self._database()
        if len(appends) == 1:
            return [await _append_alone(database, appends[0])]
        return await database.transaction(lambda session: _append(database, session, appends))


async def _append_alone(database: Database, append: ExchangeAppend) -> Appended:
    for _ in range(_ATTEMPTS):
        try:
            (appended,) = await database.transaction(lambda session: _append(database, session, [append]))
        except DuplicateKeyError:
            first = await database.transaction(lambda session: _first(database, session, append))
            if first is not None:
                return first
        except ReceiptTaken:
            if append.claim is None or not await receipts.expire(database, append.claim):
                raise
        else:
            return appended
    raise StorageUnavailable(f"The dedupe key {append.dedupe_key} kept changing while it was stored; try again.")


async def _append(database: Database, session: Session, appends: Sequence[ExchangeAppend]) -> Sequence[Appended]:
    """Append exchanges of the same recipients. Raises DuplicateKeyError where a dedupe key is not new, ReceiptTaken."""
    before: dict[str, int] = {}
    at: datetime | None = None
    for agent in _recipients(appends[0]):
        entries = [
            stage
            for append in appends
            for entry in append.entries
            if agent_records.key_of(entry.agent) == agent
            for stage in agent_records.appending(entry, append.kept, literal(at) if at else NOW)
        ]
        envelope = await database.collection(ENVELOPES.name).find_one_and_update(
            {"_id": agent},
            [EMPTY, *entries],
            {"revision": 1, "at": NOW},
            upsert=True,
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        assert envelope is not None
        before[agent] = envelope["revision"] - len(appends)
        at = at or envelope["at"]
    assert at is not None
    await _store_keys(database, session, appends, before)
    for append in appends:
        try:
            await receipts.claim(database, session, append.claim, at)
        except DuplicateKeyError as error:
            raise ReceiptTaken from error
    return [
        Appended(
            tuple(before[agent_records.key_of(entry.agent)] + place for entry in append.entries), deduped=False, at=at
        )
        for place, append in enumerate(appends, 1)
    ]


async def _store_keys(
    database: Database, session: Session, appends: Sequence[ExchangeAppend], before: Mapping[str, int]
) -> None:
    """Keep the dedupe keys with the revisions that they got, from ``before`` on. Raises DuplicateKeyError."""
    keys: list[Document] = [
        {"_id": {"agent": agent, "key": append.dedupe_key}, "revision": revision + place}
        for place, append in enumerate(appends, 1)
        for agent, revision in before.items()
    ]
    try:
        await database.collection(EXCHANGE_KEYS.name).insert_many(keys, session=session)
    except BulkWriteError as error:
        if any(one["code"] != _DUPLICATE_KEY for one in error.details["writeErrors"]):
            raise
        raise DuplicateKeyError("a dedupe key is not new") from error


async def _first(database: Database, session: Session, append: ExchangeAppend) -> Appended | None:
    """What a dedupe key got the first time."""
    agents = [agent_records.key_of(entry.agent) for entry in append.entries]
    keys = [{"agent": agent, "key": append.dedupe_key} for agent in agents]
    cursor = database.collection(EXCHANGE_KEYS.name).find(
        {"_id": {"$in": keys}}, {"revision": 1, "now": NOW}, session=session
    )
    found = {key["_id"]["agent"]: key async for key in cursor}
    if not found:
        return None
    revisions = tuple(found[agent]["revision"] if agent in found else None for agent in agents)
    return Appended(revisions, deduped=True, at=next(iter(found.values()))["now"])


def _recipients(append: ExchangeAppend) -> tuple[str, ...]:
    """The keys of the recipients, in their order."""
    return tuple(sorted(agent_records.key_of(entry.agent) for entry in append.entries))
