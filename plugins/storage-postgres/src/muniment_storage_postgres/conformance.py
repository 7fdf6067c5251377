"""What the suite needs of this plugin: empty subjects, raw reads, faults by trigger, and crashes by SIGKILL.

Each subject is a schema of its own in one database, and is emptied and used again, since making one takes longer than a
check. Without a URL the database is an embedded one in a temporary directory, which goes away with this process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import AsyncConnection, sql

from muniment.conformance.target import (
    AgentFaultPoint,
    FaultPoint,
    NotRun,
    StorageTarget,
    Stored,
    StoredAudit,
    StoredPassage,
    StoredTerm,
    Subject,
)
from muniment.errors import MunimentError
from muniment.models import Agent
from muniment.ports import PluginContext, Storage
from muniment_storage_postgres import agent_probe, settings, storage
from muniment_storage_postgres.agent_schema import metadata

_TABLE_OF = {
    FaultPoint.MEMORY: "memory",
    FaultPoint.AUDIT: "audit",
    FaultPoint.PASSAGES: "passage",
    FaultPoint.TERMS: "search_entry",
    FaultPoint.RECEIPT: "receipt",
}
_TABLES = [table.name for table in metadata.sorted_tables]
_TRIGGER = """
CREATE FUNCTION fail_for_the_suite() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a fault of the conformance suite' USING ERRCODE = 'io_error'; END $$;
CREATE TRIGGER fail_for_the_suite BEFORE INSERT OR UPDATE OR DELETE ON {table}
FOR EACH ROW EXECUTE FUNCTION fail_for_the_suite()
"""


@dataclass
class PostgresSubject(Subject):
    """A subject, and the schema that it lives in."""

    schema: str


class PostgresTarget(StorageTarget[PostgresSubject]):
    """A server that is given by its URL."""

    name = "storage-postgres"

    def __init__(self, spec: str, data_dir: Path) -> None:
        self._context = PluginContext(spec=spec, data_dir=data_dir)
        self._free: list[str] = []
        self._made: list[str] = []
        self._reached = False

    def describe(self) -> Mapping[str, str]:
        """The server, without its password."""
        configured = settings.parse(self._context)
        return {"storage": settings.place(configured.url or "")}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[PostgresSubject]:
        """A subject in an empty schema."""
        schema = self._free.pop() if self._free else self._new_schema()
        subject = PostgresSubject(self._client(schema), schema)
        try:
            await subject.storage.open()
        except MunimentError as error:
            if self._reached:
                raise
            raise NotRun(f"PostgreSQL cannot be used: {error}") from error
        self._reached = True
        try:
            yield subject
        finally:
            await subject.storage.close()
            await self._recycle(schema)

    @asynccontextmanager
    async def second(self, subject: PostgresSubject) -> AsyncGenerator[Storage]:
        """Another client with a pool of its own."""
        client = self._client(subject.schema)
        await client.open()
        try:
            yield client
        finally:
            await client.close()

    async def probe(self, subject: PostgresSubject) -> Stored:
        """Every row, in one snapshot."""
        async with self._raw(subject.schema) as connection:
            await connection.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return await _stored(connection)

    @asynccontextmanager
    async def fault(self, subject: PostgresSubject, point: FaultPoint) -> AsyncGenerator[None]:
        """A trigger that raises for every row of the point's table."""
        table = sql.Identifier(_TABLE_OF[point])
        async with self._raw(subject.schema) as connection:
            await connection.execute(sql.SQL(_TRIGGER).format(table=table))
        try:
            yield
        finally:
            async with self._raw(subject.schema) as connection:
                await connection.execute(b"DROP FUNCTION fail_for_the_suite CASCADE")

    @asynccontextmanager
    async def fault_agent(self, subject: PostgresSubject, point: AgentFaultPoint, agent: Agent) -> AsyncGenerator[None]:
        """A trigger that raises for the agent's rows of the point's table."""
        async with self._raw(subject.schema) as connection:
            await agent_probe.fail(connection, point, agent)
        try:
            yield
        finally:
            async with self._raw(subject.schema) as connection:
                await agent_probe.mend(connection)

    async def age(self, subject: PostgresSubject, seconds: float) -> None:
        """Change the rows."""
        async with self._raw(subject.schema) as connection:
            await agent_probe.age(connection, seconds)

    def _new_schema(self) -> str:
        if not self._made:
            atexit.register(self._drop)
        self._made.append(f"muniment_suite_{uuid4().hex[:12]}")
        return self._made[-1]

    def _drop(self) -> None:
        """Leave nothing on somebody's server."""
        with suppress(psycopg.Error), psycopg.connect(settings.parse(self._context).url or "") as connection:
            for schema in self._made:
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))

    async def _recycle(self, schema: str) -> None:
        empty = sql.SQL("; ").join(
            sql.SQL("DELETE FROM {}").format(sql.Identifier(table)) for table in reversed(_TABLES)
        )
        async with self._raw(schema) as connection:
            await connection.execute(empty)
        self._free.append(schema)

    def _client(self, schema: str) -> Storage:
        options = {**self._context.options, "schema": schema, "partitions": 2}
        return storage.create(PluginContext(self._context.spec, self._context.data_dir, options))

    async def _conninfo(self) -> str:
        return settings.parse(self._context).url or ""

    @asynccontextmanager
    async def _raw(self, schema: str) -> AsyncGenerator[AsyncConnection[Any]]:
        """A connection that the plugin knows nothing of."""
        async with await AsyncConnection.connect(await self._conninfo(), autocommit=True) as connection:
            await connection.execute("SELECT set_config('search_path', %s, false)", (f"{schema}, public",))
            yield connection


class EmbeddedTarget(PostgresTarget):
    """A server of the plugin's own, in a temporary directory."""

    def __init__(self) -> None:
        directory = Path(tempfile.mkdtemp(prefix="muniment-suite-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        super().__init__("embedded:", directory)
        self._directory = directory / "postgres"
        self._anchored = False

    def describe(self) -> Mapping[str, str]:
        """How it runs."""
        return {"storage": "embedded:"}

    async def crash(self, subject: PostgresSubject) -> None:
        """Kill the server's first process; the others follow it."""
        pid = int((self._directory / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[PostgresSubject]:
        """A subject in an empty schema; the server stays between subjects."""
        await self._anchor()
        async with super().open() as subject:
            yield subject

    def _drop(self) -> None:
        """The directory goes as a whole."""

    async def _anchor(self) -> None:
        from muniment_storage_postgres.embedded import server

        if not self._anchored:
            try:
                await asyncio.to_thread(server(self._directory).start)
            except MunimentError as error:
                raise NotRun(f"an embedded PostgreSQL cannot be started here: {error}") from error
            self._anchored = True

    async def _conninfo(self) -> str:
        from muniment_storage_postgres.embedded import server

        return await asyncio.to_thread(server(self._directory).revive)


def target(url: str | None = None) -> PostgresTarget:
    """The target for a server's URL, or for an embedded one."""
    if url is None or url.startswith("embedded:"):
        return EmbeddedTarget()
    return PostgresTarget(url, Path(tempfile.gettempdir()))


async def _stored(connection: AsyncConnection[Any]) -> Stored:
    passages = await _rows(
        connection,
        "SELECT o.key, s.id, coalesce(m.id, p.memory::text), p.hash, p.embedding::real[]::text FROM passage p "
        "JOIN space s ON s.number = p.space JOIN scope o ON o.number = p.scope "
        "LEFT JOIN memory m ON m.number = p.memory",
    )
    terms = await _rows(
        connection,
        "SELECT o.key, coalesce(m.id, p.memory::text), p.term, p.frequency FROM posting p "
        "JOIN scope o ON o.number = p.scope LEFT JOIN memory m ON m.number = p.memory "
        "WHERE NOT starts_with(p.term, ' ')",
    )
    entries = await _rows(connection, "SELECT id, action, memory_id, project_id FROM audit ORDER BY at, version, id")
    receipts = await _rows(connection, "SELECT count(*) FROM receipt")
    return Stored(
        passages=tuple(StoredPassage(*row[:4], vector=_floats(row[4])) for row in passages),
        terms=tuple(StoredTerm(*row) for row in terms),
        audit=tuple(StoredAudit(*row) for row in entries),
        receipts=receipts[0][0],
        rows={table: tuple(sorted(await _texts(connection, table))) for table in _TABLES},
        agents=await agent_probe.stored(connection),
    )


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(one) for one in text.strip("{}").split(","))


async def _texts(connection: AsyncConnection[Any], table: str) -> list[str]:
    query = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(table))
    return [row[0] for row in await (await connection.execute(query)).fetchall()]


async def _rows(connection: AsyncConnection[Any], statement: str) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement.encode())).fetchall()
