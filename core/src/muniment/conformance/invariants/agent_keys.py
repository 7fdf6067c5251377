"""The part of MUT-12 that is about the platform: idempotency keys of exchanges and events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from muniment.conformance.agents_estate import PLATFORM, AgentsEstate, agent_operations, agents_estate
from muniment.conformance.invariant import Broken
from muniment.conformance.target import Refused
from muniment.conformance.world import Answer, Caller, World, holds, same
from muniment.operations import Operation

KEYED = frozenset(
    {"exchange.dm_concluded", "exchange.loop_tripped", "exchange.task_completed", "event.enqueue"},
)
"""What must take a key; the registry may know more."""


async def replayed(world: World) -> None:
    """Broken where a repeated request of the platform has a second effect, or another answer."""
    keyed = [one for one in agent_operations(world) if "idempotency_key" in one[0].input.model_fields]
    same("the platform's operations that must take a key", KEYED - {one.name for one, _ in keyed}, set[str]())
    for operation, recipe in keyed:
        place = await agents_estate(world, operation.name)
        await _repeated(world, place, operation, recipe(place))
        await _of_another_principal(world, place, operation, _renewed(recipe(place), "another principal"))
        await _at_once(world, place, operation, recipe(place))


def _renewed(payload: dict[str, Any], key: str) -> dict[str, Any]:
    """The payload with a dedupe key of its own, where it has one."""
    return {**payload, "dedupe_key": key} if "dedupe_key" in payload else payload


async def _repeated(world: World, place: AgentsEstate, operation: Operation, payload: dict[str, Any]) -> None:
    platform, key = place.ada.platform, f"key of {operation.name}"
    again = await world.second(platform)
    first = await platform(operation.name, **payload, idempotency_key=key)
    changed = {"payload": {"content": "other"}} if "payload" in payload else {"surface_label": "other"}
    async with world.unchanged(f"a repeated {operation.name}"):
        for caller in (platform, again):
            same("the repeated receipt", await caller(operation.name, **payload, idempotency_key=key), first)
        await platform.refused("idempotency_conflict", operation.name, **{**payload, **changed}, idempotency_key=key)
        renewed = _renewed(payload, "another dedupe key")
        if renewed != payload:
            await platform.refused("idempotency_conflict", operation.name, **renewed, idempotency_key=key)
        for stranger in (world.caller(PLATFORM), place.ada.own):
            await stranger.refused("access_denied", operation.name, **payload, idempotency_key=key)
    for other, build in agent_operations(world):
        if other.name in KEYED and other is not operation:
            async with world.unchanged(f"{other.name} with a key of {operation.name}"):
                sent = _renewed(build(place), "of another operation")
                await platform.refused("idempotency_conflict", other.name, **sent, idempotency_key=key)


async def _of_another_principal(
    world: World, place: AgentsEstate, operation: Operation, payload: dict[str, Any]
) -> None:
    """The same key of another platform is another key."""
    key = f"key of {operation.name}"
    other = world.caller("another-platform", platform=True)
    receipt = await other(operation.name, **payload, idempotency_key=key)
    same("whether another principal's was applied", receipt.get("deduped", False), False)
    same("its repeat", await other(operation.name, **payload, idempotency_key=key), receipt)


async def _at_once(world: World, place: AgentsEstate, operation: Operation, payload: dict[str, Any]) -> None:
    """Two of the same request: once side by side, once with one overtaking the other."""
    platform = place.ada.platform
    again = await world.second(platform)
    method = "enqueue" if operation.name == "event.enqueue" else "append_exchange"

    def racer(caller: Caller, key: str) -> Callable[[], Awaitable[Answer | Refused]]:
        sent = _renewed(payload, key)
        return lambda: caller.attempt(operation.name, **sent, idempotency_key=key)

    beside_key, late_key = f"beside {operation.name}", f"late {operation.name}"
    before = await _effects(world, place)
    async with world.race(2, method):
        beside = await asyncio.gather(racer(platform, beside_key)(), racer(again, beside_key)())
    late = await world.overtaken("find_receipt", racer(platform, late_key), racer(again, late_key))
    for first, second in (beside, late):
        if isinstance(first, Refused) or isinstance(second, Refused):
            raise Broken(
                f"a concurrent {operation.name} with the same key", expected="the receipt", seen=(first, second)
            )
        same(f"the receipts of a concurrent {operation.name}", second, first)
    made = await _effects(world, place) - before
    holds(made == 2, f"the effects of two concurrent pairs of {operation.name}", expected=2, seen=made)


async def _effects(world: World, place: AgentsEstate) -> int:
    """How many exchanges and events of the first agent are stored."""
    stored = await world.stored_agents()
    return sum(one.agent == place.ada.agent for one in (*stored.exchanges, *stored.events))
