"""How the conformance suite gets at this plugin: a file of its own for each subject, clients in two processes.

The first client runs in a process of its own (``apart``), which ``crash`` kills; further ones in the suite's. So each
race is one of two processes for SQLite's lock.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from muniment.conformance.target import AgentFaultPoint, FaultPoint, NotRun, StorageTarget, Stored, Subject
from muniment.models import Agent
from muniment.ports import PluginContext, Storage
from muniment_storage_sqlite import DESCRIPTOR
from muniment_storage_sqlite.apart import Apart
from muniment_storage_sqlite.place import FILE, SCHEME
from muniment_storage_sqlite.probe import layout, stored
from muniment_storage_sqlite.storage import create
from muniment_storage_sqlite.times import now

T = TypeVar("T")

_TABLES: Final = {
    FaultPoint.MEMORY: ("memories",),
    FaultPoint.AUDIT: ("audit",),
    FaultPoint.PASSAGES: ("passages",),
    FaultPoint.TERMS: ("terms",),
    FaultPoint.RECEIPT: ("receipts",),
    FaultPoint.PROJECT: ("projects",),
    AgentFaultPoint.ENVELOPE: ("envelopes", "sections"),
    AgentFaultPoint.EVENT: ("events",),
}
"""What a fault point is stored in."""


@dataclass
class FileSubject(Subject):
    """A file, and the process of the first client on it."""

    path: Path
    apart: Apart


class SqliteTarget(StorageTarget[FileSubject]):
    """Files in new directories below ``parent``, by default the system's temporary directory."""

    name = DESCRIPTOR.name
    contract = DESCRIPTOR.contract
    capabilities = DESCRIPTOR.capabilities

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent

    def describe(self) -> Mapping[str, str]:
        """The version of SQLite, and where the files are."""
        return {"sqlite": sqlite3.sqlite_version, "files": self._parent or "temporary"}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[FileSubject]:
        """A new file with a client in a process of its own, gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="muniment-sqlite-", dir=self._parent) as directory:
            path = Path(directory, FILE)
            apart, storage = await Apart.start(path)
            try:
                yield FileSubject(storage, path, apart)
            finally:
                await apart.end()

    @asynccontextmanager
    async def second(self, subject: FileSubject) -> AsyncGenerator[Storage]:
        """A client on the same file in this process."""
        storage = create(PluginContext(spec=f"{SCHEME}{subject.path}", data_dir=subject.path.parent))
        await storage.open()
        try:
            yield storage
        finally:
            await storage.close()

    async def probe(self, subject: FileSubject) -> Stored:
        """Every row, by a connection of its own."""
        return await _on(subject, stored)

    @asynccontextmanager
    async def fault(self, subject: FileSubject, point: FaultPoint) -> AsyncGenerator[None]:
        """Triggers abort what is stored at ``point``."""
        async with _triggers(subject, _TABLES[point], "true"):
            yield

    @asynccontextmanager
    async def fault_agent(self, subject: FileSubject, point: AgentFaultPoint, agent: Agent) -> AsyncGenerator[None]:
        """Triggers abort what is stored of the agent."""
        condition = f"NEW.agent = '{agent.name}' AND NEW.instance = '{agent.instance}'"
        async with _triggers(subject, _TABLES[point], condition):
            yield

    async def layout(self, subject: FileSubject) -> frozenset[str]:
        """Tables and indexes as their statements; no index belongs to one space."""
        return await _on(subject, layout)

    async def age(self, subject: FileSubject, seconds: float) -> None:
        """Move the leases in the file."""

        def move(connection: sqlite3.Connection) -> None:
            by = (round(seconds * 1_000_000), now())
            connection.execute(
                "UPDATE events SET lease_until = lease_until - ? WHERE NOT acked AND lease_until > ?", by
            )
            connection.execute("UPDATE leases SET until = until - ? WHERE until > ?", by)

        await _on(subject, move)

    async def crash(self, subject: FileSubject) -> None:
        """``kill -9`` of the first client's process, in the middle of whatever it does."""
        await subject.apart.kill()


def target(url: str | None = None) -> StorageTarget[FileSubject]:
    """The target for ``url``, ``sqlite:DIRECTORY``, in which the files are made: that file system is judged.

    Raises NotRun where it is no directory.
    """
    directory = None if url is None else url.removeprefix(SCHEME)
    if directory is not None and not Path(directory).is_dir():
        raise NotRun(f"{url} names no directory for the suite's files; create it, or leave the URL out.")
    return SqliteTarget(directory)


async def _on(subject: FileSubject, work: Callable[[sqlite3.Connection], T]) -> T:
    """What ``work`` returns on a connection of its own to the subject's file; committed."""

    def run() -> T:
        with closing(sqlite3.connect(subject.path, timeout=30.0)) as connection, connection:
            return work(connection)

    return await asyncio.to_thread(run)


@asynccontextmanager
async def _triggers(subject: FileSubject, tables: Sequence[str], condition: str) -> AsyncGenerator[None]:
    names = {f"fault_{table}_{event}": (table, event) for table in tables for event in ("insert", "update")}

    def make(connection: sqlite3.Connection) -> None:
        for name, (table, event) in names.items():
            connection.execute(
                f"CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN {condition} "
                "BEGIN SELECT raise(ABORT, 'a fault of the suite'); END"
            )

    def drop(connection: sqlite3.Connection) -> None:
        for name in names:
            connection.execute(f"DROP TRIGGER {name}")

    await _on(subject, make)
    try:
        yield
    finally:
        await _on(subject, drop)
