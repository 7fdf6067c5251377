"""What a scope's trail reads, and whose events wait: each by an index that has only what is asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from muniment import access
from muniment.models import Agent
from muniment.ports import AuditDraft, Claim, NewEvent, NewProject, Position
from muniment_storage_mongo.schema import TRAIL_INDEX
from muniment_storage_mongo.storage import MongoStorage

SCOPE = "u:$ann"
MAX = 2
MINUTE = timedelta(minutes=1)


def entry(name: str, scope_key: str = SCOPE) -> AuditDraft:
    """An entry that belongs to no memory."""
    return AuditDraft(name, "ann", None, "test", "project.share", None, "p1", 1, (), scope_key, details={"$": name})


async def test_a_trail_is_paged_by_time_and_id(storage: MongoStorage, writer: Any, raw: Any) -> None:
    """Newest first, then by id, without what memories or other scopes have; each entry is on one page."""
    for name in "edcba":
        await storage.record(entry(name))
    await storage.record(entry("elsewhere", "u:ann"))
    placement = replace(access.own_placement("ann"), scope_key=SCOPE)
    await storage.apply(writer.create("m1", placement=placement))
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    for name, at in {"a": noon, "b": noon, "c": noon + MINUTE, "d": noon, "e": noon - MINUTE}.items():
        await raw.audit.update_one({"_id": name}, {"$set": {"at": at}})

    read: list[str] = []
    after = None
    while page := await storage.trail(SCOPE, after=after, limit=2):
        read += [one.id for one in page]
        after = Position(page[-1].at, page[-1].id)
    assert read == ["c", "a", "b", "d", "e"]
    (first,) = await storage.trail(SCOPE, after=None, limit=1)
    assert first == entry("c").record(noon + MINUTE)


async def test_a_trail_is_read_from_its_index(storage: MongoStorage, writer: Any, raw: Any) -> None:
    """A page costs its own entries, whatever else the scope has."""
    for number in range(30):
        await storage.apply(writer.create(f"m{number}"))
        await storage.record(entry(f"a{number:02}", "u:ann"))
    (last,) = await storage.trail("u:ann", after=None, limit=1)
    await raw.command({"profile": 2})
    assert len(await storage.trail("u:ann", after=Position(last.at, last.id), limit=3)) == 3
    await raw.command({"profile": 0})
    (done,) = await raw["system.profile"].find({"ns": f"{raw.name}.audit"}).to_list()
    assert TRAIL_INDEX in str((await raw.audit.index_information()).keys())
    assert (done["docsExamined"] <= 4, done.get("hasSortStage", False)) == (True, False)


async def test_those_are_told_for_whom_something_waits(storage: MongoStorage, raw: Any) -> None:
    """What a claim would get: new events, and those whose lease ran out, unless they are dead or acknowledged."""
    agents = {
        name: Agent(name=name, instance="a/b") for name in ("new", "out", "over", "dead", "acked", "none", "spare")
    }
    for name, agent in agents.items():
        if name != "none":
            await storage.enqueue(NewEvent(name, agent, {}))
    for name in ("out", "over", "dead", "acked"):
        (claimed,) = (await storage.claim(Claim(agents[name], (f"t-{name}",), MINUTE, MAX))).events
        if name == "acked":
            await storage.ack(agents[name], claimed.id, claimed.token)
    past = datetime.now(UTC) - MINUTE
    await raw.events.update_many({"_id.id": {"$in": ["over", "dead"]}}, {"$set": {"lease_until": past}})
    await raw.events.update_one({"_id.id": "dead"}, {"$set": {"attempts": MAX}})
    asked = [agent for name, agent in agents.items() if name != "spare"]

    assert await storage.agents_waiting(asked, attempts_max=MAX) == {agents["new"], agents["over"]}
    assert await storage.agents_waiting(asked, attempts_max=MAX + 1) == {agents["new"], agents["over"], agents["dead"]}
    assert await storage.agents_waiting([], attempts_max=MAX) == frozenset()


async def test_whose_events_wait_is_one_query_over_what_waits(storage: MongoStorage, raw: Any) -> None:
    """Events of others, and those that are acknowledged, are not looked at."""
    asked, others = [[Agent(name=f"{kind}{n}", instance="i") for n in range(20)] for kind in ("asked", "other")]
    for agent in (*asked, *others):
        await storage.enqueue(NewEvent(f"e-{agent.name}", agent, {}))
    for agent in asked[1:]:
        (claimed,) = (await storage.claim(Claim(agent, ("t",), MINUTE, MAX))).events
        await storage.ack(agent, claimed.id, claimed.token)
    await raw.command({"profile": 2})
    assert await storage.agents_waiting(asked, attempts_max=MAX) == {asked[0]}
    await raw.command({"profile": 0})
    (done,) = await raw["system.profile"].find({"ns": f"{raw.name}.events"}).to_list()
    assert done["docsExamined"] == 1


async def test_a_project_s_registration_is_in_its_trail(storage: MongoStorage, writer: Any) -> None:
    """It is stored with the project, as an entry without a memory."""
    audit = writer.audit(None, 1, access.project_key("p1"))
    project, _ = await storage.register_project(NewProject("p1", "p1", "ann", audit))
    assert await storage.trail("p:p1", after=None, limit=9) == [audit.record(project.created_at)]
