"""A file that an earlier release made."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import numpy as np
import pytest

from muniment.ports import Audience, NewToken, Progress, Storage
from muniment_storage_sqlite import schema

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
FIRST = """
    INSERT INTO scopes (number, key, user, generation) VALUES (1, 'u:alice', 'alice', 1);
    INSERT INTO memories (
        number, id, scope, deleted, version, created_at, updated_at, last_edited_by, analyser, words, tags, content
    ) VALUES
        (1, 'm-1', 1, 0, 1, 0, 0, 'alice', 'a', 2, '[]', 'A deed.'),
        (2, 'm-2', 1, 0, 1, 0, 0, 'alice', 'a', 2, '[]', 'A will.');
    INSERT INTO spaces (number, id, provider, model, dimensions, pooling, normalised, passage_tokens, probes)
    VALUES (1, 's-1', 'p', 'm', 2, 'mean', 1, 10, x'0000803f00000000'), (4, 's-4', 'p', 'm', 2, 'mean', 0, 10, x'');
    INSERT INTO passages (scope, space, memory, hash, vector) VALUES (1, 1, 1, 'h', x'0000803f00000000');
    INSERT INTO embedded (memory, space) VALUES (1, 1), (1, 4), (2, 4)
"""
"""What the first release stored."""


@pytest.fixture
def earlier(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the first release."""
    with monkeypatch.context() as patch, closing(sqlite3.connect(path, isolation_level=None)) as connection:
        patch.setattr(schema, "STEPS", schema.STEPS[:1])
        schema.bring_up_to_date(connection, path)
        connection.executescript(FIRST)
    return path


async def test_a_file_of_an_earlier_release_is_brought_up_to_date(earlier: Path, opened: Opened) -> None:
    """It keeps what it has, and gets what came since."""
    async with opened(earlier) as storage:
        facts = await storage.load(Audience("alice"), "m-1", space="s-1")
        assert facts is not None
        assert (facts.memory.content, facts.passages, facts.embedded) == ("A deed.", {"h"}, True)
        await storage.add_token(NewToken("t-1", "0" * 64, "alice", frozenset(), ("read",), None))
        assert (await storage.find_token("0" * 64)) is not None
        assert await storage.migrate() == ()


async def test_spaces_of_an_earlier_release_are_used_on(earlier: Path, opened: Opened) -> None:
    """They are registered, none is active, what was complete is, and a dropped one's number is not used again."""
    async with opened(earlier) as storage:
        found = await storage.list_spaces()
        assert [(one.space.id, one.space.normalised, one.activated_at) for one in found] == [
            ("s-1", True, None),
            ("s-4", False, None),
        ]
        assert [await storage.space_progress(one) for one in ("s-1", "s-4")] == [Progress(1, 2), Progress(2, 2)]
        assert await storage.drop_space("s-4")
        assert [await storage.space_progress(one) for one in ("s-1", "s-4")] == [Progress(1, 2), Progress(0, 2)]
        await storage.register_space(found[1].space, np.zeros((0, 2), dtype=np.float32))
    with closing(sqlite3.connect(earlier)) as connection:
        assert connection.execute("SELECT number FROM spaces WHERE id = 's-4'").fetchall() == [(5,)]
