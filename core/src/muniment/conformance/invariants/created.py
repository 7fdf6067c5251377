"""SCOPE-04 and SCOPE-05: a write that makes a project says so, and one that is not applied makes none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from muniment.conformance.estate import TEXT, WRITERS, estate
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import Refused
from muniment.conformance.world import Answer, Caller, World, same
from muniment.models import ProjectPolicy

RULES = Rules(STORAGE_AND_TRANSPORT, since="1.2")


@RULES(
    "SCOPE-04",
    "Where a write makes a project its receipt says so and names it, one receipt of all that race, and no other "
    "receipt does; so whoever lost the access to a project by its key is told that the write went to another one.",
)
async def told_of_a_new_project(world: World) -> None:
    place = await estate(world)
    alice, bob = place.owner, world.caller("bob", WRITERS, policy=ProjectPolicy.CREATE_MISSING)
    for caller, project in ((alice, place.key), (bob, place.key), (bob, None)):
        where = {} if project is None else {"project": project}
        receipt = await caller("memory.write", content=TEXT, **where)
        same(f"whether a write of {caller.user} to {project} made a project", receipt["project_created"], False)
    for operation, payload in (
        ("project.share", {"project": place.key, "group": "more", "access": "ro"}),
        ("memory.update", {"id": place.live, "tags": ["same"]}),
        ("memory.delete", {"id": place.live}),
    ):
        same(f"what {operation} says", (await alice(operation, **payload))["project_created"], False)
    if bob.context.project_policy is not ProjectPolicy.CREATE_MISSING:
        world.notes.append("no write makes a project: the transport has another policy")
        return
    await alice("project.unshare", project=place.key, group=WRITERS)
    receipt = await bob("memory.write", content=TEXT, project=place.key)
    other = (receipt["project_created"], receipt["project_id"] != place.project)
    same("what who lost the access is told", other, (True, True))
    owned = [one["id"] for one in (await bob("project.list"))["items"]]
    same("the project that the receipt names", [receipt["project_id"]], owned)
    again = await bob("memory.write", content=TEXT, project=place.key)
    same("the next write", (again["project_created"], again["project_id"]), (False, owned[0]))
    moved = await bob("memory.update", id=again["id"], project="acme/moved")
    same("whether a move made a project", moved["project_created"], True)
    beside = await world.second(bob)
    async with world.race(2):
        raced = await asyncio.gather(
            *(caller("memory.write", content=TEXT, project="acme/raced") for caller in (bob, beside))
        )
    same("how many of two racing writes made it", sum(one["project_created"] for one in raced), 1)


@RULES(
    "SCOPE-05",
    "A project that a write makes is stored with the write: whoever loses a race for a memory or an idempotency key "
    "makes none, neither does a refused write or one that names a project by an id, and the trail of the new project "
    "begins with who registered it.",
)
async def made_with_the_write(world: World) -> None:
    bob = world.caller("bob", policy=ProjectPolicy.CREATE_MISSING)
    if bob.context.project_policy is not ProjectPolicy.CREATE_MISSING:
        world.notes.append("no write makes a project: the transport has another policy")
        return
    beside = await world.second(bob)
    alices = (await world.caller("alice")("project.identify", project="acme/hers"))["project"]["id"]
    memory = (await bob("memory.write", content=TEXT))["id"]
    async with world.race(2):
        moved = await asyncio.gather(
            bob.attempt("memory.update", id=memory, project="acme/left"),
            beside.attempt("memory.update", id=memory, project="acme/right"),
        )
    won = _winner("two moves of one version", moved, "version_conflict")
    same("the projects after two racing moves", await _projects(bob), {won["project_id"]})
    async with world.race(2):
        written = await asyncio.gather(
            bob.attempt("memory.write", content=TEXT, project="acme/first", idempotency_key="raced"),
            beside.attempt("memory.write", content=TEXT, project="acme/second", idempotency_key="raced"),
        )
    first = _winner("two writes under one idempotency key", written, "idempotency_conflict")
    expected = {won["project_id"], first["project_id"]}
    same("the projects after two racing writes", await _projects(bob), expected)
    async with world.unchanged("refused writes to projects that are not there"):
        await bob.refused("version_conflict", "memory.update", id=memory, version=9, project="acme/stale")
        await bob.refused("not_found", "memory.update", id="nowhere", project="acme/absent")
        for name in (alices, alices.upper(), alices.replace("-", ""), str(UUID(int=7))):
            await bob.refused("unknown_project", "memory.write", content=TEXT, project=name)
    for project in sorted(expected):
        trail = (await bob("project.history", project=project))["items"]
        same(f"the trail of {project}", [(one["action"], one["actor"]) for one in trail], [("project.register", "bob")])


def _winner(what: str, answers: Sequence[Answer | Refused], code: str) -> Answer:
    """The one answer; the other one is a refusal with this code."""
    refused = [one.code for one in answers if isinstance(one, Refused)]
    same(f"the refusals of {what}", refused, [code])
    (answer,) = [one for one in answers if not isinstance(one, Refused)]
    same(f"whether the winner of {what} made its project", answer["project_created"], True)
    return answer


async def _projects(caller: Caller) -> set[str]:
    return {one["id"] for one in (await caller("project.list"))["items"]}
