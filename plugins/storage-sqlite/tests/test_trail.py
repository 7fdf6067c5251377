"""What a scope's trail reads, and whose events wait: each by an index that has only what is asked for."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from muniment.models import Agent
from muniment.ports import AuditDraft, Claim, Create, NewEvent, Position, Storage
from muniment_storage_sqlite import events, times, trail

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
Creation = Callable[[str, str], Create]
SCOPE = "u:alice"
MAX = 2
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def storage(path: Path, opened: Opened) -> AsyncGenerator[Storage]:
    """A storage."""
    async with opened(path) as made:
        yield made


def entry(name: str, scope_key: str = SCOPE) -> AuditDraft:
    """An entry that belongs to no memory."""
    return AuditDraft(name, "alice", None, "test", "project.share", None, "p-1", 1, (), scope_key, details={"n": name})


def plan(path: Path, work: Callable[[sqlite3.Connection], object]) -> str:
    """How SQLite carries out the one statement of ``work``."""
    made: list[str] = []
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        connection.set_trace_callback(made.append)
        work(connection)
        connection.set_trace_callback(None)
        (statement,) = made
        return "; ".join(row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}"))


async def test_a_trail_is_paged_by_time_and_id(
    storage: Storage, creation: Creation, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newest first, then by id, without what memories or other scopes have, read from an index in that order."""
    await storage.apply(creation("m", "text"))
    for name, at in {"d": 2, "b": 2, "c": 3, "a": 2, "e": 1}.items():
        monkeypatch.setattr(times, "time", SimpleNamespace(time_ns=lambda at=at: at * 1_000))
        await storage.record(entry(name))
    await storage.record(entry("elsewhere", "u:ann"))

    read: list[str] = []
    after = None
    while page := await storage.trail(SCOPE, after=after, limit=2):
        read += [one.id for one in page]
        after = Position(page[-1].at, page[-1].id)
    assert read == ["c", "a", "b", "d", "e"]
    assert (await storage.trail(SCOPE, after=None, limit=1))[0] == entry("c").record(times.moment(3))
    carried_out = plan(path, lambda on: trail.of_scope(on, SCOPE, after=None, limit=2))
    assert "USING INDEX audit_of_scope" in carried_out
    assert "TEMP B-TREE" not in carried_out


async def test_those_are_told_for_whom_something_waits(
    storage: Storage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a claim would get: new events, and those whose lease ran out, unless they are dead or acknowledged."""
    names = ("new", "out", "over", "dead", "acked", "none", "unasked")
    agents = {name: Agent(name=name, instance="a/b") for name in names}
    for name, agent in agents.items():
        if name != "none":
            await storage.enqueue(NewEvent(name, agent, {}))

    async def claim(*claiming: str) -> None:
        for name in claiming:
            assert (await storage.claim(Claim(agents[name], ("t",), MINUTE, MAX))).events

    await claim("over", "dead", "acked")
    await storage.ack(agents["acked"], "acked", "t")
    begun = times.now()
    for hours, name in ((1, "dead"), (2, "out")):
        later = begun + times.length(hours * 60 * MINUTE)
        monkeypatch.setattr(events, "now", lambda later=later: later)
        await claim(name)
    asked = [agent for name, agent in agents.items() if name != "unasked"]

    assert await storage.agents_waiting(asked, attempts_max=MAX) == {agents["new"], agents["over"]}
    assert await storage.agents_waiting([], attempts_max=MAX) == frozenset()
    carried_out = plan(path, lambda on: events.agents_waiting(on, asked, attempts_max=MAX))
    assert "USING INDEX events_open (agent=? AND instance=?)" in carried_out
