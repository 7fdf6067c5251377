"""Brings a database's collections, validators and indexes up to date, however many processes start at once.

Every step can be repeated and may be taken by several processes at the same moment: what another one made meanwhile is
as good as made. The version is written last, so a database that has it has everything.
"""

from __future__ import annotations

from pymongo.errors import OperationFailure

from muniment.errors import ConfigurationError
from muniment_storage_mongo import agent_schema, schema, upgrade
from muniment_storage_mongo.database import Database
from muniment_storage_mongo.schema import STANDING, VERSION, Collection

COLLECTIONS = (*schema.COLLECTIONS, *agent_schema.COLLECTIONS)
"""Every collection of a database."""

_ID = "schema"
_NAMESPACE_EXISTS = 48
_INDEX_NOT_FOUND = 27


async def version(database: Database) -> int:
    """The version that a database has; 0 for none. Raises ConfigurationError for one of a newer release."""
    found = await database.read(lambda: database.collection(STANDING).find_one({"_id": _ID}))
    number = int(found["version"]) if found else 0
    if number > VERSION:
        raise ConfigurationError(
            f"MongoDB ({database.place}) has a schema of a newer release (version {number}); "
            "upgrade muniment-storage-mongo."
        )
    return number


async def migrate(database: Database) -> tuple[str, ...]:
    """Make what is missing; the names of the steps taken, such as ``collection memories``.

    Raises ConfigurationError for a right that is missing and for a schema of a newer release, StorageUnavailable.
    """
    if await version(database) == VERSION:
        return ()
    there = set(await database.read(database.names))
    steps: list[str] = []
    for one in COLLECTIONS:
        if one.name not in there and await _make(database, one):
            steps.append(f"collection {one.name}")
        await _validate(database, one)
        if one.indexes:
            await _index(database, one)
    await upgrade.documents(database)
    for name, indexes in schema.RETIRED.items():
        for retired in indexes:
            await _retire(database, name, retired)
    await database.write(
        lambda: database.collection(STANDING).update_one({"_id": _ID}, {"$max": {"version": VERSION}}, upsert=True)
    )
    return (*steps, f"schema {VERSION}")


async def _make(database: Database, one: Collection) -> bool:
    """Whether this process made the collection."""

    async def make() -> bool:
        try:
            await database.create(one.name)
        except OperationFailure as error:
            if error.code != _NAMESPACE_EXISTS:
                raise
            return False
        return True

    return await database.write(make)


async def _validate(database: Database, one: Collection) -> None:
    change = {"collMod": one.name, "validator": one.validator}
    await database.write(lambda: database.command(change))


async def _index(database: Database, one: Collection) -> None:
    await database.write(lambda: database.collection(one.name).create_indexes(list(one.indexes)))


async def _retire(database: Database, name: str, index: str) -> None:
    """Drop an index that earlier releases used."""

    async def drop() -> None:
        try:
            await database.collection(name).drop_index(index)
        except OperationFailure as error:
            if error.code != _INDEX_NOT_FOUND:
                raise

    await database.write(drop)
