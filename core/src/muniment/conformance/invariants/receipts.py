"""MUT-12: idempotency keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from muniment.conformance.estate import WRITERS, Estate, estate, every_operation, recipe
from muniment.conformance.invariant import Broken
from muniment.conformance.invariants import agent_keys
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import Refused
from muniment.conformance.world import Answer, Caller, World, same
from muniment.operations import OPERATIONS, Operation

RULES = Rules(STORAGE_AND_TRANSPORT)
KEYED = frozenset({"memory.write", "memory.patch"})
"""What must take a key; the registry may know more."""


@RULES(
    "MUT-12",
    "With an idempotency key the same principal, key and body give the first receipt and no second effect, also when "
    "concurrent and when the second names another scope by default; another body is idempotency_conflict; a replay "
    "checks access again.",
)
async def idempotency(world: World) -> None:
    keyed = [one for one, _ in every_operation(world) if "idempotency_key" in one.input.model_fields]
    same("the operations that must take a key", KEYED - {operation.name for operation in keyed}, set[str]())
    for number, operation in enumerate(keyed):
        place = await estate(world, f"acme/keyed-{number}")
        await _replayed(world, place, operation)
        await _belongs_to_the_principal(world, await estate(world, f"acme/keyed-by-{number}"), operation)
        await _checks_access_again(world, f"acme/keyed-access-{number}", operation)
        for versioned in (False, True):
            await _concurrent(world, f"acme/keyed-race-{number}-{versioned}", operation, versioned)
    await _default_scope(world)
    await agent_keys.replayed(world)


async def _replayed(world: World, place: Estate, operation: Operation) -> None:
    alice, payload = place.owner, recipe(operation)(place)
    key = f"first {place.key}"
    first = await alice(operation.name, **payload, idempotency_key=key)
    async with world.unchanged(f"a repeated {operation.name}"):
        same("the repeated receipt", await alice(operation.name, **payload, idempotency_key=key), first)
        again = await world.second(alice)
        same("the receipt at a second client", await again(operation.name, **payload, idempotency_key=key), first)
        for field in ("content", "new_string"):
            if field in payload:
                other = {**payload, field: "something else"}
                await alice.refused("idempotency_conflict", operation.name, **other, idempotency_key=key)
        other_name = next(name for name in sorted(KEYED) if name != operation.name)
        other = recipe(OPERATIONS[other_name])(place)
        await alice.refused("idempotency_conflict", other_name, **other, idempotency_key=key)
    free = f"free {place.key}"
    async with world.unchanged("a refused request with a key"):
        broken: dict[str, Any] = {"id": place.live, "old_string": "absent", "new_string": "x"}
        await alice.refused("patch_not_found", "memory.patch", **broken, idempotency_key=free)
    receipt = await alice("memory.write", content="after a refusal the key is free", idempotency_key=free)
    same("the version of a write whose key was only refused before", receipt["version"], 1)


async def _belongs_to_the_principal(world: World, place: Estate, operation: Operation) -> None:
    """The same key of another principal is another key."""
    alice, bob = place.owner, world.caller("bob", WRITERS)
    payload = recipe(operation)(place)
    mine = f"mine {place.key}"
    first = await alice(operation.name, **payload, idempotency_key=mine)
    if operation.name == "memory.patch":
        payload = {**payload, "old_string": "The key", "new_string": "A key"}
    second = await bob(operation.name, **payload, idempotency_key=mine)
    same(
        "whether another principal's request with the same key was applied",
        (second["id"], second["version"]) != (first["id"], first["version"]),
        True,
    )


async def _checks_access_again(world: World, key: str, operation: Operation) -> None:
    place = await estate(world, key)
    bob, payload = world.caller("bob", WRITERS), recipe(operation)(place)
    later = f"later {key}"
    first = await bob(operation.name, **payload, idempotency_key=later)
    same("a replay while the grant stands", await bob(operation.name, **payload, idempotency_key=later), first)
    await place.owner("project.share", project=key, group=WRITERS, access="ro")
    await bob.refused("access_denied", operation.name, **payload, idempotency_key=later)
    await place.owner("project.unshare", project=key, group=WRITERS)
    await bob.refused(("not_found", "unknown_project"), operation.name, **payload, idempotency_key=later)


async def _concurrent(world: World, key: str, operation: Operation, versioned: bool) -> None:
    """Both are under way before either is stored: once side by side, once with one overtaking the other."""
    place = await estate(world, key)
    alice = place.owner
    again = await world.second(alice)
    version = {"version": 1} if versioned and "version" in operation.input.model_fields else {}
    payload = {**recipe(operation)(place), **version}

    def racer(caller: Caller, claim: str) -> Callable[[], Awaitable[Answer | Refused]]:
        return lambda: caller.attempt(operation.name, **payload, idempotency_key=claim)

    async with world.race(2):
        pair = await asyncio.gather(racer(alice, f"beside {key}")(), racer(again, f"beside {key}")())
    await _one_effect(world, operation, pair)
    if operation.name == "memory.patch":
        place = await estate(world, f"{key}-overtaken")
        payload = {**recipe(operation)(place), **version}
    late = f"overtaken {key}"
    overtaken = await world.overtaken("find_receipt", racer(alice, late), racer(again, late))
    await _one_effect(world, operation, overtaken)


async def _one_effect(world: World, operation: Operation, answers: tuple[Any, Any] | list[Any]) -> None:
    for answer in answers:
        if isinstance(answer, Refused):
            raise Broken(f"a concurrent {operation.name} with the same key", expected="the receipt", seen=answer)
    first, second = answers
    same(f"the receipts of a concurrent {operation.name}", second, first)
    trail = [entry for entry in (await world.probe()).audit if entry.memory_id == first["id"]]
    same(
        f"the audit entries of a concurrent {operation.name}",
        [entry.action for entry in trail].count(first["action"]),
        1,
    )


async def _default_scope(world: World) -> None:
    alice = world.caller("alice")
    for key in ("acme/one", "acme/two"):
        await alice("project.identify", project=key)
    here, there = (alice.with_context(default_project=key) for key in ("acme/one", "acme/two"))
    first = await here("memory.write", content="sent twice", idempotency_key="moved on")
    async with world.unchanged("a repeated write from another default project"):
        same(
            "the receipt of a write that is repeated from another default project",
            await there("memory.write", content="sent twice", idempotency_key="moved on"),
            first,
        )
