"""Brings a database's schema up to date, however many processes start at once.

Owns the advisory lock, the extension and the schema that the tables are in, and runs Alembic on the synchronous driver;
callers use a worker thread. What a revision does is in ``migrations``.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from muniment.errors import ConfigurationError
from muniment_storage_postgres import refusals
from muniment_storage_postgres.layout import REVISIONS, VERSION_TABLE

_UNAVAILABLE = "58P01", "0A000", "22023"


def migrate(conninfo: str, *, place: str, schema: str, partitions: int) -> tuple[str, ...]:
    """Make the extension and the schema where they are missing, then run the revisions that are missing.

    Returns the names of the steps taken, such as ``0001 memories``. Raises ConfigurationError for a right or an
    extension that is missing and for a schema of a newer release, StorageUnavailable for a server that is not there.
    """
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            return _migrate(connection, place, schema, partitions)
    except psycopg.OperationalError as error:
        raise refusals.of_connection(error, place) from error
    except psycopg.Error as error:
        raise refusals.of_statement(error, place) from error


def standing(revision: str | None, *, place: str) -> bool:
    """Whether a schema at this revision is up to date. Raises ConfigurationError for one of a newer release."""
    if revision is not None and revision not in REVISIONS:
        raise ConfigurationError(
            f"PostgreSQL ({place}) has a schema of a newer release (revision {revision}); "
            "upgrade muniment-storage-postgres."
        )
    return revision == REVISIONS[-1]


def _migrate(connection: psycopg.Connection[Any], place: str, schema: str, partitions: int) -> tuple[str, ...]:
    # One key per schema, so that deployments that share a database do not wait for each other.
    connection.execute("SELECT pg_advisory_lock(hashtextextended('muniment ' || %s, 0))", (schema,))
    _ensure_utf8(connection, place)
    _ensure_extension(connection, place)
    if not _one(connection, "SELECT to_regnamespace(%s) IS NOT NULL", schema):
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    connection.execute("SELECT set_config('search_path', %s, false)", (search_path(connection, schema),))
    table = sql.Identifier(schema, VERSION_TABLE).as_string(connection)
    known = _one(connection, "SELECT to_regclass(%s) IS NOT NULL", table)
    revision = _one(connection, f"SELECT version_num FROM {table}") if known else None
    if standing(revision, place=place):
        return ()
    return _upgrade(connection, revision, partitions)


def search_path(connection: psycopg.Connection[Any], schema: str) -> str:
    """The schema of the tables, then the one that the extension is in."""
    home = _one(
        connection,
        "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'",
    )
    return ", ".join(sql.Identifier(name).as_string(connection) for name in (schema, home) if name)


def _ensure_utf8(connection: psycopg.Connection[Any], place: str) -> None:
    encoding = _one(connection, "SHOW server_encoding")
    if encoding != "UTF8":
        raise ConfigurationError(
            f"PostgreSQL ({place}) has the encoding {encoding}, which cannot hold every text; create the database with "
            "createdb --encoding UTF8 --template template0."
        )


def _ensure_extension(connection: psycopg.Connection[Any], place: str) -> None:
    if _one(connection, "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')"):
        return
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.errors.InsufficientPrivilege as error:
        raise refusals.without_extension(
            place,
            "lacks the extension vector, and this user may not make it; let an administrator of the database run "
            "CREATE EXTENSION vector in it.",
        ) from error
    except psycopg.Error as error:
        if error.sqlstate not in _UNAVAILABLE:
            raise
        raise refusals.without_extension(
            place, "does not have the extension vector installed; install pgvector on the server."
        ) from error


def _upgrade(connection: psycopg.Connection[Any], revision: str | None, partitions: int) -> tuple[str, ...]:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "muniment_storage_postgres:migrations")
    script = ScriptDirectory.from_config(config)
    steps = [
        f"{one.revision} {one.doc}" for one in script.iterate_revisions(script.get_current_head(), revision or "base")
    ]
    with _as_sqlalchemy(connection) as wrapped:
        config.attributes["connection"] = wrapped
        config.attributes["partitions"] = partitions
        command.upgrade(config, "head")
    return tuple(reversed(steps))


@contextmanager
def _as_sqlalchemy(connection: psycopg.Connection[Any]) -> Generator[Any]:
    """The same connection for Alembic, in one transaction."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    connection.autocommit = False
    engine = create_engine("postgresql+psycopg://", creator=lambda: connection, poolclass=StaticPool)
    with engine.begin() as wrapped:
        yield wrapped


def _one(connection: psycopg.Connection[Any], statement: str, *parameters: object) -> Any:
    row = connection.execute(statement.encode(), parameters).fetchone()
    return row[0] if row else None
