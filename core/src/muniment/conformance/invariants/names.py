"""ACC-08: names are compared whole, code point by code point."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from muniment import limits
from muniment.conformance.answers import found, ranker_scores
from muniment.conformance.cases import pairs_that_never_match
from muniment.conformance.invariants import agent_names
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Answer, Caller, World, holds, same
from muniment.models import Agent

RULES = Rules(STORAGE_AND_TRANSPORT)
PAIRS = (
    *pairs_that_never_match(),
    ("%", "anything"),
    ("_", "x"),
    ("a*", "ab"),
    ("a\\_b", "a_b"),
    ("caf\u00e9", "cafe\u0301"),
    ("stra\u00dfe", "strasse"),
    ("\u212bngstrom", "\u00c5ngstrom"),
    ("team", "team "),
    ("1", "01"),
    ("a.b-c", "a.b_c"),
    ("Tag", "tag"),
)

STEP = 1
"""Every how-manieth pair of each kind is tried."""

_Part = Callable[[World, Any, int], Awaitable[None]]


@RULES(
    "ACC-08",
    "Names are compared whole, code point by code point: a user, group, agent, project key, tag, idempotency key or id "
    "that is like another never gives access to, counts as, or is found by it.",
)
async def whole_names(world: World) -> None:
    """The kinds of names take turns, so that a fault of one is seen before all pairs of the others were tried."""
    await _ids(world)
    kinds: list[tuple[_Part, Sequence[Any]]] = [
        (_users, PAIRS),
        (_idempotency_keys, PAIRS),
        (_groups, _both_ways(PAIRS)),
        (_project_keys, _both_ways(_fitting(limits.PROJECT_KEY_PATTERN))),
        (_tags, _fitting(limits.TAG_PATTERN)),
        (_agents, _agent_pairs()),
    ]
    for number in range(0, max(len(pairs) for _, pairs in kinds), STEP):
        for part, pairs in kinds:
            if number < len(pairs):
                await part(world, pairs[number], number)


def _agent_pairs() -> list[tuple[Agent, Agent]]:
    """Agents whose names are alike, whose instances are, and two that are alike once they are joined."""
    agents = [
        (Agent(name=one, instance=f"{number}"), Agent(name=other, instance=f"{number}"))
        for number, (one, other) in enumerate(_agent_names())
    ]
    instances = [
        (Agent(name=f"a{number}", instance=one), Agent(name=f"a{number}", instance=other))
        for number, (one, other) in enumerate(_agent_names())
    ]
    joined = (Agent(name="a/b", instance="c"), Agent(name="a", instance="b/c"))
    return [*agents, *instances, joined]


def _fitting(pattern: str) -> list[tuple[str, str]]:
    return [pair for pair in PAIRS if all(re.fullmatch(pattern, name, re.ASCII) for name in pair)]


def _both_ways(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each pair, and the other way round: which of the two is there first matters."""
    return [*pairs, *((other, one) for one, other in pairs)]


def _agent_names() -> list[tuple[str, str]]:
    return _fitting(limits.AGENT_NAME_PATTERN)


async def _users(world: World, pair: tuple[str, str], number: int) -> None:
    """Neither reads, changes, lists or finds what is the other's, or resolves its project."""
    callers = [world.caller(name) for name in pair]
    memories = [(await caller("memory.write", content=f"private note {number}"))["id"] for caller in callers]
    key = f"names/of-users-{number}"
    projects = [(await caller("project.identify", project=key))["project"]["id"] for caller in callers]
    same(f"whether {pair!a} share a project", projects[0] == projects[1], False)
    for caller, mine, theirs, own in zip(callers, memories, reversed(memories), projects, strict=True):
        same(
            "the content of the own memory", (await caller("memory.get", id=mine))["content"], f"private note {number}"
        )
        for operation, change in (("get", {}), ("history", {}), ("update", {"content": "new"}), ("delete", {})):
            await caller.refused("not_found", f"memory.{operation}", id=theirs, **change)
        await _reads_only(caller, mine, theirs, query=f"private note {number}")
        listed = {project["id"] for project in (await caller("project.list"))["items"]}
        same("the projects among the two that are listed", listed & set(projects), {own})


async def _reads_only(caller: Caller, mine: str, theirs: str, query: str, **narrow: Any) -> None:
    """List and search hold the one, and never the other."""
    listed = [memory["id"] for memory in (await caller("memory.list", limit=200, **narrow))["items"]]
    hits = found(await caller("memory.search", query=query, limit=50, **narrow))
    for how, ids in (("the list", listed), ("the hits", hits)):
        same(f"whether {how} of {caller.user!a} hold what is theirs", mine in ids, True)
        same(f"whether {how} of {caller.user!a} hold what is the other's", theirs in ids, False)


async def _groups(world: World, pair: tuple[str, str], number: int) -> None:
    """A grant to the one is no grant to the other, and neither raises nor takes away the other's."""
    alice = world.caller("alice")
    member, like = world.caller("member", pair[0]), world.caller("like", pair[1])
    key = f"names/of-groups-{number}"
    await alice("project.identify", project=key)
    memory = (await alice("memory.write", content="a shared note", project=key))["id"]
    await alice("project.share", project=key, group=pair[0], access="ro")
    await _admits(member, key, memory)
    await _keeps_out(like, key, memory)
    await alice.refused("not_found", "project.unshare", project=key, group=pair[1])
    await _admits(member, key, memory)
    await alice("project.share", project=key, group=pair[1], access="rw")
    await member.refused("access_denied", "memory.update", id=memory, tags=["changed"])
    await like("memory.update", id=memory, tags=["changed"])
    shares = (await alice("project.identify", project=key))["project"]["shares"]
    same("the grants of the project", shares, {pair[0]: "ro", pair[1]: "rw"})
    await alice("project.unshare", project=key, group=pair[0])
    await _keeps_out(member, key, memory)
    await _admits(like, key, memory)


async def _admits(caller: Caller, key: str, memory: str) -> None:
    same("what a member reads", (await caller("memory.get", id=memory))["id"], memory)
    same("what a member finds", found(await caller("memory.search", query="shared note", project=key)), [memory])


async def _keeps_out(caller: Caller, key: str, memory: str) -> None:
    await caller.refused("not_found", "memory.get", id=memory)
    await caller.refused("unknown_project", "memory.list", project=key)
    same("whether it is found without a grant", memory in found(await caller("memory.search", query="note")), False)


async def _project_keys(world: World, pair: tuple[str, str], number: int) -> None:
    """The one names no project while only the other is there; and then each names its own."""
    user = world.caller(f"keeper-{number}")
    one, other = pair
    first = (await user("project.identify", project=one))["project"]["id"]
    for operation, more in (("list", {}), ("search", {"query": "note"}), ("write", {"content": "note"})):
        await user.refused("unknown_project", f"memory.{operation}", project=other, **more)
    await user.refused("unknown_project", "project.share", project=other, group="g", access="ro")
    second = await user("project.identify", project=other)
    same(f"whether {other!a} was registered anew", (second["created"], second["project"]["id"] != first), (True, True))
    filed = [(await user("memory.write", content="a filed note", project=key))["id"] for key in pair]
    for key, mine, theirs in zip(pair, filed, reversed(filed), strict=True):
        await _reads_only(user, mine, theirs, query="filed note", project=key)


async def _tags(world: World, pair: tuple[str, str], number: int) -> None:
    """The one neither narrows to nor ranks what has the other."""
    user = world.caller(f"tagger-{number}")
    tagged = [(await user("memory.write", content="remark", tags=[tag]))["id"] for tag in pair]
    for tag, mine, theirs in zip(pair, tagged, reversed(tagged), strict=True):
        await _reads_only(user, mine, theirs, query="remark", tags=[tag])
        page = await user("memory.search", query=f"{tag} remark")
        holds("tags" in ranker_scores(page, mine), f"the tag {tag!a} in the tags ranker", expected="a hit", seen=page)
        same("whether the other tag counts as it", "tags" in ranker_scores(page, theirs), False)


async def _idempotency_keys(world: World, pair: tuple[str, str], number: int) -> None:
    """The one is free while the other is taken."""
    user = world.caller("alice")
    keys = [f"{name}{number}{name}" for name in pair]
    first = [await user("memory.write", content="once", idempotency_key=key) for key in keys]
    await _are_apart(f"the keys {pair!a}", first)
    for key, receipt in zip(keys, first, strict=True):
        same("the receipt of a repeat", await user("memory.write", content="once", idempotency_key=key), receipt)
    callers = [world.caller(name) for name in pair]
    await _keys_are_their_own(f"the users {pair!a}", callers, f"user-key-{number}")


async def _agents(world: World, both: tuple[Agent, Agent], number: int) -> None:
    """An idempotency key of the one is not the other's, and neither is its agent memory."""
    callers = [world.caller("alice", agent=agent) for agent in both]
    await _keys_are_their_own(f"the agents {both[0]} and {both[1]}", callers, f"agent-key-{number}")
    await agent_names.are_apart(world, both)


async def _keys_are_their_own(whose: str, callers: Iterable[Caller], key: str) -> None:
    writes: list[Callable[[], Any]] = [
        lambda caller=caller: caller("memory.write", content="once each", idempotency_key=key) for caller in callers
    ]
    first = [await write() for write in writes]
    await _are_apart(whose, first)
    for write, receipt in zip(writes, first, strict=True):
        same(f"the receipt of a repeat by one of {whose}", await write(), receipt)


async def _are_apart(whose: str, receipts: list[Answer]) -> None:
    same(f"the memories that {whose} wrote", len({receipt["id"] for receipt in receipts}), len(receipts))


async def _ids(world: World) -> None:
    """Only an id as it was given names its memory."""
    alice = world.caller("alice")
    memory = (await alice("memory.write", content="a note with an id"))["id"]
    spellings = (memory.upper(), memory.replace("-", ""), f"{{{memory}}}", f" {memory}", f"{memory} ", memory[:-1])
    for spelling in {*spellings, f"{memory[:-1]}%", f"{memory[:-1]}_", "%"} - {memory}:
        for operation, change in (("get", {}), ("history", {}), ("update", {"content": "new"}), ("delete", {})):
            await alice.refused("not_found", f"memory.{operation}", id=spelling, **change)
    same("the memory under its own id", (await alice("memory.get", id=memory))["content"], "a note with an id")
