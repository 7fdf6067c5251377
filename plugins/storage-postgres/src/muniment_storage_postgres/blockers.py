"""Whom a connection waits for in its server, told while it waits: locks, older transactions, another one's upkeep.

Works on every PostgreSQL: the server itself knows who is in the way. Nobody is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC

from muniment.errors import MunimentError
from muniment_storage_postgres.connection import Connection, Row
from muniment_storage_postgres.database import Database
from muniment_storage_postgres.waiting import Wait

_TURN = 1.0
"""Seconds between two looks."""

_BLOCKERS = b"""
SELECT b.pid, a.application_name, a.usename, a.state, a.xact_start
FROM (
    SELECT unnest(pg_blocking_pids(%(pid)s)) AS pid
    UNION
    SELECT l.pid FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> %(pid)s
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND ((l.classid::bigint << 32) | l.objid::bigint)
            = hashtextextended('muniment ' || current_schema() || ' upkeep', 0)
) b LEFT JOIN pg_stat_activity a ON a.pid = b.pid
ORDER BY a.xact_start, b.pid
"""
"""A process is in the way by what it has locked, or by the lock of ``try_upkeep``, which is asked for again and again
and not waited for inside the server. Transactions of other roles may be seen without their begin, and prepared ones
have no process."""


@asynccontextmanager
async def told(database: Database, connection: Connection) -> AsyncGenerator[None]:
    """While entered, warn of whoever keeps ``connection`` waiting."""
    watching = asyncio.ensure_future(_watch(database, connection.info.backend_pid))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _watch(database: Database, pid: int) -> None:
    async def look(connection: Connection) -> list[Row]:
        return await (await connection.execute(_BLOCKERS, {"pid": pid})).fetchall()

    wait = Wait()
    while True:
        await asyncio.sleep(_TURN)
        found: list[Row] = []
        with suppress(MunimentError):  # of which the work itself will tell
            found = await database.read(look)
        if not found:
            wait = Wait()
        elif wait.is_due:
            wait.tell(" and ".join(_named(*row) for row in found))


def _named(pid: int, application: str | None, user: str | None, state: str | None, since: object) -> str:
    if pid == 0:
        return "a prepared transaction (see pg_prepared_xacts)"
    known = [f"application {application}" if application else "", f"user {user}" if user else "", state or ""]
    begun = getattr(since, "astimezone", None)
    if begun is not None:
        known.append(f"its transaction began at {begun(UTC):%Y-%m-%d %H:%M:%S} UTC")
    return f"PostgreSQL's process {pid} ({', '.join(one for one in known if one) or 'of another role'})"
