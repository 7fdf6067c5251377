"""SCOPE-04: a write that makes a project says so."""

from __future__ import annotations

import asyncio

from muniment.conformance.estate import TEXT, WRITERS, estate
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import World, same
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
    async with world.race(2, "register_project"):
        raced = await asyncio.gather(
            *(caller("memory.write", content=TEXT, project="acme/raced") for caller in (bob, beside))
        )
    same("how many of two racing writes made it", sum(one["project_created"] for one in raced), 1)
