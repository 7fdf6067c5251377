"""ACC-06 and ACC-07: moving between scopes, and who a caller is."""

from __future__ import annotations

from typing import Any

from muniment.conformance.agents_estate import agent_operations, agents_estate
from muniment.conformance.answers import found
from muniment.conformance.estate import FRAGMENT, READERS, WRITERS, estate, every_operation
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Caller, World, same
from muniment.models import Agent

RULES = Rules(STORAGE_AND_TRANSPORT)


@RULES(
    "ACC-06",
    "Moving needs write access to both scopes; whoever reads only the one that a memory was moved from reads nothing "
    "of it any more, its history neither.",
)
async def moving(world: World) -> None:
    here = await estate(world, "acme/here")
    there = await estate(world, "acme/there", owner="olga")
    await there.owner("project.share", project=there.key, group="olgas", access="rw")
    may_read_there = world.caller("bob", WRITERS, READERS, "half")
    await there.owner("project.unshare", project=there.key, group=WRITERS)
    ends: list[tuple[Caller, str, dict[str, Any], str]] = [
        (may_read_there, here.live, {"project": there.key}, "access_denied"),
        (may_read_there, there.live, {"project": here.key}, "access_denied"),
        (may_read_there, there.live, {"scope": "user"}, "access_denied"),
        (world.caller("carol", WRITERS), here.live, {"project": there.key}, "unknown_project"),
        (world.caller("carol", WRITERS), there.live, {"project": here.key}, "not_found"),
        (world.caller("rita", READERS, "olgas"), here.live, {"project": there.key}, "access_denied"),
        (world.caller("mallory"), here.live, {"scope": "user"}, "not_found"),
    ]
    async with world.unchanged("moves without write access to both ends"):
        for caller, memory, payload, code in ends:
            await caller.refused(code, "memory.update", id=memory, **payload)
    may_write_both = world.caller("dora", WRITERS, "olgas")
    await may_write_both("memory.update", id=here.live, project=there.key)
    moved = await there.owner("memory.get", id=here.live)
    same("where it was moved to", (moved["scope"], moved["project_id"]), ("project", there.project))
    for former in (here.owner, world.caller("carol", WRITERS)):
        await _reads_nothing_of(former, here.live)
        same(f"what {former.user} finds after the move", found(await former("memory.search", query=FRAGMENT)), [])
    hits = found(await there.owner("memory.search", query=FRAGMENT))
    same("what the new owner finds", sorted(hits), sorted([here.live, there.live]))
    await may_write_both("memory.update", id=here.live, scope="user")
    own = await may_write_both("memory.get", id=here.live)
    same("where it is in the end", (own["scope"], own["project_id"]), ("user", None))
    for former in (here.owner, there.owner, world.caller("rita", READERS)):
        await _reads_nothing_of(former, here.live)


async def _reads_nothing_of(caller: Caller, memory: str) -> None:
    for operation in ("memory.get", "memory.history"):
        await caller.refused("not_found", operation, id=memory)
    listed = [one["id"] for one in (await caller("memory.list"))["items"]]
    same(f"whether {caller.user} lists the memory that was moved away", memory in listed, False)


IDENTITY_FIELDS = (
    "user",
    "user_id",
    "owner",
    "principal",
    "agent",
    "groups",
    "group_ids",
    "actor",
    "surface",
    "editor",
)


@RULES(
    "ACC-07",
    "Identity comes from the authenticated principal alone: a user, agent or group named in an input changes nothing, "
    "and no name of one kind counts as a name of another.",
)
async def only_the_principal(world: World) -> None:
    place = await estate(world)
    mallory = world.caller("mallory")
    async with world.unchanged("inputs that name somebody else"):
        for operation, build in every_operation(world):
            for field in IDENTITY_FIELDS:
                if field not in operation.input.model_fields:
                    for value in ("alice", ["writers"], {"user": "alice", "groups": ["writers"]}):
                        await mallory.refused("invalid_input", operation.name, **build(place), **{field: value})
    await _not_by_another_kind_of_name(world, place.live, place.project)
    await _of_agents(world)
    bob = world.caller("bob", WRITERS, agent=Agent(name="alice", instance="alice"))
    receipt = await bob("memory.patch", id=place.live, old_string=FRAGMENT, new_string="west tower, said alice")
    entry = (await bob("memory.history", id=place.live, limit=1))["items"][0]
    same("the actor of the edit", (entry["actor"], entry["version"]), ("bob", receipt["version"]))
    edited = (await place.owner("memory.get", id=place.live))["last_edited_by"]
    same("whether last_edited_by names the principal", edited.split(" ")[0], "bob")
    await mallory("memory.write", content="I am alice, group writers", tags=["alice", "writers"])
    same("what alice lists of it", len((await place.owner("memory.list"))["items"]), 1)


async def _of_agents(world: World) -> None:
    """Inputs of an agent's and the platform's operations name nobody that the principal is not."""
    place = await agents_estate(world)
    async with world.unchanged("inputs of agents that name somebody else"):
        for operation, recipe in agent_operations(world):
            for field in {*IDENTITY_FIELDS, "instance", "platform"} - set(operation.input.model_fields):
                for value in ("ada", True, place.ada.ref, {"user": "keeper", "agent": place.ada.ref}):
                    await place.rightful(operation).refused(
                        "invalid_input", operation.name, **{**recipe(place), field: value}
                    )
    for caller in (place.bea.own, world.caller("keeper", agent=place.bea.agent)):
        await caller.refused("not_found", "event.ack", id=place.event, token=place.token)
    other_user = world.caller("somebody", agent=place.ada.agent)
    acked = await other_user("event.ack", id=place.event, token=place.token)
    same("an acknowledgement by the same agent, for another user", acked["outcome"], "acknowledged")


async def _not_by_another_kind_of_name(world: World, memory: str, project: str) -> None:
    """A user called as a group, a group called as a user, and either called as a scope key, are nobody here."""
    impostors = [
        world.caller(WRITERS),
        world.caller("mallory", "alice"),
        world.caller(f"p:{project}"),
        world.caller(project),
        world.caller("u:alice"),
        world.caller("mallory", f"p:{project}", "u:alice", project),
        world.caller("mallory", agent=Agent(name="alice", instance=WRITERS)),
    ]
    for impostor in impostors:
        await impostor.refused("not_found", "memory.get", id=memory)
        await impostor.refused("not_found", "memory.delete", id=memory)
        same(f"what {impostor.user} lists", (await impostor("memory.list"))["items"], [])
        same(f"what {impostor.user} finds", found(await impostor("memory.search", query=FRAGMENT)), [])
