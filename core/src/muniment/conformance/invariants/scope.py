"""SCOPE-01 to SCOPE-03: where a memory is filed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from muniment.conformance.answers import found
from muniment.conformance.estate import TEXT, estate, every_operation
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import Refused
from muniment.conformance.world import Caller, World, holds, same
from muniment.models import ProjectPolicy

RULES = Rules(STORAGE_AND_TRANSPORT)


@RULES("SCOPE-01", "Scope project requires a project; user forbids one; and each is stored and listed as asked.")
async def scope_and_project(world: World) -> None:
    alice = world.caller("alice")
    project = (await alice("project.identify", project="acme/scope"))["project"]["id"]
    own = (await alice("memory.write", content=TEXT, scope="user"))["id"]
    filed = (await alice("memory.write", content=TEXT, scope="project", project="acme/scope"))["id"]
    named = (await alice("memory.write", content=TEXT, project="acme/scope"))["id"]
    plain = (await alice("memory.write", content=TEXT))["id"]
    inputs: list[tuple[str, dict[str, Any]]] = [
        ("memory.write", {"content": TEXT}),
        ("memory.update", {"id": own}),
        ("memory.update", {"id": filed, "content": "other"}),
    ]
    async with world.unchanged("writes with a scope that does not fit"):
        for operation, payload in inputs:
            refusal = await alice.refused("invalid_input", operation, **payload, scope="project")
            same("the field that the refusal names", refusal.details.get("field"), "project")
            await alice.refused("invalid_input", operation, **payload, scope="user", project="acme/scope")
        for operation, payload in (("memory.list", {}), ("memory.search", {"query": TEXT})):
            await alice.refused("invalid_input", operation, **payload, scope="user", project="acme/scope")
    for memory, where in (
        (own, ("user", None)),
        (plain, ("user", None)),
        (filed, ("project", project)),
        (named, ("project", project)),
    ):
        got = await alice("memory.get", id=memory)
        same("scope and project of a memory", (got["scope"], got["project_id"]), where)
    for query, expected in (
        ({"scope": "user"}, {own, plain}),
        ({"project": "acme/scope"}, {filed, named}),
        ({"scope": "project", "project": "acme/scope"}, {filed, named}),
        ({}, {own, plain, filed, named}),
    ):
        await _lists(alice, query, expected)


async def _lists(alice: Caller, query: dict[str, Any], expected: set[str]) -> None:
    page = await alice("memory.list", **query)
    same(f"the list of {query}", sorted(memory["id"] for memory in page["items"]), sorted(expected))
    page = await alice("memory.search", query="north tower", **query)
    same(f"the hits of {query}", sorted(found(page)), sorted(expected))


@RULES(
    "SCOPE-02",
    "project.identify registers a project, once, also when concurrent; under require-existing an unknown key anywhere "
    "else is unknown_project and creates nothing; under create-missing a write creates it, once, also when concurrent.",
)
async def registering(world: World) -> None:
    alice = world.caller("alice")
    first = await alice("project.identify", project="acme/once")
    again = await world.second(alice)
    second = await again("project.identify", project="acme/once")
    same("whether the two calls registered it", (first["created"], second["created"]), (True, False))
    same("the project of both calls", second["project"]["id"], first["project"]["id"])
    async with world.race(2, "register_project"):
        pair = await asyncio.gather(
            alice("project.identify", project="acme/raced"), again("project.identify", project="acme/raced")
        )
    same("the projects of two racing calls", len({answer["project"]["id"] for answer in pair}), 1)
    same("how many of two racing calls registered it", sum(answer["created"] for answer in pair), 1)
    wanted = ["acme/once", "acme/raced"]
    for policy, judge in _HALVES.items():
        # A transport may have a policy of its own, whoever calls.
        if world.caller("alice", policy=policy).context.project_policy is policy:
            wanted += await judge(world)
        else:
            world.notes.append(f"nothing is judged under {policy.value}: the transport has another policy")
    keys = [project["key"] for project in (await alice("project.list"))["items"]]
    same("the projects of the caller", sorted(keys), sorted(wanted))


async def _require_existing(world: World) -> list[str]:
    """The keys of the projects that are registered then."""
    place = await estate(world, "acme/unknowns")
    async with world.unchanged("operations on an unknown project"):
        for operation, build in every_operation(world):
            if "project" not in operation.input.model_fields or operation.name == "project.identify":
                continue
            for key in ("acme/unknown", "acme/unknown/", "ACME/UNKNOWNS", "acme/unknown_"):
                payload = {**build(place), "project": key}
                await place.owner.refused("unknown_project", operation.name, **payload)
        absent = place.owner.with_context(default_project="acme/unknown")
        await absent.refused("unknown_project", "memory.write", content=TEXT)
    receipt = await place.owner("memory.write", content=TEXT, project="acme/unknowns")
    same("the project of a write to a known key", receipt["project_id"], place.project)
    default = place.owner.with_context(default_project="acme/unknowns")
    receipt = await default("memory.write", content=TEXT)
    same("the project of a write to a known default", receipt["project_id"], place.project)
    return ["acme/unknowns"]


async def _create_missing(world: World) -> list[str]:
    """The keys of the projects that are made then."""
    alice = world.caller("alice", policy=ProjectPolicy.CREATE_MISSING)
    again = await world.second(alice)
    first = await alice("memory.write", content=TEXT, project="acme/made")
    second = await again("memory.write", content=TEXT, project="acme/made")
    holds(first["project_id"] is not None, "the project of the write", expected="an id", seen=None)
    same("the project of a second write", second["project_id"], first["project_id"])
    async with world.race(2):
        pair = await asyncio.gather(
            *(caller.attempt("memory.write", content=TEXT, project="acme/made-raced") for caller in (alice, again))
        )
    same("the refusals of two racing writes", [str(one) for one in pair if isinstance(one, Refused)], [])
    projects = {answer["project_id"] for answer in pair if not isinstance(answer, Refused)}
    same("the projects of two racing writes", len(projects), 1)
    page = await alice("memory.list", project="acme/made-raced")
    same("the memories of two racing writes", len(page["items"]), 2)
    await alice("memory.update", id=first["id"], project="acme/moved")
    async with world.unchanged("reads and refused writes of unknown projects under create-missing"):
        await alice.refused("unknown_project", "memory.list", project="acme/unread")
        await alice.refused("unknown_project", "memory.search", query=TEXT, project="acme/unread")
        await alice.refused("content_too_long", "memory.write", content="x" * 64_001, project="acme/unread")
    return ["acme/made", "acme/made-raced", "acme/moved"]


_HALVES: Mapping[ProjectPolicy, Callable[[World], Awaitable[list[str]]]] = {
    ProjectPolicy.REQUIRE_EXISTING: _require_existing,
    ProjectPolicy.CREATE_MISSING: _create_missing,
}


@RULES("SCOPE-03", "An owned project wins over a shared one with the same key, and the collision is audited, once.")
async def owned_wins(world: World) -> None:
    theirs = await estate(world, "acme/same", owner="olga")
    alice = world.caller("alice", "writers")
    before = (await alice("memory.write", content="in the shared one", project="acme/same"))["project_id"]
    same("the project before the caller owns one", before, theirs.project)
    same("the entries of a collision before there is one", await _collisions(world), 0)
    shared_first = await alice("project.identify", project="acme/same")
    same("whether identify registers beside a shared one", shared_first["created"], False)
    same("the project that identify finds", shared_first["project"]["id"], theirs.project)
    own = await world.caller("alice")("project.identify", project="acme/same")
    same("whether the caller without the grant registers its own", own["created"], True)
    mine = own["project"]["id"]
    for _ in range(2):
        receipt = await alice("memory.write", content="in the owned one", project="acme/same")
        same("the project of a write", receipt["project_id"], mine)
    page = await alice("memory.list", project="acme/same")
    same("the contents listed", {memory["content"] for memory in page["items"]}, {"in the owned one"})
    same(
        "the project that identify finds", (await alice("project.identify", project="acme/same"))["project"]["id"], mine
    )
    same("the entries of the collision", await _collisions(world), 1)
    entries = [entry for entry in (await world.probe()).audit if entry.action == "project.collision"]
    same("the project that the entry is about", entries[0].project_id, mine)
    still = await theirs.owner("memory.list", project="acme/same")
    contents = {memory["content"] for memory in still["items"]}
    same("what the other owner lists", contents, {TEXT, "in the shared one"})


async def _collisions(world: World) -> int:
    return sum(entry.action == "project.collision" for entry in (await world.probe()).audit)
