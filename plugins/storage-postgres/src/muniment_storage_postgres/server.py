"""Which PostgreSQL a storage talks to, a given one or its own, and what schema that has."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import AsyncConnection

from muniment.errors import ConfigurationError, MunimentError
from muniment_storage_postgres import refusals, settings
from muniment_storage_postgres.database import Database
from muniment_storage_postgres.layout import VERSION_TABLE
from muniment_storage_postgres.settings import Options, Settings

if TYPE_CHECKING:
    from muniment_storage_postgres.embedded import EmbeddedServer

_STANDING = b"""
SELECT
    (
        SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'vector'
    ),
    to_regclass(%s)::text
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a database has: the schema that ``vector`` is in, and the revision of the tables, None for neither."""

    extension: str | None
    revision: str | None


class Server:
    """A server that is given by URL, or an embedded one that this process starts or joins."""

    def __init__(self, configured: Settings) -> None:
        self._configured = configured
        self.options: Options = configured.options
        self.embedded = configured.directory is not None
        if configured.directory is not None:
            self.place = f"embedded in {configured.directory}"
        else:
            self.place = settings.place(configured.url or "")
        self._conninfo: str | None = None

    async def start(self) -> str:
        """The conninfo, once an embedded server runs. Raises ConfigurationError, StorageUnavailable."""
        if self._configured.directory is None:
            return self._configured.url or ""
        if self._conninfo is None:
            self._conninfo = await self._started()
        return self._conninfo

    async def _started(self) -> str:
        # Imported here, as below.
        from muniment_storage_postgres import accounts

        accounts.check(self.options.as_root)
        given_up = threading.Event()
        starting = asyncio.ensure_future(asyncio.to_thread(self._embedded().start, given_up))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            given_up.set()
            # The thread goes on, and a server that nobody knows of would be left running.
            with suppress(MunimentError):
                self._conninfo = await starting
            await self.stop()
            raise

    async def stop(self) -> None:
        """Leave an embedded server; the last process that leaves stops it."""
        if self._conninfo is not None:
            self._conninfo = None
            await asyncio.to_thread(self._embedded().stop)

    async def inspect(self, conninfo: str) -> Standing:
        """What the database has. Raises StorageUnavailable, ConfigurationError."""
        try:
            connection = await AsyncConnection.connect(
                conninfo, autocommit=True, connect_timeout=max(2, round(self.options.connect_timeout))
            )
        except psycopg.Error as error:
            raise refusals.of_connection(error, self.place) from error
        try:
            async with connection:
                return await self._standing(connection)
        except psycopg.Error as error:
            raise refusals.of_statement(error, self.place) from error

    async def migrate(self, conninfo: str) -> tuple[str, ...]:
        """Bring the schema up to date; the names of the steps taken."""
        from muniment_storage_postgres.migrate import migrate

        return await asyncio.to_thread(
            migrate,
            conninfo,
            place=self.place,
            schema=self.options.schema_name,
            partitions=self.options.partitions,
        )

    def database(self, conninfo: str, standing: Standing) -> Database:
        """A pool for this server, not opened yet."""
        home = standing.extension
        return Database(
            conninfo,
            place=self.place,
            search_path=f"{self.options.schema_name}, {home}" if home else self.options.schema_name,
            options=self.options,
            revive=self._revive if self.embedded else None,
        )

    async def _standing(self, connection: AsyncConnection) -> Standing:
        table = f"{self.options.schema_name}.{VERSION_TABLE}"
        row = await (await connection.execute(_STANDING, (table,))).fetchone()
        extension, found = row or (None, None)
        if found is None:
            return Standing(extension, None)
        revisions = await (await connection.execute(f"SELECT version_num FROM {table}".encode())).fetchone()
        return Standing(extension, revisions[0] if revisions else None)

    async def _revive(self) -> str:
        return await asyncio.to_thread(self._embedded().revive)

    def _embedded(self) -> EmbeddedServer:
        # Imported here so that a deployment on a server loads nothing of an embedded one.
        from muniment_storage_postgres.embedded import server

        if self._configured.directory is None:
            raise ConfigurationError("This storage has no embedded server.")
        return server(self._configured.directory)
