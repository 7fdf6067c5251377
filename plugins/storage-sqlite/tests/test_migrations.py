"""A file that an earlier release made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from muniment.ports import Audience, Create, NewToken, Storage
from muniment_storage_sqlite import schema

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
Creation = Callable[[str, str], Create]


async def test_a_file_of_an_earlier_release_is_brought_up_to_date(
    path: Path, opened: Opened, creation: Creation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps what it has, and gets what came since."""
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "STEPS", schema.STEPS[:1])
        async with opened(path) as storage:
            await storage.apply(creation("m-1", "A deed."))

    async with opened(path) as storage:
        assert (await storage.load(Audience("alice"), "m-1")) is not None
        await storage.add_token(NewToken("t-1", "0" * 64, "alice", frozenset(), ("read",), None))
        assert (await storage.find_token("0" * 64)) is not None
        assert await storage.migrate() == ()
