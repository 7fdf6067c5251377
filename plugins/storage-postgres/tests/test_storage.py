"""What the suite cannot see from the engine: races of background vectors, expired keys, whole names."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import psycopg
import pytest

from muniment import access, lexical, ranking
from muniment.errors import NotFound, StorageUnavailable, VersionConflict
from muniment.models import Access, Share
from muniment.ports import (
    Audience,
    NewProject,
    Passages,
    PassageVector,
    Placement,
    PluginContext,
    ReceiptClaim,
    ReceiptTaken,
    Remove,
    SearchQuery,
    Selector,
    ShareChange,
    Space,
)
from muniment_storage_postgres import mind, search
from muniment_storage_postgres.storage import PostgresStorage, create

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
ANN = Audience("ann")


async def project(storage: Any, writer: Any, group: str, project_id: str = "p1") -> Placement:
    """A project of another owner, read by a group."""
    audit = writer.audit(None, 1, access.project_key(project_id))
    await storage.register_project(NewProject(project_id, project_id, "owner", audit))
    await storage.change_share(
        ShareChange(project_id, 1, group, Share.RO, writer.audit(None, 2, access.project_key(project_id)))
    )
    return access.project_placement(project_id)


async def test_background_vectors_never_survive_an_edit_that_overtook_them(
    storage: PostgresStorage, url: str, writer: Any
) -> None:
    """An edit that waited for background vectors drops them, although its snapshot is older than they are."""
    await storage.apply(writer.create("m1", "first", index=writer.index("first", ("old",))))
    schema = (await storage.describe())["schema"].split()[0]
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(f"SET search_path = {schema}, public".encode())
        await other.execute("UPDATE memory SET embedded_in = embedded_in WHERE id = 'm1'")
        await other.execute(
            "INSERT INTO passage SELECT scope, space, memory, 'late', embedding FROM passage WHERE hash = 'old'"
        )
        edit = asyncio.ensure_future(storage.apply(writer.edit("m1", 1, "second", writer.index("second", ("new",)))))
        await asyncio.sleep(0.3)
        assert not edit.done()
        await other.commit()
    assert (await edit).version == 2
    facts = await storage.load(ANN, "m1", space=SPACE.id)
    assert facts is not None
    assert facts.passages == {"new"}


async def test_background_vectors_for_an_old_version_are_dropped(storage: PostgresStorage, writer: Any) -> None:
    """Only the version that was read may get them; they change neither version nor times."""
    await storage.apply(writer.create("m1", "first"))
    before = await storage.load(ANN, "m1", space=SPACE.id)
    late = Passages(SPACE.id, frozenset({"x"}), (PassageVector("x", np.ones(8, dtype=np.float32)),), complete=False)
    assert not await storage.store_passages("m1", 2, late)
    assert await storage.store_passages("m1", 1, late)
    after = await storage.load(ANN, "m1", space=SPACE.id)
    assert before is not None
    assert after is not None
    assert (after.memory, after.passages, after.embedded) == (before.memory, {"x"}, False)
    assert [one.memory_id for one in await storage.unembedded(SPACE.id, limit=9)] == ["m1"]


async def test_terms_of_another_analyser_are_found_and_replaced(storage: PostgresStorage, writer: Any) -> None:
    """Only terms of another analyser are outdated; they are replaced for the version that was read, tags stay."""
    await storage.apply(writer.create("m1", "first words", tags=("kept",)))
    assert await storage.outdated_terms(lexical.ANALYSER, limit=9) == []
    assert [one.memory_id for one in await storage.outdated_terms("another", limit=9)] == ["m1"]
    terms = lexical.analyse("quite different")
    assert not await storage.store_terms("m1", 2, "another", terms)
    assert await storage.store_terms("m1", 1, "another", terms)
    assert await storage.outdated_terms("another", limit=9) == []
    query = SearchQuery(
        terms=lexical.query_terms("different"),
        tags=frozenset({"kept"}),
        vector=None,
        space=None,
        fusion=ranking.Fusion.weighted,
        min_score=None,
        offset=0,
        limit=9,
    )
    (found,) = await storage.search(ANN, Selector(), query)
    assert found.ranked.words is not None
    assert found.ranked.tags is not None


async def test_a_taken_key_undoes_the_whole_write_and_an_expired_one_is_replaced(
    storage: PostgresStorage, url: str, writer: Any
) -> None:
    """ReceiptTaken leaves nothing; after 24 hours the key is free."""

    def claim(memory_id: str) -> ReceiptClaim:
        return ReceiptClaim("ann", "key", "body", memory_id, {"id": memory_id})

    await storage.apply(writer.create("m1", claim=claim("m1")))
    with pytest.raises(ReceiptTaken):
        await storage.apply(writer.create("m2", claim=claim("m2")))
    assert await storage.load(ANN, "m2") is None
    schema = (await storage.describe())["schema"].split()[0]
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(f"UPDATE {schema}.receipt SET at = at - %s".encode(), (timedelta(hours=25),))
    assert await storage.find_receipt("ann", "key") is None
    await storage.apply(writer.create("m3", claim=claim("m3")))
    kept = await storage.find_receipt("ann", "key")
    assert kept is not None
    assert kept.subject == "m3"


async def test_a_mutation_says_why_it_was_not_applied(storage: PostgresStorage, writer: Any) -> None:
    """A stale version is told from a memory that is not there, and from one that is deleted."""
    await storage.apply(writer.create("m1"))
    await storage.apply(writer.edit("m1", 1, "second"))
    with pytest.raises(VersionConflict) as caught:
        await storage.apply(writer.edit("m1", 1, "third"))
    assert caught.value.current_version == 2
    with pytest.raises(NotFound):
        await storage.apply(writer.edit("m2", 1, "third"))
    await storage.apply(Remove(memory_id="m1", editor="ann", audit=writer.audit("m1", 3), expected_version=2))
    with pytest.raises(NotFound):
        await storage.apply(writer.edit("m1", 3, "third"))
    assert len(await storage.history(ANN, "m1", before=None, limit=9)) == 3


async def test_the_first_writers_of_a_scope_share_its_number(storage: PostgresStorage, writer: Any) -> None:
    """Writes into a scope that nobody wrote to before all succeed at once, and one search finds them all."""
    await asyncio.gather(*(storage.apply(writer.create(f"m{number}", "harbour")) for number in range(8)))
    query = SearchQuery(
        terms=lexical.query_terms("harbour"),
        tags=frozenset(),
        vector=None,
        space=None,
        fusion=ranking.Fusion.weighted,
        min_score=None,
        offset=0,
        limit=9,
    )
    found = await storage.search(ANN, Selector(), query)
    assert [one.memory.id for one in found] == [f"m{number}" for number in range(8)]


async def test_names_are_compared_whole(storage: PostgresStorage, writer: Any) -> None:
    """No pattern, prefix, case or trailing space makes one name match another."""
    placement = await project(storage, writer, "a_b")
    await storage.apply(writer.create("m1", placement=placement))
    for group in ("axb", "a", "a_b ", "A_B", "%", "a_bc"):
        audience = Audience("ann", frozenset({group}))
        assert await storage.load(audience, "m1") is None
        assert await storage.list_memories(audience, Selector(), after=None, limit=9) == []
        assert await storage.find_projects(audience, "p1") == []
    readers = Audience("ann", frozenset({"a_b"}))
    assert await storage.load(readers, "m1") is not None
    assert await storage.load(Audience("ann", frozenset({"a_b"}), Access.WRITE), "m1") is None
    assert [one.key for one in await storage.find_projects(readers, "p1")] == ["p1"]


async def test_many_callers_at_once_wait_their_turn(storage: PostgresStorage, writer: Any) -> None:
    """Far more callers than connections are all answered."""
    await storage.apply(writer.create("m1"))
    answers = await asyncio.gather(*(storage.load(ANN, "m1") for _ in range(3000)))
    assert all(answers)


async def test_whoever_waits_in_line_is_refused_once_the_storage_is_closed(url: str, tmp_path: Path) -> None:
    """What runs is finished; nothing begins after ``close``."""
    storage = create(PluginContext(url, tmp_path, {"schema": "closed_in_line", "pool_size": 1}))
    await storage.open()
    running = asyncio.create_task(storage._database.read(_asleep))  # pyright: ignore[reportPrivateUsage]
    await asyncio.sleep(0.1)
    waiting = [asyncio.create_task(storage.load(ANN, "m1")) for _ in range(3)]
    await asyncio.sleep(0)
    await storage.close()
    await running
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in ended] == [StorageUnavailable] * 3


async def _asleep(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("SELECT pg_sleep(0.5)")


async def test_engines_that_open_one_storage_at_once_share_its_connections(url: str, tmp_path: Path) -> None:
    """One of them connects, and one ``close`` leaves nothing."""
    storage = create(PluginContext(url, tmp_path, {"schema": "opened_at_once"}))
    before = len(asyncio.all_tasks())
    await asyncio.gather(*(storage.open() for _ in range(3)))
    await storage.close()
    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) == before


async def test_ids_that_are_forgotten_meanwhile_are_still_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that waits for one id keeps those that it knew, although another search makes room."""
    other_is_done = asyncio.Event()

    async def rows(connection: Any, statement: str, parameters: Any) -> list[tuple[int, str]]:
        numbers = parameters["numbers"].values.tolist()
        if numbers == [3]:
            await other_is_done.wait()
        return [(number, f"m{number}") for number in numbers]

    monkeypatch.setattr(search, "rows", rows)
    monkeypatch.setattr(mind, "_KNOWN_NAMES", 3)
    names = mind.Names()

    async def ids(numbers: list[int]) -> list[str]:
        return await search.ids(cast(Any, None), names, numbers)

    assert await ids([1]) == ["m1"]
    waiting = asyncio.create_task(ids([1, 3]))
    await asyncio.sleep(0)
    assert await ids([4, 5, 6]) == ["m4", "m5", "m6"]
    other_is_done.set()
    assert await waiting == ["m1", "m3"]
