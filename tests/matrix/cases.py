"""Every operation of the registry on what it can be called on, with the rule for it and an input that is valid.

An operation that has no case here fails the matrix, so that one added later is judged at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.matrix.estate import FRAGMENT, LEASE, SPARE, Place, ref
from tests.matrix.rules import (
    ADA,
    DEAD,
    GONE,
    LIVE,
    OWN,
    OWN_GONE,
    OWNED,
    POD,
    PRIVATE,
    PUBLIC,
    SHARED,
    TAKEAWAY,
    TOKEN,
    WAITING,
    By,
    Level,
    On,
    Rule,
    Text,
)

Payload = dict[str, Any]
BEA = "bea/2"


@dataclass(frozen=True)
class Case:
    """A call. ``shows`` are texts that its answer has for whoever may read them.

    ``of`` tells it from others of its operation. ``settled`` says that there may be nothing to change.
    """

    operation: str
    rule: Rule
    payload: Callable[[Place], Payload]
    of: str = ""
    shows: tuple[Text, ...] = ()
    settled: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on {self.of or self.rule.on.value}"


def _of_memories(
    operation: str, needs: Level, *, changes: bool = False, deleted: bool = False, shown: bool = False, **more: Any
) -> list[Case]:
    """An operation on a memory of the project, and on one of the owner's own scope."""
    found: list[Case] = []
    for on, name, text in (
        (On.MEMORY, "gone" if deleted else "live", LIVE),
        (On.OWN_MEMORY, "own_gone" if deleted else "own", OWN),
    ):

        def payload(at: Place, name: str = name) -> Payload:
            return {"id": getattr(at, name), **more}

        of = on.value.replace("a memory", "a deleted memory") if deleted else ""
        found.append(Case(operation, Rule(on, needs, changes), payload, of, shows=(text,) if shown else ()))
    return found


def _of_projects(
    operation: str,
    needs: Level,
    payload: Payload,
    *,
    what: str = "",
    changes: bool = False,
    names_new: bool = False,
    shows: tuple[Text, ...] = (),
) -> list[Case]:
    """An operation on the project, or on ``what`` is in it, by key and by id."""
    return [
        Case(
            operation,
            Rule(on, needs, changes, names_new=names_new and on is On.KEY),
            lambda at, name=name: {"project": getattr(at, name), **payload},
            f"{what} {on.value}".strip(),
            shows,
        )
        for on, name in ((On.KEY, "key"), (On.PROJECT, "project"))
    ]


FREE = Rule(On.SELF)
"""Everybody who is let in reads its own."""
OWN_CHANGE = Rule(On.SELF, changes=True)

USER_CASES = (
    Case("project.identify", Rule(On.KEY, changes=True), lambda at: {"project": at.key}, settled=True),
    Case("project.identify", Rule(On.PROJECT, changes=True), lambda at: {"project": at.project}, settled=True),
    Case("project.identify", OWN_CHANGE, lambda _: {"project": "acme/another"}, of="a new project"),
    Case("project.list", FREE, lambda _: {}, shows=(OWNED, SHARED)),
    *_of_projects("project.share", Level.OWN, {"group": "corp:guests", "access": "ro"}, changes=True),
    *_of_projects("project.unshare", Level.OWN, {"group": SPARE}, changes=True),
    *_of_projects("project.history", Level.READ, {}, shows=(OWNED, SHARED)),
    *_of_projects("memory.write", Level.WRITE, {"content": "A new deed."}, changes=True, names_new=True),
    Case("memory.write", OWN_CHANGE, lambda _: {"content": "A new deed."}),
    *_of_memories("memory.get", Level.READ, shown=True),
    *_of_projects("memory.list", Level.READ, {}, shows=(LIVE,)),
    *_of_projects("memory.list", Level.READ, {"deleted": True}, what="what was deleted in", shows=(GONE,)),
    Case("memory.list", FREE, lambda _: {}, of="everything", shows=(LIVE, OWN)),
    Case("memory.list", FREE, lambda _: {"deleted": True}, of="everything deleted", shows=(GONE, OWN_GONE)),
    *_of_projects("memory.search", Level.READ, {"query": FRAGMENT}, shows=(LIVE,)),
    Case("memory.search", FREE, lambda _: {"query": FRAGMENT}, of="everything", shows=(LIVE, OWN)),
    *_of_memories("memory.update", Level.WRITE, changes=True, content="The deeds were moved.", tags=["moved"]),
    Case(
        "memory.update",
        Rule(On.MEMORY, Level.WRITE, changes=True),
        lambda at: {"id": at.live, "scope": "user"},
        of="a memory that leaves the project",
    ),
    Case(
        "memory.update",
        Rule(On.KEY, Level.WRITE, changes=True, names_new=True),
        lambda at: {"id": at.mine, "project": at.key},
        of="a memory that comes into the project",
    ),
    *_of_memories("memory.patch", Level.WRITE, changes=True, old_string=FRAGMENT, new_string="tower"),
    *_of_memories("memory.delete", Level.WRITE, changes=True),
    *_of_memories("memory.restore", Level.WRITE, changes=True, deleted=True),
    *_of_memories("memory.history", Level.READ),
    *_of_memories("memory.history", Level.READ, deleted=True),
)

ITS_OWN = Rule(On.AGENT, changes=True, by=By.AGENT)
"""Every agent has sections and a queue; what is judged is Ada's, which no other agent's call takes or changes."""
ADAS_EVENT = Rule(On.AGENT, Level.OWN, changes=True, by=By.AGENT)
BY_PLATFORM = Rule(On.AGENT, changes=True, by=By.PLATFORM)
AFTER = {"surface_pod_id": "hall", "dedupe_key": "again"}

AGENT_CASES = (
    Case("section.read", ITS_OWN, lambda _: {}, of="all that is its own", shows=(PRIVATE, TAKEAWAY)),
    Case("section.save", ITS_OWN, lambda _: {"section": "long_term", "value": "I saw a ship."}),
    Case(
        "section.sync",
        ITS_OWN,
        lambda _: {"mode": "patch", "runtime": "r", "sections": {"soul": {"value": "Calm."}}},
    ),
    Case("section.log_cycle", ITS_OWN, lambda _: {"text": "Looked out."}),
    Case(
        "section.read_shared",
        Rule(On.SELF, by=By.AGENT),
        lambda _: {"agent": ref(ADA)},
        of="Ada's sections",
        shows=(PUBLIC, POD),
    ),
    Case("event.claim", ITS_OWN, lambda _: {"limit": 1, "lease_seconds": LEASE}, shows=(WAITING,)),
    Case("event.extend", ADAS_EVENT, lambda at: {"id": at.event, "token": at.token, "lease_seconds": 2 * LEASE}),
    Case("event.ack", ADAS_EVENT, lambda at: {"id": at.event, "token": at.token}),
    Case("agent.register", BY_PLATFORM, lambda _: {"agent": ref(ADA), "pods": ["attic"]}),
    Case(
        "exchange.dm_concluded",
        BY_PLATFORM,
        lambda _: {**AFTER, "peers": [ref(ADA), ref(BEA)], "messages": ["Good night."]},
    ),
    Case("exchange.loop_tripped", BY_PLATFORM, lambda _: {**AFTER, "peers": [ref(ADA), ref(BEA)]}),
    Case(
        "exchange.task_completed",
        BY_PLATFORM,
        lambda _: {**AFTER, "assignee": ref(ADA), "title": "Paint the boat", "result": "done"},
    ),
    Case("event.enqueue", BY_PLATFORM, lambda _: {"agent": ref(ADA), "payload": {"content": "A gull."}}),
    Case("event.dead", Rule(On.AGENT, by=By.PLATFORM), lambda _: {"agent": ref(ADA)}, shows=(DEAD,)),
    Case("event.requeue", BY_PLATFORM, lambda at: {"agent": ref(ADA), "ids": [at.dead]}),
    Case("token.history", Rule(On.SELF, by=By.PLATFORM), lambda _: {}, shows=(TOKEN,)),
)

CASES = (*USER_CASES, *AGENT_CASES)
