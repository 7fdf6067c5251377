"""What the suite needs of this plugin: empty subjects, raw reads, faults by trigger, and crashes by SIGKILL.

Each subject is a schema of its own in one database. Without a URL the database is an embedded one in a temporary
directory, which goes away with this process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from muniment import lexical
from muniment.conformance.places import PlacedSubject, PlacesTarget
from muniment.conformance.target import (
    AgentFaultPoint,
    FaultPoint,
    NotRun,
    Stored,
    StoredAudit,
    StoredPassage,
    StoredTerm,
)
from muniment.errors import MunimentError
from muniment.models import Agent
from muniment.ports import PluginContext, Storage
from muniment_storage_postgres import agent_probe, keys, settings, storage
from muniment_storage_postgres.agent_schema import metadata
from muniment_storage_postgres.layout import INDEX_OF_A_SPACE

_TABLE_OF = {
    FaultPoint.MEMORY: "memory",
    FaultPoint.AUDIT: "audit",
    FaultPoint.PASSAGES: "passage",
    FaultPoint.TERMS: "search_entry",
    FaultPoint.RECEIPT: "receipt",
    FaultPoint.PROJECT: "project",
}
_TABLES = [table.name for table in metadata.sorted_tables]
_TRIGGER = """
CREATE FUNCTION fail_for_the_suite() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a fault of the conformance suite' USING ERRCODE = 'io_error'; END $$;
CREATE TRIGGER fail_for_the_suite BEFORE INSERT OR UPDATE OR DELETE ON {table}
FOR EACH ROW EXECUTE FUNCTION fail_for_the_suite()
"""
_LAYOUT = """
WITH ours AS (
    SELECT c.oid, c.relname AS name FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
)
SELECT format('column %%s.%%s %%s%%s', o.name, a.attname, format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attnotnull THEN ' NOT NULL' END)
FROM ours o JOIN pg_attribute a ON a.attrelid = o.oid WHERE a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT format('constraint %%s.%%s %%s', o.name, k.conname, pg_get_constraintdef(k.oid))
FROM ours o JOIN pg_constraint k ON k.conrelid = o.oid
UNION ALL
SELECT format('index %%s', pg_get_indexdef(i.indexrelid))
FROM ours o JOIN pg_index i ON i.indrelid = o.oid JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relname !~ %s
"""


class PostgresTarget(PlacesTarget):
    """A server that is given by its URL; a place is a schema."""

    name = "storage-postgres"
    contract = "1.2"

    def __init__(self, spec: str, data_dir: Path) -> None:
        super().__init__()
        self._context = PluginContext(spec=spec, data_dir=data_dir)

    def describe(self) -> Mapping[str, str]:
        """The server, without its password."""
        configured = settings.parse(self._context)
        return {"storage": settings.place(configured.url or "")}

    def client(self, place: str) -> Storage:
        """With few partitions, since a schema of many takes longer to make."""
        options = {**self._context.options, "schema": place, "partitions": 2}
        return storage.create(PluginContext(self._context.spec, self._context.data_dir, options))

    async def empty(self, place: str) -> None:
        """Delete every row."""
        tables = (sql.Identifier(table) for table in reversed(_TABLES))
        statements = sql.SQL("; ").join(sql.SQL("DELETE FROM {}").format(table) for table in tables)
        async with self._raw(place) as connection:
            await connection.execute(statements)

    def remove(self, places: Sequence[str]) -> None:
        """Drop the schemas."""
        with suppress(psycopg.Error), psycopg.connect(settings.parse(self._context).url or "") as connection:
            for schema in places:
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))

    async def probe(self, subject: PlacedSubject) -> Stored:
        """Every row, in one snapshot."""
        async with self._raw(subject.place) as connection:
            await connection.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return await _stored(connection)

    @asynccontextmanager
    async def fault(self, subject: PlacedSubject, point: FaultPoint) -> AsyncGenerator[None]:
        """A trigger that raises for every row of the point's table."""
        table = sql.Identifier(_TABLE_OF[point])
        async with self._raw(subject.place) as connection:
            await connection.execute(sql.SQL(_TRIGGER).format(table=table))
        try:
            yield
        finally:
            async with self._raw(subject.place) as connection:
                await connection.execute(b"DROP FUNCTION fail_for_the_suite CASCADE")

    @asynccontextmanager
    async def fault_agent(self, subject: PlacedSubject, point: AgentFaultPoint, agent: Agent) -> AsyncGenerator[None]:
        """A trigger that raises for the agent's rows of the point's table."""
        async with self._raw(subject.place) as connection:
            await agent_probe.fail(connection, point, agent)
        try:
            yield
        finally:
            async with self._raw(subject.place) as connection:
                await agent_probe.mend(connection)

    async def layout(self, subject: PlacedSubject) -> frozenset[str]:
        """From the catalogue."""
        async with self._raw(subject.place) as connection:
            rows = await (await connection.execute(_LAYOUT.encode(), (INDEX_OF_A_SPACE,))).fetchall()
            return frozenset(row[0] for row in rows)

    async def age(self, subject: PlacedSubject, seconds: float) -> None:
        """Change the rows."""
        async with self._raw(subject.place) as connection:
            await agent_probe.age(connection, seconds)

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

    async def crash(self, subject: PlacedSubject) -> None:
        """Kill the server's first process; the others follow it."""
        pid = int((self._directory / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)

    def remove(self, places: Sequence[str]) -> None:
        """The directory goes as a whole."""

    async def start(self) -> bool:
        """Start the server; it stays between subjects."""
        from muniment_storage_postgres.embedded import server

        if not self._anchored:
            try:
                await asyncio.to_thread(server(self._directory).start)
            except MunimentError as error:
                raise NotRun(f"an embedded PostgreSQL cannot be started here: {error}") from error
            self._anchored = True
        return True

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
    words = await _words(connection)
    entries = await _rows(connection, "SELECT id, action, memory_id, project_id FROM audit ORDER BY at, version, id")
    receipts = await _rows(connection, "SELECT count(*) FROM receipt")
    return Stored(
        passages=tuple(StoredPassage(*row[:4], vector=_floats(row[4])) for row in passages),
        terms=words,
        audit=tuple(StoredAudit(*row) for row in entries),
        receipts=receipts[0][0],
        rows={table: tuple(sorted(await _texts(connection, table))) for table in _TABLES},
        agents=await agent_probe.stored(connection),
    )


async def _words(connection: AsyncConnection[Any]) -> tuple[StoredTerm, ...]:
    """What each memory is found by: its entry's own words, or the postings of its batch.

    A key is shown as the word of a stored text that has it, and as a number if there is none.
    """
    contents = await _rows(connection, "SELECT content FROM memory")
    known = {keys.key(term): term for (content,) in contents for term in lexical.analyse(content).frequencies}
    unsettled = await _rows(
        connection,
        "SELECT o.key, coalesce(m.id, k.memory::text), k.terms FROM search_keys k "
        "JOIN search_entry e ON e.scope = k.scope AND e.memory = k.memory AND e.batch = 0 "
        "JOIN scope o ON o.number = k.scope LEFT JOIN memory m ON m.number = k.memory",
    )
    found = [
        (scope, memory, entry >> keys.FREQUENCY_BITS, entry & keys.FREQUENCY)
        for scope, memory, packed in unsettled
        for entry in keys.entries([packed])[0].tolist()
    ]
    settled = await _rows(connection, "SELECT p.scope, p.batch, p.key, p.holders FROM posting p")
    members = await _rows(
        connection,
        "SELECT e.scope, e.batch, e.memory, o.key, coalesce(m.id, e.memory::text), k.tags FROM search_entry e "
        "JOIN search_keys k ON k.scope = e.scope AND k.memory = e.memory "
        "JOIN scope o ON o.number = e.scope LEFT JOIN memory m ON m.number = e.memory WHERE e.batch <> 0",
    )
    member = {row[:3]: row[3:] for row in members}
    for scope, batch, key, holders in settled:
        for holder in keys.entries([holders])[0].tolist():
            of = member.get((scope, batch, holder >> keys.FREQUENCY_BITS))
            if of is not None and key not in keys.entries([of[2]])[0] >> keys.FREQUENCY_BITS:
                found.append((of[0], of[1], key, holder & keys.FREQUENCY))
    return tuple(
        StoredTerm(scope, memory, known.get(key, f"key {key}"), frequency) for scope, memory, key, frequency in found
    )


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(one) for one in text.strip("{}").split(","))


async def _texts(connection: AsyncConnection[Any], table: str) -> list[str]:
    query = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(table))
    return [row[0] for row in await (await connection.execute(query)).fetchall()]


async def _rows(connection: AsyncConnection[Any], statement: str) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement.encode())).fetchall()
