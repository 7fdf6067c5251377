"""The schema: made once however many start at once, as the metadata says, and never used by an older release."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.errors import LockNotAvailable
from sqlalchemy import create_engine, text

from muniment.errors import ConfigurationError
from muniment.ports import Audience, Progress, SearchQuery, Selector, Space
from muniment.ranking import Fusion
from muniment_storage_postgres.layout import REVISIONS, SIDE_TABLES, VERSION_TABLE
from muniment_storage_postgres.schema import metadata
from muniment_storage_postgres.storage import PostgresStorage

Clients = Callable[..., PostgresStorage]

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)

MIGRATE = """
import sys
from muniment_storage_postgres.migrate import migrate
steps = migrate(sys.argv[1], place="test", schema=sys.argv[2], partitions=2)
print(len(steps), "sqlalchemy" in sys.modules)
"""
"""What one process does: print the number of steps that it took, and whether it loaded what a step needs."""


async def test_several_processes_at_once_migrate_once(url: str) -> None:
    """Four processes that start at once all end well; one of them alone took the steps, and loaded what they need."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", MIGRATE, url, "migrated_at_once", stdout=asyncio.subprocess.PIPE
        )
        for _ in range(4)
    ]
    async with asyncio.timeout(120):
        answers = [(await process.communicate())[0].decode().split() for process in processes]
    assert sorted(answers) == [*[["0", "False"]] * 3, [str(len(REVISIONS)), "True"]]


def test_the_known_revisions_are_the_migrations() -> None:
    """The list that start-up compares with is what Alembic finds."""
    config = Config()
    config.set_main_option("script_location", "muniment_storage_postgres:migrations")
    found = [one.revision for one in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(found)) == REVISIONS


async def test_the_metadata_is_what_the_migrations_make(url: str, clients: Clients) -> None:
    """Tables, columns and types are the same in both."""
    storage = clients()
    await storage.open()
    schema = (await storage.describe())["schema"].split()[0]
    await storage.close()

    def parents_only(thing: Any, name: str | None, kind: str, reflected: bool, other: Any) -> bool:
        partition = kind == "table" and any(str(name).startswith(f"{table}_") for table in SIDE_TABLES)
        return not partition and name != VERSION_TABLE

    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    with engine.connect() as connection:
        connection.execute(text(f"SET search_path = {schema}, public"))
        connection.dialect.default_schema_name = schema
        context = MigrationContext.configure(
            connection, opts={"include_object": parents_only, "compare_type": True, "target_metadata": metadata}
        )
        differences = compare_metadata(context, metadata)
    engine.dispose()
    assert differences == []


async def test_migrate_says_what_it_did(clients: Clients) -> None:
    """The first run names its steps, the second has none."""
    storage = clients(migrate=False)
    steps = await storage.migrate()
    assert len(steps) == len(REVISIONS)
    assert steps[0].startswith("0001 ")
    assert await storage.migrate() == ()
    await storage.open()
    await storage.close()


async def test_without_migrate_an_absent_schema_is_refused(clients: Clients) -> None:
    """`migrate = false` leaves the database alone and names the command."""
    with pytest.raises(ConfigurationError, match="run muniment migrate"):
        await clients(migrate=False).open()


async def test_a_schema_of_a_newer_release_is_refused(url: str, clients: Clients) -> None:
    """An unknown revision is never taken for an old one."""
    storage = clients()
    await storage.open()
    schema = (await storage.describe())["schema"].split()[0]
    await storage.close()
    with psycopg.connect(url) as connection:
        connection.execute(f"UPDATE {schema}.{VERSION_TABLE} SET version_num = '9999'".encode())
    with pytest.raises(ConfigurationError, match="upgrade muniment-storage-postgres"):
        await clients().open()
    with pytest.raises(ConfigurationError, match="upgrade muniment-storage-postgres"):
        await clients().migrate()


UNDO_WORDS = """
DROP TABLE search_entry, search_keys, posting, posting_batch;
CREATE TABLE search_entry (
    scope integer NOT NULL, memory bigint NOT NULL, length integer NOT NULL, analyser text COLLATE "C" NOT NULL,
    terms text[] COLLATE "C" NOT NULL, frequencies integer[] NOT NULL
) PARTITION BY HASH (scope);
CREATE TABLE posting (memory bigint, scope integer NOT NULL, frequency integer, term text) PARTITION BY HASH (scope);
CREATE TABLE search_entry_0 PARTITION OF search_entry FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE TABLE posting_0 PARTITION OF posting FOR VALUES WITH (MODULUS 1, REMAINDER 0);
INSERT INTO search_entry VALUES (1, 1, 3, 'an analyser', '{harbour,größe}', '{2,1}');
"""
"""What makes a schema one of revision 0004 again."""

UNDO = f"""{UNDO_WORDS}
DROP TABLE api_token;
ALTER TABLE space DROP COLUMN embedder, DROP COLUMN registered_at, DROP COLUMN activated_at;
DROP TABLE embedding_lease, approximate;
DROP INDEX memory_embedded;
CREATE INDEX memory_embedded ON memory (embedded_in) WHERE NOT deleted;
DROP INDEX audit_scope
"""
"""What makes a schema one of revision 0002 again."""


async def _write_often(connection: psycopg.Connection[Any]) -> None:
    for _ in range(50):
        connection.execute(b"UPDATE memory SET version = version")
        await asyncio.sleep(0.1)


async def test_who_writes_during_a_migration_waits(url: str, clients: Clients, writer: Any) -> None:
    """What a process of an earlier release would write while words are converted would be lost."""
    storage = clients()
    await storage.open()
    await storage.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
    await storage.apply(writer.create("m1"))
    schema = (await storage.describe())["schema"].split()[0]
    await storage.close()
    with psycopg.connect(url) as reading, psycopg.connect(url, autocommit=True) as writing:
        for connection in (reading, writing):
            connection.execute(f"SET search_path = {schema}, public".encode())
        reading.execute(UNDO_WORDS.encode())
        reading.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0004'".encode())
        reading.commit()
        reading.execute(b"SELECT count(*) FROM posting")
        migrating = asyncio.ensure_future(storage.migrate())
        writing.execute(b"SET lock_timeout = '200ms'")
        with pytest.raises(LockNotAvailable):
            await _write_often(writing)
        assert not migrating.done()
        reading.rollback()
        assert await migrating == ("0005 postings in batches",)


async def test_a_schema_of_an_earlier_release_is_brought_up_to_date(url: str, clients: Clients, writer: Any) -> None:
    """One without API tokens, and whose spaces have no times, gets them by the steps that it has not had; what is in it
    stays."""
    storage = clients()
    await storage.open()
    await storage.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
    await storage.apply(writer.create("m1", tags=["red"]))
    schema = (await storage.describe())["schema"].split()[0]
    await storage.close()
    with psycopg.connect(url) as connection:
        connection.execute(f"SET search_path = {schema}, public".encode())
        connection.execute(UNDO.encode())
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0002'".encode())
    assert await storage.migrate() == ("0003 api tokens", "0004 the registry of spaces", "0005 postings in batches")
    await storage.open()
    assert await storage.list_tokens(after=None, limit=1) == []
    (registered,) = await storage.list_spaces()
    assert (registered.space, registered.embedder, registered.activated_at) == (SPACE, None, None)
    assert await storage.space_progress(SPACE.id) == Progress(1, 1)
    for found_by in ({"harbour": 1.0}, {"größe": 1.0}, {}):
        tags = frozenset[str]() if found_by else frozenset({"red"})
        query = SearchQuery(found_by, tags, None, None, Fusion.weighted, None, 0, 5)
        (found,) = await storage.search(Audience("ann"), Selector(), query)
        assert (found.ranked.words is not None, found.ranked.tags is not None) == (bool(found_by), bool(tags))
    await storage.close()
