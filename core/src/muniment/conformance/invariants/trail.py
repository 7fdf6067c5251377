"""MUT-15: what an audit entry says."""

from __future__ import annotations

from typing import Any

from muniment.conformance.answers import moment
from muniment.conformance.estate import WRITERS, estate
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import World, same
from muniment.models import Agent

RULES = Rules(STORAGE_AND_TRANSPORT)


@RULES(
    "MUT-15",
    "Audit entries name actor, surface, action and the changed fields; for a patch offset, removed and added lengths; "
    "for a move both scopes; never the text.",
)
async def entries(world: World) -> None:
    place = await estate(world)
    alice = place.owner
    bob = world.caller("bob", WRITERS, agent=Agent(name="helper", instance="pod-1"), surface="other surface")
    memory = (await alice("memory.write", content="one two 😀 three", tags=["t"]))["id"]
    await alice("memory.update", id=memory, project=place.key)
    await bob("memory.patch", id=memory, old_string="three", new_string="3 and 4")
    await bob("memory.update", id=memory, tags=["u"])
    await bob("memory.update", id=memory, content="secretly rewritten", tags=["v"])
    await bob("memory.delete", id=memory)
    await alice("memory.restore", id=memory)
    own, shared = "u:alice", f"p:{place.project}"
    by_bob = {"actor": "bob", "surface": bob.context.surface, "agent": "helper/pod-1", "scope_key": shared}
    by_alice = {"actor": "alice", "surface": alice.context.surface, "agent": None, "scope_key": own}
    patched = {"offset": 10, "removed": 5, "added": 7}
    expected: list[dict[str, Any]] = [
        {**by_alice, "action": "memory.write", "changed": ["content", "tags"], "moved_to": None, "patch": None},
        {**by_alice, "action": "memory.update", "changed": ["scope"], "moved_to": shared, "patch": None},
        {**by_bob, "action": "memory.patch", "changed": ["content"], "moved_to": None, "patch": patched},
        {**by_bob, "action": "memory.update", "changed": ["tags"], "moved_to": None, "patch": None},
        {**by_bob, "action": "memory.update", "changed": ["content", "tags"], "moved_to": None, "patch": None},
        {**by_bob, "action": "memory.delete", "changed": ["deleted"], "moved_to": None, "patch": None},
        {
            **by_alice,
            "scope_key": shared,
            "action": "memory.restore",
            "changed": ["deleted"],
            "moved_to": None,
            "patch": None,
        },
    ]
    trail = (await alice("memory.history", id=memory))["items"][::-1]
    same("how many entries there are", len(trail), len(expected))
    for number, (entry, wanted) in enumerate(zip(trail, expected, strict=True)):
        seen = {field: entry[field] for field in wanted}
        same(f"the entry of version {number + 1}", seen, wanted)
        same("its version", entry["version"], number + 1)
        same("its memory", entry["memory_id"], memory)
        same(f"whether the entry of version {number + 1} holds text", "secretly" in str(entry), False)
    times = [moment(entry["at"]) for entry in trail]
    same("the times of the trail", times, sorted(times))
    await _paged(world, memory, trail)


async def _paged(world: World, memory: str, trail: list[dict[str, Any]]) -> None:
    alice = world.caller("alice")
    seen: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(len(trail)):
        page = await alice("memory.history", id=memory, limit=2, cursor=cursor)
        seen.extend(page["items"])
        cursor = page["cursor"]
        if cursor is None:
            break
    same("the trail read in pages", seen, trail[::-1])
