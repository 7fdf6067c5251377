"""Queries for thousands of alike documents, whose replies are decoded as a whole.

The driver makes a Python object of each document that a cursor gives, of a raw one too. A command's reply it leaves as
it is, so such a query is sent as a command; its further batches are asked for ahead. What the driver does for a cursor
is done here: a query whose primary went away is sent once more. Behind a router a batch may be asked of another one,
which does not know the cursor, so there the driver's cursor is used. What is in a batch is ``packed``'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from bson.int64 import Int64
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS
from pymongo.errors import AutoReconnect, PyMongoError, ServerSelectionTimeoutError
from pymongo.topology_description import TOPOLOGY_TYPE

from muniment_storage_mongo import packed
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.packed import Columns

_END_SECONDS = 1.0
"""How long whoever leaves in the middle waits for the server to let go of the cursor."""
_BEHIND_ROUTERS = TOPOLOGY_TYPE.Sharded, TOPOLOGY_TYPE.LoadBalanced


@dataclass(frozen=True, slots=True)
class Query:
    """A query by one index: the documents' ``fields``, or the keys of the index where there are none.

    ``batch`` documents are a reply at most; the server cuts it at 16 MB.
    """

    collection: str
    condition: Document
    hint: str
    batch: int
    fields: Mapping[str, int] | None = None

    def command(self) -> Document:
        """As the server takes it."""
        chosen: Document = {"returnKey": True} if self.fields is None else {"projection": dict(self.fields)}
        return {
            "find": self.collection,
            "filter": self.condition,
            "hint": self.hint,
            "batchSize": self.batch,
            **chosen,
        }


async def batches(database: Database, session: Session, query: Query) -> AsyncGenerator[Columns]:
    """The batches, in a session that has its snapshot already. None of them is empty.

    The next one is asked for before a batch is handed out, so the server works while the batch is decoded.
    """
    if database.client.topology_description.topology_type in _BEHIND_ROUTERS:
        async for batch in _by_cursor(database, session, query):
            yield batch
        return
    coming, identity = asyncio.ensure_future(_first(database, session, query)), 0
    try:
        while True:
            cursor = await coming
            batch, identity = packed.reply(cursor)
            if identity:
                more: Document = {"getMore": Int64(identity), "collection": query.collection, "batchSize": query.batch}
                coming = asyncio.ensure_future(_cursor(database, session, query, more))
                await asyncio.sleep(0)  # the request goes out
            if batch:
                yield batch
            if not identity:
                return
    except PyMongoError:
        identity = 0  # a server that is away is not waited for once more
        raise
    finally:
        coming.cancel()
        await asyncio.wait((coming,))
        if identity:
            await _end(database, query, identity)


async def _first(database: Database, session: Session, query: Query) -> bytes | memoryview:
    try:
        return await _cursor(database, session, query, query.command())
    except AutoReconnect as error:
        if isinstance(error, ServerSelectionTimeoutError):
            raise
        return await _cursor(database, session, query, query.command())


async def _cursor(database: Database, session: Session, query: Query, command: Document) -> bytes | memoryview:
    """The cursor of a command's reply as BSON."""
    of_collection = database.collection(query.collection).database
    answer = await of_collection.command(command, session=session, codec_options=DEFAULT_RAW_BSON_OPTIONS)
    return answer["cursor"].raw


async def _end(database: Database, query: Query, identity: int) -> None:
    """Let go of a cursor that was not read to its end; otherwise it would keep its snapshot for minutes."""
    of_collection = database.collection(query.collection).database
    with suppress(PyMongoError, TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await of_collection.command({"killCursors": query.collection, "cursors": [Int64(identity)]})


async def _by_cursor(database: Database, session: Session, query: Query) -> AsyncGenerator[Columns]:
    cursor = database.collection(query.collection).find(
        query.condition,
        query.fields,
        hint=query.hint,
        batch_size=query.batch,
        return_key=query.fields is None,
        session=session,
    )
    async with cursor:
        while documents := await cursor.to_list(query.batch):
            yield Columns.of(documents)
