"""What the calls are about: one project with its memories, one agent with its events, and what others have beside them.

It is made once, and put back before each call as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

from muniment.authentication.audited_tokens import AuditedTokens
from muniment.engine import Engine
from muniment.limits import ATTEMPTS_MAX
from muniment.models import Agent, CallContext, Principal
from muniment.reference import ReferenceData, ReferenceStorage
from tests.matrix.rules import (
    ADA,
    CALLERS,
    DEAD,
    GONE,
    LIVE,
    OWN,
    OWN_GONE,
    OWNER,
    POD,
    POD_MATE,
    PRIVATE,
    PUBLIC,
    SILENT,
    TAKEAWAY,
    TOKEN,
    WAITING,
    Who,
)

SPARE = "corp:spare"
"""A group that every owner of the key shares with."""
FRAGMENT = "harbour"
LEASE = 600

NAMED = {who.name: who for who in CALLERS}

Rows = Mapping[str, Mapping[object, object]]
"""What is stored: the rows of each table by their keys."""


@dataclass(frozen=True)
class Place:
    """The names that a call may use. ``mine`` is a memory in the caller's own scope."""

    key: str
    project: str
    live: str
    gone: str
    own: str
    own_gone: str
    event: str
    token: str
    dead: str
    mine: str

    def elsewhere(self) -> Place:
        """The same with names of nothing that exists, but for the caller's own."""
        return Place(**{**NOWHERE, "mine": self.mine})

    def unnamed(self, text: str) -> str:
        """A text with each name in it as what it is the name of."""
        for one in fields(self):
            text = text.replace(getattr(self, one.name), f"<{one.name}>")
        return text


NOWHERE = {one.name: str(uuid4()) for one in fields(Place)} | {"key": "acme/nowhere"}
"""Names of nothing."""


class Estate:
    """The place in a storage. ``rows`` is all that belongs to it, others' things left out."""

    def __init__(self, storage: ReferenceStorage, place: Place, mine: Mapping[str, str], own: Rows) -> None:
        self._storage = storage
        self._place = place
        self._mine = mine
        self._own = own
        self._kept = _copied(storage.data)
        self._shown = repr(_rows(self._kept))

    def place_of(self, who: Who) -> Place:
        """The names that this caller's calls use."""
        return Place(**{**_members(self._place), "mine": self._mine[who.spelled]})

    def put_back(self) -> None:
        """Store what was stored at first, and nothing else. Tokens stay."""
        kept, data = _copied(self._kept), self._storage.data
        for table in _tables(kept):
            setattr(data, table, getattr(kept, table))
        self._storage.agents = data.agents

    def rows(self) -> Rows:
        """What is stored."""
        return _rows(self._storage.data)

    def is_whole(self, now: Rows) -> bool:
        """Whether everything of the place is stored as it was at first."""
        return all(now[table].get(key) == row for table, own in self._own.items() for key, row in own.items())

    def check_rows(self) -> None:
        """No row may have been changed where it is, since that is seen by no comparison of rows."""
        assert repr(_rows(self._kept)) == self._shown


def changed(before: Rows, after: Rows) -> list[str]:
    """The tables that differ."""
    return [table for table in before if before[table] != after[table]]


def added(storage: ReferenceStorage, before: Rows) -> list[tuple[str, str | None]]:
    """Who did what was noted since, by the audit trail: the user and the agent."""
    return [(entry.actor, entry.agent) for key, entry in storage.data.audit.items() if key not in before["audit"]]


class Clock:
    """The storage's, which can be put forward."""

    def __init__(self) -> None:
        self.behind = timedelta(days=1)

    def __call__(self) -> datetime:
        return datetime.now(UTC) - self.behind

    def pass_leases(self) -> None:
        """Let every lease run out."""
        self.behind -= timedelta(seconds=2 * LEASE)


class Builder:
    """Calls the engine as whoever a thing is of."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def by(self, who: Who, operation: str, **payload: Any) -> dict[str, Any]:
        """An operation's answer."""
        agent = Agent.parse(who.agent) if who.agent is not None else None
        groups = frozenset(f"{who.issuer}:{group}" for group in who.groups)
        principal = Principal(user=who.spelled, groups=groups, agent=agent, platform=who.platform)
        return (await self._engine.call(operation, payload, CallContext(principal=principal))).model_dump(mode="json")


async def build(engine: Engine, storage: ReferenceStorage, clock: Clock) -> Estate:
    """The place and what others have."""
    make = Builder(engine)
    memories = await _memories(make)
    events = await _events(make, clock)
    await AuditedTokens(storage, "corp:admin", "cli").create(TOKEN.text, frozenset(), ("read",), None)
    own = _rows(storage.data)
    mine = {who.spelled: (await make.by(who, "memory.write", content="Of my own."))["id"] for who in CALLERS}
    for agent, pod in ((POD_MATE, "hall"), ("ada/2", "den")):
        await make.by(NAMED["platform"], "agent.register", agent=ref(agent), pods=[pod])
    for rival in (who for who in CALLERS if who.rival):
        await make.by(rival, "project.identify", project=memories["key"])
        await make.by(rival, "project.share", project=memories["key"], group=SPARE, access="ro")
    await _impostor(make, memories["key"], memories["project"])
    return Estate(storage, Place(**memories, **events, mine=""), mine, own)


async def _memories(make: Builder) -> dict[str, str]:
    """The live memory was written by one whose grant is gone, the deleted one by one whose grant is ``ro`` now."""
    key = "acme/estate"
    owner, authors = NAMED["owner"], {"revoked": LIVE, "ro": GONE}
    project = (await make.by(owner, "project.identify", project=key))["project"]["id"]
    for group in ("writers", "readers", "former"):
        await make.by(owner, "project.share", project=project, group=f"corp:{group}", access="rw")
    live, gone = [
        (await make.by(NAMED[name], "memory.write", content=one.text, project=key))["id"]
        for name, one in authors.items()
    ]
    await make.by(NAMED["ro"], "memory.delete", id=gone)
    for group in ("corp:readers", SPARE, SILENT):
        await make.by(owner, "project.share", project=project, group=group, access="ro")
    await make.by(owner, "project.unshare", project=project, group="corp:former")
    own, own_gone = [(await make.by(owner, "memory.write", content=one.text))["id"] for one in (OWN, OWN_GONE)]
    await make.by(owner, "memory.delete", id=own_gone)
    assert owner.spelled == OWNER
    return {"key": key, "project": project, "live": live, "gone": gone, "own": own, "own_gone": own_gone}


async def _impostor(make: Builder, *names: str) -> None:
    """Projects that are called as the place's is, by its key and by its id, and shared with those who may use it."""
    impostor = Who("impostor", "iago")
    for name, access in zip(names, ("ro", "rw"), strict=True):
        await make.by(impostor, "project.identify", project=name)
        for group in ("corp:writers", "corp:readers"):
            await make.by(impostor, "project.share", project=name, group=group, access=access)


async def _events(make: Builder, clock: Clock) -> dict[str, str]:
    """Ada has opened one section to all, one to her pod and one to nobody; an event waits, one is dead, one is hers."""
    ada, platform = NAMED["agent"], NAMED["platform"]
    await make.by(platform, "agent.register", agent=ref(ADA), pods=["hall"])
    for section, one, visibility in (("soul", PUBLIC, "public"), ("shared", POD, "pod"), ("long_term", PRIVATE, None)):
        await make.by(ada, "section.save", section=section, value=one.text, visibility=visibility)
    task = {"assignee": ref(ADA), "title": TAKEAWAY.text, "result": "done"}
    await make.by(platform, "exchange.task_completed", **task, surface_pod_id="hall", dedupe_key="first")

    async def enqueue(text: str) -> str:
        return (await make.by(platform, "event.enqueue", agent=ref(ADA), payload={"content": text}))["id"]

    dead = await enqueue(DEAD.text)
    for _ in range(ATTEMPTS_MAX):
        await make.by(ada, "event.claim", lease_seconds=LEASE)
        clock.pass_leases()
    event = await enqueue("A ship came.")
    (delivery,) = (await make.by(ada, "event.claim", lease_seconds=LEASE))["items"]
    assert delivery["id"] == event
    await enqueue(WAITING.text)
    return {"event": event, "token": delivery["token"], "dead": dead}


def ref(agent: str) -> dict[str, str]:
    """An agent as an input names it."""
    name, _, instance = agent.rpartition("/")
    return {"name": name, "instance": instance}


def _members(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


NOT_PUT_BACK = ("tokens", "columns")
"""What stays as it is: what proves the callers, and what is no row."""


def _tables(data: ReferenceData) -> list[str]:
    return [one.name for one in fields(data) if one.name not in NOT_PUT_BACK]


def _copied(data: ReferenceData) -> ReferenceData:
    """The rows in tables of their own; no row is ever changed where it is."""
    copied = ReferenceData()
    for table in _tables(data):
        setattr(copied, table, copy(getattr(data, table)))
    copied.agents.envelopes = dict(data.agents.envelopes)
    copied.agents.events = {agent: dict(events) for agent, events in data.agents.events.items()}
    return copied


def _rows(data: ReferenceData) -> Rows:
    tables = {table: getattr(data, table) for table in _tables(data) if table != "agents"}
    tables["envelopes"] = data.agents.envelopes
    tables["events"] = {row.id: row for events in data.agents.events.values() for row in events.values()}
    return {table: dict(cast("Mapping[object, object]", rows)) for table, rows in tables.items()}
