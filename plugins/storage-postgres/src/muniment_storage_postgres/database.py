"""Connections: a pool of them, what each is set to, and what happens when one breaks.

The one policy of retries: a read whose connection was lost is tried once more on a fresh one; a write is not, once its
statement was sent. A connection that the server closed while it was idle is noticed before anything is sent on it. An
embedded server that was killed is started again. Every error leaves here as one of ``muniment.errors``.
"""

from __future__ import annotations

import asyncio
import logging
import select
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from pgvector.psycopg.vector import register_vector_info
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from muniment.ports.refusals import closed
from muniment_storage_postgres import arrays, refusals
from muniment_storage_postgres.settings import Options
from muniment_storage_postgres.sql import STATEMENTS
from muniment_storage_postgres.turns import Turns

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Connection: TypeAlias = AsyncConnection[Row]
Pool: TypeAlias = AsyncConnectionPool[Connection]
Parameters: TypeAlias = Mapping[str, Any]
_Held: TypeAlias = tuple[Pool, Connection]
"""A connection in use, and the pool that it belongs to."""

_log = logging.getLogger(__name__)

_PROMPT = 1.0
"""Seconds to wait for a connection before finding out whether the server is there at all."""

_CONFIGURE = b"""
SELECT
    set_config('search_path', %s, false),
    set_config('TimeZone', 'UTC', false),
    set_config('jit', 'off', false),
    set_config('max_parallel_workers_per_gather', '0', false)
"""


class Database:
    """A pool on one database. ``revive`` gives the conninfo of a server that answers, started again if need be."""

    def __init__(
        self,
        conninfo: str,
        *,
        place: str,
        search_path: str,
        options: Options,
        revive: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._conninfo = conninfo
        self._place = place
        self._search_path = search_path
        self._options = options
        self._revive = revive
        self.forget: Callable[[], None] = lambda: None
        """Called where a connection was lost: the next one may be to a server that lacks what this one had."""
        self._mending = asyncio.Lock()
        self._closed = False
        self._vector: TypeInfo | None = None
        self._turns: Turns[_Held] = Turns(options.pool_size, options.busy_timeout, self._leave)
        self._pool = self._new_pool()

    async def open(self) -> None:
        """Open the pool and its first connection. Raises StorageUnavailable, ConfigurationError."""
        await self._pool.open(wait=False)
        await self.read(_nothing)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        await self._pool.close()

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work that changes nothing, once more on a fresh connection if its connection was lost."""
        try:
            return await self._run(work)
        except _Lost as lost:
            # Other connections of this pool may be as dead as this one.
            await self._mend(lost.pool)
        except psycopg.Error as error:
            raise refusals.of_statement(error, self._place) from error
        return await self.write(work)

    async def write(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work once."""
        try:
            return await self._run(work)
        except _Lost as lost:
            raise refusals.of_statement(lost.cause, self._place) from lost.cause
        except psycopg.Error as error:
            raise refusals.of_statement(error, self._place) from error

    async def rows(self, statement: str, parameters: Parameters) -> list[Row]:
        """All rows of a reading statement."""
        return await self.read(lambda connection: rows(connection, statement, parameters))

    async def row(self, statement: str, parameters: Parameters) -> Row | None:
        """The first row of a reading statement."""
        found = await self.rows(statement, parameters)
        return found[0] if found else None

    async def change(self, statement: str, parameters: Parameters) -> Row | None:
        """Run a writing statement; its first row. Raises psycopg's IntegrityError as it is."""
        found = await self.changes(statement, parameters)
        return found[0] if found else None

    async def changes(self, statement: str, parameters: Parameters) -> list[Row]:
        """Run a writing statement; all its rows. Raises psycopg's IntegrityError as it is."""

        async def work(connection: Connection) -> list[Row] | psycopg.IntegrityError:
            try:
                cursor = await sent(connection, statement, parameters)
                # A description would be built of every column; the row number says as well whether there are rows.
                return [] if cursor.rownumber is None else await cursor.fetchall()
            except psycopg.IntegrityError as error:
                return error

        answer = await self.write(work)
        if isinstance(answer, psycopg.IntegrityError):
            raise answer
        return answer

    @asynccontextmanager
    async def apart(self) -> AsyncGenerator[Connection]:
        """A connection of its own, for what takes minutes: those of the pool are for calls."""
        await self.read(_nothing)  # which starts a server again that was killed
        try:
            connection = await AsyncConnection.connect(self._conninfo, **self._arguments())
        except psycopg.Error as error:
            raise refusals.of_connection(error, self._place) from error
        try:
            async with connection:
                await self._configure(connection)
                yield connection
        except psycopg.Error as error:
            raise refusals.of_statement(error, self._place) from error

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work on a connection that was alive a moment ago. Raises _Lost where it breaks while it is used."""
        try:
            held = await self._turns.take()
        except TimeoutError as error:
            raise refusals.busy(self._place) from error
        try:
            held = held or await self._take()
            pool, connection = held
            try:
                return await work(connection)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if connection.closed:
                    self.forget()
                    raise _Lost(error, pool) from error
                raise
        finally:
            await self._leave(held)

    async def _leave(self, held: _Held | None) -> None:
        """End a turn. A connection in order goes to whoever waits; the pool is asked only when nobody does."""
        if held is None:
            self._turns.end()
            return
        pool, connection = held
        current = pool is self._pool and not self._closed
        idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        if current and idle and self._turns.hand_over(held):
            return
        try:
            await pool.putconn(connection)
        finally:
            self._turns.end()

    async def _take(self) -> _Held:
        """A connection of the pool. Nobody has a turn without one being free, so a wait in the pool means trouble."""
        patience = _PROMPT
        while True:
            pool = self._pool
            try:
                connection = await pool.getconn(patience)
            except PoolTimeout as error:
                if patience != _PROMPT:
                    raise refusals.busy(self._place) from error
                await self._mend(pool)
                patience = self._options.connect_timeout
                continue
            except PoolClosed as error:
                if pool is not self._pool:
                    continue
                raise closed() from error
            if _is_alive(connection):
                return pool, connection
            self.forget()
            await connection.close()
            await pool.putconn(connection)

    async def _mend(self, suspect: Pool) -> None:
        """Find out why no connection came, or why one broke: give up with the cause, or go on with a fresh pool."""
        async with self._mending:
            if self._pool is not suspect:
                return
            if self._closed:
                raise closed()
            _log.warning("the connection to PostgreSQL (%s) was lost; connecting again", self._place)
            try:
                if self._revive is not None:
                    self._conninfo = await self._revive()
                connection = await AsyncConnection.connect(self._conninfo, **self._arguments())
                await connection.close()
            except psycopg.Error as error:
                raise refusals.of_connection(error, self._place) from error
            if self._closed:
                raise closed()
            self.forget()
            self._pool = self._new_pool()
            await self._pool.open(wait=False)
        await suspect.close()

    def _new_pool(self) -> Pool:
        pool_log = logging.getLogger("psycopg.pool")
        if pool_log.level == logging.NOTSET:
            # It tells of each connection of a server that is away, in several lines; what matters is logged here.
            pool_log.setLevel(logging.ERROR)
        return AsyncConnectionPool(
            self._conninfo,
            kwargs=self._arguments(),
            min_size=1,
            max_size=self._options.pool_size,
            open=False,
            configure=self._configure,
            reconnect_timeout=_PROMPT,
            name="muniment",
        )

    def _arguments(self) -> dict[str, Any]:
        return {
            "autocommit": True,
            "connect_timeout": max(2, round(self._options.connect_timeout)),
            "application_name": "muniment",
        }

    async def _configure(self, connection: Connection) -> None:
        await connection.execute(_CONFIGURE, (self._search_path,))
        if self._vector is None:
            self._vector = await TypeInfo.fetch(connection, "vector")
        register_vector_info(connection, self._vector)
        arrays.register(connection)


class _Lost(Exception):
    """The connection broke while it was used."""

    def __init__(self, cause: psycopg.Error, pool: Pool) -> None:
        super().__init__()
        self.cause = cause
        self.pool = pool


async def rows(connection: Connection, statement: str, parameters: Parameters) -> list[Row]:
    """All rows of a named statement, on a connection at hand."""
    return await (await sent(connection, statement, parameters)).fetchall()


async def sent(connection: Connection, statement: str, parameters: Parameters) -> AsyncCursor[Row]:
    """A named statement's cursor."""
    return await connection.execute(STATEMENTS[statement], parameters, prepare=True, binary=True)


def _is_alive(connection: Connection) -> bool:
    """Whether the server has not closed an idle connection. Asks the socket, so it costs no round trip."""
    if connection.closed:
        return False
    try:
        while _readable(connection.fileno()):
            connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return True


def _readable(descriptor: int) -> bool:
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


async def _nothing(connection: Connection) -> None:
    """Work that shows that a connection can be had."""
