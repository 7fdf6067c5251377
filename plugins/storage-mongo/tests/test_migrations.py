"""The schema: made once however many start at once, as the code says, and never used by an older release."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from muniment.errors import ConfigurationError
from muniment.ports import Passages, Progress
from muniment_storage_mongo.migrate import COLLECTIONS
from muniment_storage_mongo.schema import API_TOKENS, STANDING, VERSION
from muniment_storage_mongo.storage import MongoStorage

SPACE = "test:8"
REGISTRY_FIELDS = ("registration", "registered_at", "activated_at", "embedder")
Clients = Callable[..., MongoStorage]

OPEN = """
import asyncio, sys
from pathlib import Path
from muniment.ports import PluginContext
from muniment_storage_mongo.storage import create

async def main() -> None:
    storage = create(PluginContext(sys.argv[1], Path(".")))
    await storage.open()
    await storage.close()

asyncio.run(main())
"""


async def test_several_processes_at_once_make_one_schema(url: str, raw: Any) -> None:
    """Four processes that start at once all end well, and every collection has its validator and its indexes."""
    processes = [await asyncio.create_subprocess_exec(sys.executable, "-c", OPEN, url) for _ in range(4)]
    async with asyncio.timeout(120):
        assert [await process.wait() for process in processes] == [0, 0, 0, 0]
    await is_whole(raw)


async def is_whole(raw: Any) -> None:
    """Collections, validators and indexes are what the code says, and nothing else is there."""
    found = {one["name"]: one["options"] async for one in await raw.list_collections()}
    assert set(found) == {STANDING, *(one.name for one in COLLECTIONS)}
    for one in COLLECTIONS:
        assert found[one.name].get("validator", {}) == one.validator
        made = await raw[one.name].index_information()
        assert set(made) == {"_id_", *(index.document["name"] for index in one.indexes)}
        for index in one.indexes:
            assert made[index.document["name"]]["key"] == list(index.document["key"].items())


async def test_migrate_says_what_it_did_and_can_be_repeated(clients: Clients, raw: Any) -> None:
    """The first run names its steps, the second has none; one that was cut off is finished by the next."""
    storage = clients(migrate=False)
    steps = await storage.migrate()
    assert steps == (*(f"collection {one.name}" for one in COLLECTIONS), f"schema {VERSION}")
    assert await storage.migrate() == ()
    await raw[STANDING].delete_many({})
    await raw[COLLECTIONS[0].name].drop_indexes()
    assert await storage.migrate() == (f"schema {VERSION}",)
    await is_whole(raw)
    await storage.open()
    await storage.close()


async def test_a_schema_of_an_earlier_release_is_brought_up_to_date(clients: Clients, raw: Any) -> None:
    """One without API tokens gets their collection when it is opened, and keeps what it has."""
    storage = clients()
    await storage.migrate()
    await raw[API_TOKENS].drop()
    await raw[STANDING].update_one({}, {"$set": {"version": 1}})
    assert await storage.migrate() == (f"collection {API_TOKENS}", f"schema {VERSION}")
    await is_whole(raw)


async def test_spaces_of_an_earlier_release_are_used_on(
    storage: MongoStorage, clients: Clients, writer: Any, raw: Any
) -> None:
    """Several that open one of version 2 at once bring spaces, memories and indexes up to date; its vectors count."""
    for number in range(3):
        await storage.apply(writer.create(f"m{number}"))
    await storage.store_passages("m1", 1, Passages(SPACE, frozenset(), (), complete=False))
    await storage.close()
    for name in ("spaces", "memories"):
        await raw.command({"collMod": name, "validator": {}})
    await raw.gates.drop()
    await raw.lanes.update_many({}, {"$unset": {"spaces": 1}})
    await raw.spaces.update_many({}, {"$unset": dict.fromkeys(REGISTRY_FIELDS, 1)})
    before = {"embedded": "$embedded_in.spaces", "newest_space": {"$first": "$embedded_in.spaces"}}
    await raw.memories.update_many({}, [{"$set": before}, {"$unset": ["embedded_in"]}])
    await raw.memories.create_index(["deleted", "newest_space"], name="unembedded")
    await raw.passages.create_index(["scope_key", "space"], name="space")
    await raw[STANDING].update_one({}, {"$set": {"version": 2}})

    several = [clients() for _ in range(3)]
    await asyncio.gather(*(one.open() for one in several))

    await is_whole(raw)
    (registered,) = await several[0].list_spaces()
    assert (registered.space.id, registered.embedder, registered.activated_at) == (SPACE, None, None)
    assert await several[1].space_progress(SPACE) == Progress(2, 3)
    assert [one.memory_id for one in await several[2].unembedded(SPACE, limit=9)] == ["m1"]
    assert await several[2].store_passages("m1", 1, Passages(SPACE, frozenset(), (), complete=True))
    assert not await raw.memories.count_documents(
        {"$or": [{"embedded": {"$exists": 1}}, {"newest_space": {"$exists": 1}}]}
    )
    assert await several[1].drop_space(SPACE)


async def test_without_migrate_an_absent_schema_is_refused(clients: Clients, raw: Any) -> None:
    """`migrate = false` leaves the database alone and names the command."""
    with pytest.raises(ConfigurationError, match="run muniment migrate"):
        await clients(migrate=False).open()
    assert await raw.list_collection_names() == []


async def test_a_schema_of_a_newer_release_is_refused(clients: Clients, raw: Any) -> None:
    """A higher version is never taken for an old one, and stays."""
    await raw[STANDING].insert_one({"_id": "schema", "version": VERSION + 1})
    with pytest.raises(ConfigurationError, match="upgrade muniment-storage-mongo"):
        await clients().open()
    with pytest.raises(ConfigurationError, match="upgrade muniment-storage-mongo"):
        await clients().migrate()
    assert await raw.list_collection_names() == [STANDING]


async def test_a_document_of_a_foreign_shape_is_kept_out(clients: Clients, raw: Any) -> None:
    """Each collection refuses, by its validator, a document that is none of its own."""
    storage = clients()
    await storage.open()
    await storage.close()
    for one in COLLECTIONS:
        with pytest.raises(Exception, match="failed validation"):
            await raw[one.name].insert_one({"foreign": True})
