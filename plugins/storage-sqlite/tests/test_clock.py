"""Times when the machine's clock goes back: a memory's never do, and what was stored together has one time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from muniment import limits
from muniment.errors import VersionConflict
from muniment.ports import Audience, Create, NewProject, ReceiptClaim, ReceiptTaken, Revise, ShareChange, Storage
from muniment_storage_sqlite import times

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
Creation = Callable[[str, str], Create]
Revision = Callable[[str, int, str, str], Revise]
OWNER = Audience("alice")
NOON = 1_700_000_000_000_000_000
"""In nanoseconds since 1970, as the machine's clock has it."""
HOUR = 3_600_000_000_000


@pytest.fixture
def turn_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """What sets the storage's clock; it stands still."""

    def turn_to(at: int) -> None:
        monkeypatch.setattr(times, "time", SimpleNamespace(time_ns=lambda: at))

    turn_to(NOON)
    return turn_to


def claim(key: str) -> ReceiptClaim:
    """A claim of alice's for this key."""
    return ReceiptClaim(principal="alice", key=key, body_hash="b", subject="m", receipt={"id": "m"})


async def test_a_mutation_after_the_clock_went_back_has_one_time(
    path: Path, opened: Opened, creation: Creation, revision: Revision, turn_to: Callable[[int], None]
) -> None:
    """The memory, its audit entry and its receipt all have the time of the memory's last change."""
    async with opened(path) as storage:
        made = await storage.apply(replace(creation("m", "one"), claim=claim("first")))
        turn_to(NOON - HOUR)
        applied = await storage.apply(replace(revision("m", 1, "two", "alice"), claim=claim("second")))
        facts = await storage.load(OWNER, "m")
        trail = await storage.history(OWNER, "m", before=None, limit=10)
        receipt = await storage.find_receipt("alice", "second")

    assert facts is not None
    assert receipt is not None
    assert applied.updated_at == made.updated_at
    assert {facts.memory.updated_at, receipt.updated_at, *(one.at for one in trail)} == {made.updated_at}


async def test_a_claim_counts_before_everything_else(
    path: Path, opened: Opened, creation: Creation, revision: Revision
) -> None:
    """A key that is taken is refused before a stale version, and a stale version takes no key."""
    async with opened(path) as storage:
        await storage.apply(replace(creation("m", "one"), claim=claim("taken")))
        with pytest.raises(ReceiptTaken):
            await storage.apply(replace(revision("m", 9, "two", "alice"), claim=claim("taken")))
        with pytest.raises(VersionConflict):
            await storage.apply(replace(revision("m", 9, "two", "alice"), claim=claim("free")))
        assert await storage.find_receipt("alice", "free") is None


async def test_a_receipt_is_dropped_by_the_clock_alone(
    path: Path, opened: Opened, creation: Creation, revision: Revision, turn_to: Callable[[int], None]
) -> None:
    """A memory that is ahead of a clock that went back makes no receipt older than it is."""
    kept = limits.IDEMPOTENCY_KEPT // timedelta(microseconds=1) * 1_000
    async with opened(path) as storage:
        await storage.apply(creation("m", "one"))
        turn_to(NOON - kept)
        await storage.apply(replace(creation("other", "one"), claim=claim("kept")))
        turn_to(NOON - HOUR)
        await storage.apply(replace(revision("m", 1, "two", "alice"), claim=claim("second")))
        assert await storage.find_receipt("alice", "kept") is not None


async def test_a_grant_after_the_clock_went_back_has_one_time(
    path: Path, opened: Opened, creation: Creation, turn_to: Callable[[int], None]
) -> None:
    """The project's, which never goes back either."""
    audit = replace(creation("m", "one").audit, memory_id=None, project_id="p-1")
    async with opened(path) as storage:
        project, _ = await storage.register_project(NewProject("p-1", "acme/web", "alice", replace(audit, id="a-1")))
        turn_to(NOON - HOUR)
        applied = await storage.change_share(ShareChange("p-1", 1, "crew", None, replace(audit, id="a-2")))

    assert applied.updated_at == project.updated_at
