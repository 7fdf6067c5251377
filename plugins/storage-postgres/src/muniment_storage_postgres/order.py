"""The order of the side tables on disk, and what of it their indexes know: kept up, for searches that read by owner.

Memories arrive from everybody in turn, so the vectors of one owner come to lie on as many pages as it has passages.
Putting a partition in order needs it alone for as long as that takes, so it is done where that is a moment, and only if
the partition is free.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.errors import LockNotAvailable

from muniment_storage_postgres.connection import Connection
from muniment_storage_postgres.database import rows

_SMALL = 128
"""Pages of a partition that are read in no time, whatever their order."""
_LARGE = 32_768
"""Pages (256 MB) of a partition that takes too long to be put in order: all that a search reads of it waits."""
_PATIENCE = "2s"
"""How long a partition is waited for, and whoever comes after waits too."""


async def restore(connection: Connection) -> Sequence[str]:
    """Put in order what is worth it; what was done, a sentence each. ``connection`` is in no transaction."""
    return [*await _sorted(connection), *await _vacuumed(connection)]


async def _sorted(connection: Connection) -> Sequence[str]:
    """Have the passages of each owner lie together."""
    done: list[str] = []
    for table, index in await rows(connection, "unsorted", {"small": _SMALL, "large": _LARGE}):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'".encode())
                await connection.execute(f"CLUSTER {table} USING {index}".encode())
        except LockNotAvailable:
            done.append(f"Left {table} in the order in which it was written: it was in use for more than {_PATIENCE}.")
            continue
        # What is known of a table, and which pages an index answers for, are not its new file's.
        await connection.execute(f"VACUUM (ANALYZE) {table}".encode())
        done.append(f"Sorted {table} by owner: searches had to collect what they read from all over it.")
    return done


async def _vacuumed(connection: Connection) -> Sequence[str]:
    """Let index-only scans skip the tables again."""
    done: list[str] = []
    for table, percent in await rows(connection, "out_of_order", {"small": _SMALL}):
        await connection.execute(f"VACUUM (ANALYZE) {table}".encode())
        done.append(f"Vacuumed {table}: searches had to look at {percent}% of its pages beside the index.")
    return done
