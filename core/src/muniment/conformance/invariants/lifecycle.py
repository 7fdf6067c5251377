"""MUT-10 and MUT-11: what an update leaves alone, and deletion with its way back."""

from __future__ import annotations

from typing import Any

from muniment.conformance.answers import found, ranker_scores
from muniment.conformance.estate import WRITERS, estate
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Answer, Caller, World, holds, same

RULES = Rules(STORAGE_AND_TRANSPORT)
KEPT = ("id", "scope", "project_id", "content", "tags", "created_at")


@RULES("MUT-10", "An update of one field leaves every other field as it was.")
async def one_field(world: World) -> None:
    place = await estate(world)
    alice = place.owner
    memory = (await alice("memory.write", content="first words here", tags=["b", "a"]))["id"]
    moved = {"scope": "project", "project_id": place.project}
    steps: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("memory.update", {"content": "second words here"}, {"content": "second words here"}),
        (
            "memory.patch",
            {"old_string": "second", "new_string": "third"},
            {"content": "third words here"},
        ),
        ("memory.update", {"tags": ["c", "d"]}, {"tags": ["c", "d"]}),
        ("memory.update", {"project": place.key}, moved),
        ("memory.update", {"tags": []}, {"tags": []}),
        ("memory.update", {"scope": "user"}, {"scope": "user", "project_id": None}),
        (
            "memory.update",
            {"scope": "project", "project": place.key, "content": "fourth", "tags": ["e"]},
            {**moved, "content": "fourth", "tags": ["e"]},
        ),
    ]
    expected = await alice("memory.get", id=memory)
    for operation, payload, changes in steps:
        await alice(operation, id=memory, **payload)
        after = await alice("memory.get", id=memory)
        expected = {**expected, **changes}
        for field in KEPT:
            same(f"{field} after {operation} of {', '.join(payload)}", after[field], expected[field])


@RULES(
    "MUT-11",
    "Delete takes a version and hides a memory from get, list and every ranker; a second delete is not_found; "
    "list(deleted=true) finds it for whoever may write there; restore brings it back whole and searchable; its audit "
    "trail was there throughout.",
)
async def delete_and_restore(world: World) -> None:
    place = await estate(world)
    alice, bob, reader = place.owner, world.caller("bob", WRITERS), world.caller("rita", "readers")
    written = await alice(
        "memory.write", content="The zephyr manual explains quicksilver.", tags=["zephyr"], project=place.key
    )
    memory = written["id"]
    before = await alice("memory.get", id=memory)
    await _is_found(reader, memory)
    await alice.refused("not_found", "memory.restore", id=memory)
    async with world.unchanged("a delete with a stale version"):
        await bob.refused("version_conflict", "memory.delete", id=memory, version=2)
    await bob("memory.delete", id=memory, version=1)
    await _is_hidden(world, [alice, bob, reader], memory)
    same("the deleted memories that a writer sees", await _listed(bob, True), {memory, place.gone})
    same("the deleted memories that a reader sees", await _listed(reader, True), set[str]())
    actions = [entry["action"] for entry in (await reader("memory.history", id=memory))["items"]]
    same("the trail while it is deleted", len(actions), 2)
    async with world.unchanged("a restore with a stale version"):
        await alice.refused("version_conflict", "memory.restore", id=memory, version=1)
    await alice("memory.restore", id=memory, version=2)
    after = await reader("memory.get", id=memory)
    same("the restored memory", {field: after[field] for field in KEPT}, {field: before[field] for field in KEPT})
    same("the version of the restored memory", after["version"], 3)
    same("the deleted memories after the restore", await _listed(alice, True), {place.gone})
    await _is_found(reader, memory)
    same("the trail after the restore", len((await alice("memory.history", id=memory))["items"]), 3)


async def _listed(caller: Caller, deleted: bool) -> set[str]:
    page = await caller("memory.list", deleted=deleted)
    return {memory["id"] for memory in page["items"]}


async def _is_found(caller: Caller, memory: str) -> None:
    same("the memory in the list", memory in await _listed(caller, False), True)
    for query, ranker in (("quicksilver", "words"), ("zephyr", "tags"), ("explains quicksilver", "meaning")):
        for fusion in ("weighted", "rrf"):
            scores = ranker_scores(await caller("memory.search", query=query, fusion=fusion), memory)
            holds(scores.get(ranker, 0) > 0, f"the {ranker} ranker for {query!r}", expected="a match", seen=scores)


async def _is_hidden(world: World, callers: list[Caller], memory: str) -> None:
    for caller in callers:
        await caller.refused("not_found", "memory.get", id=memory)
        same("the deleted memory in the list", memory in await _listed(caller, False), False)
        for query in ("quicksilver", "zephyr", "The zephyr manual explains quicksilver."):
            page: Answer = await caller("memory.search", query=query)
            same(f"the deleted memory among the hits of {query!r}", memory in found(page), False)
    stored = await world.probe()
    same("stored passages of the deleted memory", [one for one in stored.passages if one.memory_id == memory], [])
    same("stored terms of the deleted memory", [one for one in stored.terms if one.memory_id == memory], [])
    async with world.unchanged("edits of a deleted memory"):
        owner = callers[0]
        await owner.refused("not_found", "memory.delete", id=memory)
        await owner.refused("not_found", "memory.update", id=memory, content="new")
        await owner.refused("not_found", "memory.patch", id=memory, old_string="zephyr", new_string="new")
