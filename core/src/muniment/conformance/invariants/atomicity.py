"""MUT-13, MUT-14 and MUT-16: all or nothing, and what an acknowledgement promises."""

from __future__ import annotations

import asyncio
from typing import Any

from muniment.conformance.estate import TEXT, Estate, changing, estate
from muniment.conformance.invariant import Feature
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import FaultPoint, Refused
from muniment.conformance.world import Answer, Caller, World, same
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


@RULES(
    "MUT-16",
    "What an acknowledged mutation wrote is there after closing and reopening the storage, and after its server was "
    "killed.",
)
async def survives(world: World) -> None:
    place = await estate(world)
    before = await world.probe()
    expected = await _everything(place.owner, place)
    again = await world.reopen(place.owner)
    same("what is read after reopening", await _everything(again, place), expected)
    same("the rows after reopening", (await world.probe()).rows, before.rows)
    receipt = await again("memory.update", id=place.live, tags=["after"])
    same("the version of an edit after reopening", receipt["version"], 2)
    if world.can_crash:
        await _killed_while_writing(world, again)
    else:
        world.notes.append("closed and reopened only, as the target has no crash")


async def _everything(caller: Caller, place: Estate) -> list[Answer]:
    history = {"id": place.gone}
    reads: list[tuple[str, dict[str, Any]]] = [
        ("memory.get", {"id": place.live}),
        ("memory.list", {"deleted": True}),
        ("memory.history", history),
        ("project.list", {}),
        ("memory.search", {"query": "north tower"}),
    ]
    return [await caller(operation, **payload) for operation, payload in reads]


async def _killed_while_writing(world: World, caller: Caller) -> None:
    """Several writers are under way when the server dies; what any of them was told stays."""
    acknowledged: list[tuple[str, str]] = []
    enough = asyncio.Event()

    async def write(writer: int) -> None:
        for number in range(10_000):
            text = f"writer {writer}, entry {number}"
            receipt = await caller("memory.write", content=text)
            acknowledged.append((receipt["id"], text))
            if len(acknowledged) >= 20:
                enough.set()

    writers = [asyncio.ensure_future(write(number)) for number in range(4)]
    started = asyncio.ensure_future(enough.wait())
    await asyncio.wait([started, *writers], return_when=asyncio.FIRST_COMPLETED)
    again = await world.reopen(caller, crash=True)
    for task in (started, *writers):
        task.cancel()
    await asyncio.gather(started, *writers, return_exceptions=True)
    same("whether any write was acknowledged before the server was killed", len(acknowledged) >= 20, True)
    for memory, text in acknowledged:
        same(f"the acknowledged content of {memory}", (await again("memory.get", id=memory))["content"], text)
    receipt = await again("memory.write", content="after the crash")
    same("the version of a write after the crash", receipt["version"], 1)
