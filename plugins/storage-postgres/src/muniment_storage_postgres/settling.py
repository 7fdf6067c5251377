"""Puts the words of what was written lately into batches of postings, and takes batches back that few memories are in.

A write leaves the keys of its words beside the memory's entry, where a search reads all of them; that is cheap for a
hundred memories of a scope. A search that met more of them has them settled when it is done, beside what is going on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

import numpy as np
from psycopg.errors import SerializationFailure

from muniment.errors import MunimentError
from muniment_storage_postgres import keys
from muniment_storage_postgres.arrays import BigInts, bigints
from muniment_storage_postgres.connection import Connection
from muniment_storage_postgres.database import Database, rows, sent

BATCH = 200
"""Memories of a batch, which a search reads whole until there are so many; with more it reads fewer postings."""
_BEGUN = b"""
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL idle_in_transaction_session_timeout = '10s'
"""
"""Entries are locked between two statements; a process that hangs there must not keep their writers waiting."""
_log = logging.getLogger(__name__)


class Settler:
    """Settles the scopes of one database in the background, one at a time."""

    def __init__(self) -> None:
        self._wanted: set[int] = set()
        self._task: asyncio.Task[None] | None = None

    def begin(self, database: Database) -> None:
        """Have all that is worth it settled, as after an upgrade: a search would read it whole first."""
        self._task = asyncio.create_task(self._settle(database, all_scopes=True))

    def want(self, database: Database, scopes: Iterable[int]) -> None:
        """Have these settled soon; returns at once."""
        self._wanted.update(scopes)
        if self._wanted and self._task is None:
            self._task = asyncio.create_task(self._settle(database))

    async def close(self) -> None:
        """Stop; a batch is there as a whole or not at all."""
        task, self._task = self._task, None
        self._wanted.clear()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _settle(self, database: Database, *, all_scopes: bool = False) -> None:
        try:
            if all_scopes:
                self._wanted.update([scope for (scope,) in await database.rows("unsettled", {"least": BATCH})])
            while self._wanted:
                scope = self._wanted.pop()
                # A connection for each batch, since calls wait for one too.
                while await database.write(lambda connection, scope=scope: make_batch(connection, scope)):
                    pass
                await database.write(lambda connection, scope=scope: dissolve(connection, scope))
        except MunimentError as error:
            _log.info("what was written lately is searched as it is, for now: %s", error)
        finally:
            self._task = None


async def settle(connection: Connection, scope: int) -> int:
    """Make all batches of a scope that are worth it, then take poor ones back; how many memories were put into one."""
    done = 0
    while made := await make_batch(connection, scope):
        done += made
    await dissolve(connection, scope)
    return done


async def settle_all(connection: Connection) -> Sequence[str]:
    """Settle every scope that is worth it, and look after the batches of all; what was done, a sentence."""
    scopes = {scope for (scope,) in await rows(connection, "unsettled", {"least": BATCH})}
    scopes |= {scope for (scope,) in await rows(connection, "batched", {})}
    done = sum([await settle(connection, scope) for scope in sorted(scopes)])
    if not done:
        return ()
    # The entries were written anew, and until then an index alone does not answer for them.
    for table in (b"search_entry", b"search_keys"):
        await connection.execute(b"VACUUM (ANALYZE) " + table)
    return (f"Settled the words of {done} memories: searches had to read all words of each.",)


async def make_batch(connection: Connection, scope: int) -> int:
    """Make one batch of a scope, if there are enough memories for it; how many are in it."""
    try:
        return await _make_batch(connection, scope)
    except SerializationFailure:
        _log.debug("a memory moved meanwhile; scope %d will be settled another time", scope)
        return 0


async def _make_batch(connection: Connection, scope: int) -> int:
    async with connection.transaction():
        await connection.execute(_BEGUN, prepare=False)
        taken = await rows(connection, "to_settle", {"scope": scope, "limit": BATCH})
        if len(taken) < BATCH:
            return 0
        # Their keys are read after they were locked, so that they are those of the entry that is locked.
        memories = bigints([memory for (memory,) in taken])
        found = await rows(connection, "keys_of", {"scope": scope, "memories": memories})
        different, sizes, holders = keys.inverted(np.array([row[0] for row in found]), [row[1] for row in found])
        sizes = sizes * keys.PACKED.itemsize
        parameters = {
            **{"scope": scope, "memories": memories, "keys": BigInts(different), "holders": holders},
            **{"starts": BigInts(np.cumsum(sizes) - sizes + 1), "sizes": BigInts(sizes)},
        }
        await sent(connection, "settle", parameters)
        return len(found)


async def dissolve(connection: Connection, scope: int) -> None:
    """Take back the batches of a scope that few of their memories are in."""
    try:
        await rows(connection, "dissolve", {"scope": scope})
    except SerializationFailure:
        _log.debug("a memory moved meanwhile; batches of scope %d will be looked after another time", scope)
