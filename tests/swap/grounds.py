"""Where the swap is tried: a server of the test's own, what a command needs to reach it, and what is stored there."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from pymongo import MongoClient

from muniment.conformance.places import PlacedSubject
from muniment.conformance.target import Stored
from muniment.ports import PluginContext, Storage
from muniment_storage_mongo.conformance import MongoTarget
from muniment_storage_mongo.mongod import ReplicaSet
from muniment_storage_mongo.storage import create as create_mongo
from muniment_storage_postgres.conformance import PostgresTarget
from muniment_storage_postgres.embedded import server
from muniment_storage_postgres.storage import create as create_postgres

PLACE = "muniment"
"""The schema, or the database."""
_COLUMNS = """
SELECT table_name, column_name, udt_name, is_nullable FROM information_schema.columns WHERE table_schema = %s
"""
_CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = %s::regnamespace
"""


class Ground(ABC):
    """A server; ``arguments`` are a command's for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    @abstractmethod
    def arguments(self) -> list[str]:
        """The options that lead a command here."""

    @abstractmethod
    def storage(self) -> Storage:
        """A client, as a server has one."""

    @abstractmethod
    async def stored(self) -> Stored:
        """What there is, read around the plugin."""

    @abstractmethod
    async def layout(self) -> Mapping[str, Any]:
        """Tables, columns and constraints, without the indexes of a space."""


class Postgres(Ground):
    """An embedded server, which several processes share."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._target = _Embedded(directory)

    @property
    def arguments(self) -> list[str]:
        return ["--storage", "embedded:", "--data-dir", str(self.directory)]

    def storage(self) -> Storage:
        return create_postgres(PluginContext("embedded:", self.directory))

    async def stored(self) -> Stored:
        return await self._target.probe(PlacedSubject(self.storage(), PLACE))

    async def layout(self) -> Mapping[str, Any]:
        async with await psycopg.AsyncConnection.connect(await self._target.conninfo()) as connection:
            columns = await (await connection.execute(_COLUMNS, (PLACE,))).fetchall()
            constraints = await (await connection.execute(_CONSTRAINTS, (PLACE,))).fetchall()
        return {"columns": sorted(columns), "constraints": sorted(constraints)}


class _Embedded(PostgresTarget):
    def __init__(self, directory: Path) -> None:
        super().__init__("embedded:", directory)
        self._directory = directory / "postgres"

    async def conninfo(self) -> str:
        return await self._conninfo()

    async def _conninfo(self) -> str:
        return await asyncio.to_thread(server(self._directory).revive)


class Mongo(Ground):
    """A replica set of one."""

    def __init__(self, directory: Path, replica_set: ReplicaSet) -> None:
        super().__init__(directory)
        self._url = replica_set.url(PLACE)
        self._target = MongoTarget(self._url)

    @property
    def arguments(self) -> list[str]:
        return ["--storage", self._url, "--data-dir", str(self.directory)]

    def storage(self) -> Storage:
        return create_mongo(PluginContext(self._url, self.directory))

    async def stored(self) -> Stored:
        return await self._target.probe(PlacedSubject(self.storage(), PLACE))

    async def layout(self) -> Mapping[str, Any]:
        return await asyncio.to_thread(self._collections)

    def _collections(self) -> Mapping[str, Any]:
        client: MongoClient[dict[str, Any]] = MongoClient(self._url)
        with client:
            database = client[PLACE]
            listed = sorted(database.list_collections(), key=lambda one: one["name"])
            return {
                one["name"]: (one.get("options"), sorted(database[one["name"]].index_information())) for one in listed
            }
