"""What searches keep in memory is bounded, and what goes is read anew."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muniment import access
from muniment.ports import Audience, Create, Passages, PassageVector, SearchQuery, Selector, Space, Storage
from muniment.ranking import Fusion
from muniment_storage_sqlite import blocks
from muniment_storage_sqlite.blocks import Blocks, Memories

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
Creation = Callable[[str, str], Create]
OWNERS = ("ann", "bob", "eve")


@pytest.fixture
async def filled(path: Path, opened: Opened, creation: Creation) -> Path:
    """A file with one memory of each owner."""
    async with opened(path) as storage:
        for owner in OWNERS:
            made = creation(f"m-{owner}", "word")
            await storage.apply(replace(made, placement=access.own_placement(owner)))
    return path


async def test_the_memories_of_scopes_that_were_not_searched_for_long_go(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many stay as there is room for, those that were used last; what has gone is read anew."""
    kept = Blocks()
    with closing(sqlite3.connect(filled)) as connection:
        first = kept.memories(connection, 1, 1)
        monkeypatch.setattr(blocks, "KEPT", 2 * first.size + 1)
        second = kept.memories(connection, 2, 1)
        assert kept.memories(connection, 1, 1) is first
        third = kept.memories(connection, 3, 1)
        assert kept.memories(connection, 1, 1) is first
        assert kept.memories(connection, 3, 1) is third
        again = kept.memories(connection, 2, 1)
        assert again is not second
        assert again.numbers.tolist() == second.numbers.tolist()


async def test_one_scope_that_is_larger_than_all_room_stays_until_the_next(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its searches would else read it anew."""
    monkeypatch.setattr(blocks, "KEPT", 0)
    kept = Blocks()
    with closing(sqlite3.connect(filled)) as connection:
        first = kept.memories(connection, 1, 1)
        assert kept.memories(connection, 1, 1) is first
        kept.memories(connection, 2, 1)
        assert kept.memories(connection, 1, 1) is not first


async def test_searches_are_right_where_nothing_is_kept(
    filled: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each owner finds its own, in turn and again."""
    monkeypatch.setattr(blocks, "KEPT", 0)
    query = SearchQuery({"word": 1.0}, frozenset(), np.ones(8, dtype=np.float32), "s", Fusion.weighted, None, 0, 10)
    async with opened(filled) as storage:
        for owner in OWNERS * 2:
            found = await storage.search(Audience(owner), Selector(), query)
            assert [one.memory.id for one in found] == [f"m-{owner}"]


async def test_a_block_is_made_once(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads need it at once: each would take the memory of another one."""
    kept, made = Blocks(), list[str]()
    together = threading.Barrier(4)

    def fetch(connection: sqlite3.Connection, select: str, parameters: Any) -> Any:
        made.append(select)
        return blocks_fetch(connection, select, parameters)

    blocks_fetch = blocks.fetch
    monkeypatch.setattr(blocks, "fetch", fetch)

    def asked() -> Memories:
        with closing(sqlite3.connect(filled)) as connection:
            together.wait(20)
            return kept.memories(connection, 1, 1)

    with ThreadPoolExecutor(4) as threads:
        given = [one.result() for one in [threads.submit(asked) for _ in range(4)]]
    assert len(made) == 1
    assert all(one is given[0] for one in given)


async def test_an_older_snapshot_replaces_nothing(filled: Path) -> None:
    """It reads what it needs for itself; who comes later has what is newer."""
    kept = Blocks()
    with closing(sqlite3.connect(filled)) as connection:
        newer = kept.memories(connection, 1, 2)
        assert kept.memories(connection, 1, 1) is not newer
        assert kept.memories(connection, 1, 2) is newer


async def test_what_was_closed_is_read_anew(path: Path, opened: Opened, creation: Creation) -> None:
    """A backup that took the file's place meanwhile comes to the same generations with other vectors."""
    backup, space = path.with_suffix(".bak"), Space("s", "p", "m", 8, "mean", False, 10)

    async def written(storage: Storage, memory: str, vector: int) -> list[str]:
        vectors = (PassageVector(memory, np.eye(8, dtype=np.float32)[vector]),)
        passages = Passages(space.id, frozenset({memory}), vectors, complete=True)
        made = creation(memory, "word")
        assert made.index is not None
        await storage.apply(replace(made, index=replace(made.index, passages=passages)))
        query = SearchQuery({}, frozenset(), np.eye(8, dtype=np.float32)[0], space.id, Fusion.weighted, 0.4, 0, 10)
        return [one.memory.id for one in await storage.search(Audience("alice"), Selector(), query)]

    async with opened(path) as storage:
        await storage.register_space(space, np.eye(8, dtype=np.float32)[:1])
        await storage.close()
        shutil.copyfile(path, backup)
        await storage.open()
        assert await written(storage, "m-1", 0) == ["m-1"]
        await storage.close()
        backup.replace(path)
        await storage.open()
        assert await written(storage, "m-2", 5) == []
