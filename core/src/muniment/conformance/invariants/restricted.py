"""ACC-11: credentials that may only read, whoever's they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from muniment.conformance.agents_estate import agent_operations, agents_estate
from muniment.conformance.estate import estate, every_operation
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Caller, World
from muniment.operations import Operation

RULES = Rules(STORAGE_AND_TRANSPORT, since="1.1")


@RULES(
    "ACC-11",
    "Credentials that may only read are refused with access_denied by every operation that changes something, whatever "
    "their user may do, and nothing changes; every other operation answers them as ever.",
)
async def only_reading(world: World) -> None:
    changing: list[tuple[Caller, str, dict[str, Any]]] = []
    async for caller, operation, payload in _each_call(world):
        if operation.read_only:
            await _restricted(caller)(operation.name, **payload)
        else:
            changing.append((caller, operation.name, payload))
    async with world.unchanged("operations by credentials that may only read"):
        for caller, name, payload in changing:
            await _restricted(caller).refused("access_denied", name, **payload)
    for caller, name, payload in changing:
        await caller(name, **payload)


async def _each_call(world: World) -> AsyncGenerator[tuple[Caller, Operation, dict[str, Any]]]:
    """Every operation of the registry, with one who may call it and an input that it takes."""
    for number, (operation, build) in enumerate(every_operation(world)):
        place = await estate(world, f"acme/restricted-{number}")
        yield place.owner, operation, build(place)
    for operation, recipe in agent_operations(world):
        agents = await agents_estate(world, f"restricted-{operation.name}")
        yield agents.rightful(operation), operation, recipe(agents)


def _restricted(caller: Caller) -> Caller:
    principal = caller.context.principal
    return caller.with_context(principal=principal.model_copy(update={"read_only": True}))
