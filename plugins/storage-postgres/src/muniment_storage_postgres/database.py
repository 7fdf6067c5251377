"""Connections: a pool of them, what each is set to, and what happens when one breaks.

The one policy of retries: a read whose connection was lost is tried once more on a fresh one; a write is not, once its
statement was sent. A connection that the server closed while it was idle is noticed before anything is sent on it. An
embedded server that was killed is started again. Every error leaves here as one of ``muniment.errors``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.types import TypeInfo
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from muniment.ports.refusals import closed
from muniment_storage_postgres import refusals
from muniment_storage_postgres.connection import (
    Connection,
    Held,
    Keeping,
    Pool,
    Row,
    configure,
    cursor_for,
    is_alive,
    keep_cursor,
)
from muniment_storage_postgres.settings import Options
from muniment_storage_postgres.sql import STATEMENTS, in_partition
from muniment_storage_postgres.turns import Turns

T = TypeVar("T")
Parameters: TypeAlias = Mapping[str, Any]

_log = logging.getLogger(__name__)

_PROMPT = 1.0
"""Seconds to wait for a connection before finding out whether the server is there at all."""


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
        self._asking = 0  # how many wait for the pool
        self._turns: Turns[Held] = Turns(options.pool_size, options.busy_timeout, self._leave)
        self._pool = self._new_pool()

    async def open(self) -> None:
        """Open the pool and its first connection. Raises StorageUnavailable, ConfigurationError."""
        await self._pool.open(wait=False)
        await self.read(_nothing)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        await self._give_back(self._turns.withdrawn())
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
        """The only row of a reading statement that has no more than one, and no large one."""
        found = await self.read(lambda connection: rows(connection, statement, parameters, one=True))
        return found[0] if found else None

    async def change(self, statement: str, parameters: Parameters) -> Row | None:
        """The only row of a writing statement that has no more than one. Raises psycopg's IntegrityError as it is."""
        return next(iter(await self.changes(statement, parameters, one=True)), None)

    async def changes(self, statement: str, parameters: Parameters, *, one: bool = False) -> list[Row]:
        """Run a writing statement; all its rows. Raises psycopg's IntegrityError as it is."""

        async def work(connection: Connection) -> list[Row] | psycopg.IntegrityError:
            if one:
                keep_cursor(connection, statement)
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
            left, held = held, None
            held = await self._take(left)
            try:
                return await work(held.connection)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if held.connection.closed:
                    self.forget()
                    raise _Lost(error, held.pool) from error
                raise
        finally:
            await self._leave(held)

    async def _leave(self, held: Held | None) -> None:
        """End a turn. A connection in order goes to whoever waits, or else to who comes next; others go to the pool."""
        if held is None:
            self._turns.end()
            return
        to_lend = held.pool is self._pool and not self._closed and held.in_order()
        if to_lend and (self._turns.hand_over(held) or (not self._asking and self._turns.leave(held))):
            return
        try:
            await self._give_back(held)
        finally:
            self._turns.end()

    async def _take(self, left: Held | None) -> Held:
        """What was left, or one of the pool. Nobody has a turn without one being free, so a wait means trouble."""
        if left is not None:
            if left.pool is self._pool and is_alive(left.connection):
                return left
            await self._dispose(left)
        patience = _PROMPT
        while True:
            pool = self._pool
            self._asking += 1
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
            finally:
                self._asking -= 1
            held = Held(pool, connection, time.monotonic())
            if is_alive(connection):
                return held
            await self._dispose(held)

    async def _dispose(self, held: Held) -> None:
        """Give back a connection that nobody is to have."""
        self.forget()
        await held.connection.close()
        await self._give_back(held)

    async def _give_back(self, held: Held | None) -> None:
        if held is not None:
            # Not given back, it would be one fewer for good.
            await asyncio.shield(held.pool.putconn(held.connection))

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
        await self._give_back(self._turns.withdrawn())
        await suspect.close()

    def _new_pool(self) -> Pool:
        pool_log = logging.getLogger("psycopg.pool")
        if pool_log.level == logging.NOTSET:
            # It tells of each connection of a server that is away, in several lines; what matters is logged here.
            pool_log.setLevel(logging.ERROR)
        return AsyncConnectionPool(
            self._conninfo,
            connection_class=Keeping,
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
        self._vector = await configure(connection, self._search_path, self._vector)


class _Lost(Exception):
    """The connection broke while it was used."""

    def __init__(self, cause: psycopg.Error, pool: Pool) -> None:
        super().__init__()
        self.cause = cause
        self.pool = pool


async def rows(connection: Connection, statement: str, parameters: Parameters, *, one: bool = False) -> list[Row]:
    """All rows of a named statement, or its only one, on a connection at hand."""
    if one:
        keep_cursor(connection, statement)
    return await (await sent(connection, statement, parameters)).fetchall()


async def sent(
    connection: Connection, statement: str, parameters: Parameters, *, partition: int | None = None
) -> AsyncCursor[Row]:
    """A named statement's cursor; sent to one partition of the side tables if it is given."""
    cursor = cursor_for(connection, statement)
    text = STATEMENTS[statement] if partition is None else in_partition(statement, partition)
    return await cursor.execute(text, parameters, prepare=True, binary=True)


async def _nothing(connection: Connection) -> None:
    """Work that shows that a connection can be had."""
