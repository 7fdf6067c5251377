"""What searches keep in memory is bounded, and what goes is read anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from muniment import access
from muniment.ports import Audience, Create, SearchQuery, Selector, Storage
from muniment.ranking import Fusion
from muniment_storage_sqlite import blocks
from muniment_storage_sqlite.blocks import Blocks

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
