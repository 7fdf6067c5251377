"""One client on one database: how it reads, how it writes, and what happens when a server goes away.

The one policy of concerns and retries. A read sees what a majority has, so a failover never takes back what was shown.
A new primary may not know at once what its predecessor acknowledged last; it is asked only after a majority has
confirmed it, and a read during which another one was elected is repeated. A write is acknowledged by a majority, and
whoever is cancelled meanwhile waits for its end. A transaction that lost a race, or whose primary went away, is run
again within a bound; a commit whose answer was lost is sent again, which the server applies once. Every error leaves
here as one of ``muniment.errors``, but for a duplicate key, whose meaning the caller knows.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from typing import Any, TypeAlias, TypeVar

from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.server_type import SERVER_TYPE

from muniment.cancellation import heeded, to_its_end
from muniment_storage_mongo import refusals

T = TypeVar("T")
Document: TypeAlias = dict[str, Any]
Client: TypeAlias = AsyncMongoClient[Document]
Session: TypeAlias = AsyncClientSession

MAJORITY = WriteConcern(w="majority")
_UTC: CodecOptions[Document] = CodecOptions(tz_aware=True, tzinfo=UTC)

_NOWHERE = "nothing"
"""A collection that there is not."""
_SNAPSHOT_LOST = 43, 239, 246
"""The server no longer has the snapshot or its cursor, or a collection was changed after it; a new one is taken."""
_WRITE_CONFLICT = 112
_ROUTERS = SERVER_TYPE.Mongos, SERVER_TYPE.LoadBalancer
_PAUSE = 0.002, 0.25
"""Seconds before the second and at most before a later attempt; each is cut by chance."""


class Database:
    """A database of an open client. ``place`` names it in messages; ``patience`` bounds all attempts, in seconds.

    A client belongs to the event loop that it is first used on, and so does this.
    """

    def __init__(self, client: Client, name: str, *, place: str, patience: float = 30.0) -> None:
        self.client = client
        self.place = place
        self._patience = patience
        self._settled: object = None
        self._collections: dict[str, AsyncCollection[Document]] = {}
        self._database: AsyncDatabase[Document] = client.get_database(
            name,
            codec_options=_UTC,
            read_concern=ReadConcern("majority"),
            write_concern=MAJORITY,
            read_preference=ReadPreference.PRIMARY,
        )

    def collection(self, name: str) -> AsyncCollection[Document]:
        """A collection: majority reads, majority writes, on the primary."""
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = self._database[name]
        return found

    async def command(self, command: Mapping[str, Any]) -> Document:
        """Run a database command."""
        return await heeded(self._translated(lambda: self._database.command(dict(command))))

    async def names(self) -> list[str]:
        """The names of the collections that are there."""
        return await self._database.list_collection_names()

    async def create(self, name: str) -> None:
        """Make a collection."""
        await self._database.create_collection(name, check_exists=False)

    async def close(self) -> None:
        """Close every connection."""
        await to_its_end(self.client.close())

    async def read(self, work: Callable[[], Awaitable[T]]) -> T:
        """One query. The driver itself tries it once more when a server goes away."""
        return await heeded(self._believed(lambda: self._translated(work)))

    async def write(self, work: Callable[[], Awaitable[T]]) -> T:
        """One write of one document, which the driver itself repeats safely. Raises DuplicateKeyError as it is."""
        return await to_its_end(self._translated(work))

    async def snapshot(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Several queries that all see one moment; pass the session to each. ``work`` may be run again."""
        return await heeded(self._believed(lambda: self._snapshot(work)))

    async def _snapshot(self, work: Callable[[Session], Awaitable[T]]) -> T:
        ends = time.monotonic() + self._patience
        attempt = 0
        while True:
            try:
                async with self.client.start_session(snapshot=True) as session:
                    return await work(session)
            except OperationFailure as error:
                attempt += 1
                if error.code not in _SNAPSHOT_LOST or not await _paused(attempt, ends):
                    raise refusals.of_error(error, self.place) from error
            except refusals.DRIVER_ERRORS as error:
                raise refusals.of_error(error, self.place) from error

    async def transaction(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Several reads and writes, all or nothing; pass the session to each.

        ``work`` may be run again, so it must have no other effect, and it must let the driver's errors pass. Raises
        DuplicateKeyError as it is; then, as after any error of ``work``'s own, nothing is stored.
        """
        return await to_its_end(self._transaction(work))

    async def _transaction(self, work: Callable[[Session], Awaitable[T]]) -> T:
        ends = time.monotonic() + self._patience
        attempt = 0
        try:
            async with self.client.start_session(causal_consistency=False) as session:
                while True:
                    try:
                        return await self._attempt(session, work, ends)
                    except PyMongoError as error:
                        attempt += 1
                        if not error.has_error_label(refusals.TRANSIENT):
                            raise
                        if not await _paused(attempt, ends):
                            if isinstance(error, OperationFailure) and error.code == _WRITE_CONFLICT:
                                raise refusals.contended(self.place) from error
                            raise
        except DuplicateKeyError:
            raise
        except refusals.DRIVER_ERRORS as error:
            raise refusals.of_error(error, self.place) from error

    async def _attempt(self, session: Session, work: Callable[[Session], Awaitable[T]], ends: float) -> T:
        """Run the work once, and commit until the outcome is known."""
        async with await session.start_transaction(ReadConcern("snapshot"), MAJORITY, ReadPreference.PRIMARY):
            result = await work(session)
            attempt = 0
            while True:
                try:
                    await session.commit_transaction()
                    return result
                except PyMongoError as error:
                    attempt += 1
                    if not error.has_error_label(refusals.UNKNOWN_COMMIT):
                        raise
                    if not await _paused(attempt, ends):
                        raise refusals.of_commit(self.place) from error

    async def _believed(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work that only reads on a primary that a majority had confirmed before. Raises StorageUnavailable.

        Slowness alone is no reason to give up: each round brings the answer nearer, unless another primary came.
        """
        ends = time.monotonic() + self._patience
        changes = 0
        before: object = None
        answered = False
        while True:
            term = self._term()
            if answered and (term is None or (before is not None and term != before)):
                changes += 1
            before = term
            if changes > 1 and time.monotonic() > ends:
                raise refusals.unconfirmed(self.place)
            if term is not None and term == self._settled:
                result = await work()
                if self._term() == term:
                    return result
            else:
                # A write that changes nothing waits for a majority to have everything that the primary has.
                await self._translated(lambda: self._database[_NOWHERE].delete_one({"_id": None}))
                self._settled = term
            answered = True

    def _term(self) -> object:
        """Which election made the primary that the driver knows; None where it knows of none.

        A router does not tell its shards' primaries, so behind one it is the same for ever.
        """
        servers = self.client.topology_description.server_descriptions().values()
        primary = next((one for one in servers if one.server_type == SERVER_TYPE.RSPrimary), None)
        if primary is not None:
            return primary.address, primary.election_id
        return () if any(one.server_type in _ROUTERS for one in servers) else None

    async def _translated(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await work()
        except DuplicateKeyError:
            raise
        except refusals.DRIVER_ERRORS as error:
            raise refusals.of_error(error, self.place) from error


async def _paused(attempt: int, ends: float) -> bool:
    """Wait a while that grows with the attempts and is cut by chance; False where the time is over."""
    shortest, longest = _PAUSE
    pause = random.uniform(0, min(longest, shortest * 2**attempt))
    if time.monotonic() + pause >= ends:
        return False
    await asyncio.sleep(pause)
    return True
