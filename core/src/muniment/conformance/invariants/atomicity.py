"""MUT-13 and MUT-14: all or nothing, and one audit entry for each mutation."""

from __future__ import annotations

import asyncio

from muniment.conformance.estate import TEXT, Estate, changing, estate
from muniment.conformance.invariant import Feature
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import FaultPoint, Refused
from muniment.conformance.world import World, same
from muniment.models import ProjectPolicy

RULES = Rules(STORAGE_AND_TRANSPORT)

ALWAYS = frozenset({FaultPoint.MEMORY, FaultPoint.AUDIT})
INDEXED = ALWAYS | {FaultPoint.PASSAGES, FaultPoint.TERMS}
PASSED: dict[str, frozenset[FaultPoint]] = {
    "memory.write": INDEXED | {FaultPoint.RECEIPT},
    "memory.update": INDEXED,
    "memory.patch": INDEXED | {FaultPoint.RECEIPT},
    "memory.delete": ALWAYS,
    "memory.restore": INDEXED,
}
"""The points that each mutation of a memory stores something at."""


@RULES(
    "MUT-13",
    "A mutation is all or nothing: if the memory, the audit entry, a passage, the terms, the key or the project that "
    "it registers cannot be stored, nothing is.",
    features=frozenset({Feature.FAULT}),
)
async def all_or_nothing(world: World) -> None:
    every = changing(world)
    mutations = [(one, build) for one, build in every if one.touches == "memory" or one.name == "memory.write"]
    same("the mutations whose faults are known", {one.name for one, _ in mutations}, set(PASSED))
    for operation, build in mutations:
        for point in sorted(PASSED[operation.name]):
            place = await estate(world, f"acme/{operation.name}-{point}")
            payload = build(place)
            if "idempotency_key" in operation.input.model_fields:
                payload["idempotency_key"] = f"{operation.name}-{point}"
            what = f"a {operation.name} that failed to store {point}"
            async with world.unchanged(what), world.fault(point):
                await place.owner.fails(operation.name, **payload)
            receipt = await place.owner(operation.name, **payload)
            entry = (await place.owner("memory.history", id=receipt["id"]))["items"][0]
            same("the version in the trail once the fault is gone", entry["version"], receipt["version"])
    await _registering(world)


async def _registering(world: World) -> None:
    """A write and a move that register the project that they name."""
    alice = world.caller("alice", policy=ProjectPolicy.CREATE_MISSING)
    if alice.context.project_policy is not ProjectPolicy.CREATE_MISSING:
        world.notes.append("no mutation registers a project: the transport has another policy")
        return
    memory = (await alice("memory.write", content=TEXT))["id"]
    for point in sorted(PASSED["memory.write"] | {FaultPoint.PROJECT}):
        write = {"content": TEXT, "project": f"acme/new-{point}", "idempotency_key": f"new-{point}"}
        async with world.unchanged(f"a write to a new project that failed to store {point}"), world.fault(point):
            await alice.fails("memory.write", **write)
        receipt = await alice("memory.write", **write)
        same("whether the write makes the project then", receipt["project_created"], True)
    for point in sorted(PASSED["memory.update"] | {FaultPoint.PROJECT}):
        move = {"id": memory, "content": f"{TEXT} {point}", "project": f"acme/moved-{point}"}
        async with world.unchanged(f"a move to a new project that failed to store {point}"), world.fault(point):
            await alice.fails("memory.update", **move)
        receipt = await alice("memory.update", **move)
        same("whether the move makes the project then", receipt["project_created"], True)


@RULES(
    "MUT-14",
    "A mutation that is refused leaves no audit entry; one that is applied leaves exactly one.",
)
async def one_entry_each(world: World) -> None:
    place = await estate(world)
    reader = world.caller("rita", "readers")
    for number, (operation, build) in enumerate(changing(world)):
        place = await estate(world, f"acme/audited-{number}")
        payload = build(place)
        before = (await world.probe()).audit
        await reader.refused("access_denied", operation.name, **payload)
        await place.owner.refused("invalid_input", operation.name, **payload, unknown=1)
        same(f"the audit trail after a refused {operation.name}", (await world.probe()).audit, before)
        receipt = await place.owner(operation.name, **payload)
        added = [entry for entry in (await world.probe()).audit if entry not in before]
        same(
            f"the audit entries of one {operation.name}",
            [(entry.action, entry.memory_id or entry.project_id) for entry in added],
            [(operation.name, receipt["id"])],
        )
    await _refused_edits(world, place)


async def _refused_edits(world: World, place: Estate) -> None:
    memory = (await place.owner("memory.write", content="aaa"))["id"]
    before = (await world.probe()).audit
    await place.owner.refused("patch_ambiguous", "memory.patch", id=memory, old_string="aa", new_string="b")
    await place.owner.refused("patch_not_found", "memory.patch", id=memory, old_string="b", new_string="c")
    await place.owner.refused("content_empty", "memory.update", id=memory, content="")
    await place.owner.refused("version_conflict", "memory.delete", id=memory, version=9)
    same("the audit trail after refused edits", (await world.probe()).audit, before)
    racers = (place.owner, await world.second(place.owner))
    async with world.race(2):
        answers = await asyncio.gather(
            *(racer.attempt("memory.update", id=memory, tags=["raced"], version=1) for racer in racers)
        )
    applied = sum(not isinstance(answer, Refused) for answer in answers)
    added = len((await world.probe()).audit) - len(before)
    same("the audit entries of two racers", (added, applied), (1, 1))
