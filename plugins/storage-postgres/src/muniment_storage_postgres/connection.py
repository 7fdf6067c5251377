"""A connection by itself: what it is set to, the cursors that it keeps, and whether it is in order."""

from __future__ import annotations

import select
import sys
import time
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import psycopg
from pgvector.psycopg.vector import register_vector_info
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo
from psycopg_pool import AsyncConnectionPool

from muniment_storage_postgres import arrays, lists

Row: TypeAlias = tuple[Any, ...]
Connection: TypeAlias = AsyncConnection[Row]
_LENT = 60.0
"""Seconds that a connection goes from caller to caller; its pool then sees whether it has become too old."""

_STATEMENTS = 300
"""Statements that the server keeps the plans of; some are sent to a partition by its name."""

_CONFIGURE = b"""
SELECT
    set_config('search_path', %s, false),
    set_config('TimeZone', 'UTC', false),
    set_config('jit', 'off', false),
    set_config('max_parallel_workers_per_gather', '0', false)
"""


class Keeping(AsyncConnection[Row]):
    """A connection that may keep a cursor for each named statement."""

    @cached_property
    def cursors(self) -> dict[str, AsyncCursor[Row]]:
        """Those that it keeps."""
        return {}


Pool: TypeAlias = AsyncConnectionPool[Keeping]


class Held(NamedTuple):
    """A connection in use, the pool that it belongs to, and when by the monotonic clock it came from there."""

    pool: Pool
    connection: Keeping
    since: float

    def in_order(self) -> bool:
        """Whether the next caller may have it as it is."""
        idle = self.connection.pgconn.transaction_status == TransactionStatus.IDLE
        return idle and time.monotonic() - self.since < _LENT


async def configure(connection: Connection, search_path: str, vector: TypeInfo | None) -> TypeInfo:
    """Set up a new connection; the type of vectors, which is asked for where it is not known."""
    connection.prepared_max = _STATEMENTS
    await connection.execute(_CONFIGURE, (search_path,))
    if vector is None:
        vector = await TypeInfo.fetch(connection, "vector")
    register_vector_info(connection, vector)
    assert vector is not None
    arrays.register(connection)
    lists.register(connection, vector)
    return vector


def keep_cursor(connection: Connection, statement: str) -> None:
    """Ask a named statement by the same cursor from now on, where the connection can keep it.

    A new cursor looks up how each parameter and each column is converted, which can take as long as sending and reading
    them. One that is kept holds its last answer, so it is for answers that are small, and read before the next is asked
    for.
    """
    if isinstance(connection, Keeping) and statement not in connection.cursors:
        connection.cursors[statement] = connection.cursor()


def cursor_for(connection: Connection, statement: str) -> AsyncCursor[Row]:
    """The kept cursor of a named statement, or a new one."""
    kept = connection.cursors.get(statement) if isinstance(connection, Keeping) else None
    return connection.cursor() if kept is None else kept


def is_alive(connection: Connection) -> bool:
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
