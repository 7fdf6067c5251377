"""OPS-03: whom a storage names as having something to claim."""

from __future__ import annotations

from muniment import limits
from muniment.conformance.agents_estate import Instance, instance
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.world import World, same

RULES = Rules(STORAGE, since="1.2")

MANY = 200
"""As many agents as there may be streams, and more."""


@RULES(
    "OPS-03",
    "Of the agents that are asked about those are named, each once, whose events a claim would get: not where all are "
    "out, acknowledged or dead; where a lease ran out it is named again; through every client, and no other agent.",
)
async def agents_waiting(world: World) -> None:
    ada, upper, other, slashed, apart = (
        instance(world, name, number)
        for name, number in (("ada", "1"), ("Ada", "1"), ("ada", "2"), ("ada/x", "1"), ("ada", "x/1"))
    )
    crowd = [ada, upper, other, slashed, apart, *(instance(world, "nobody", str(number)) for number in range(MANY))]
    await _waiting(world, crowd, [], "before there are any")
    await _waiting(world, [], [], "who is not asked about")
    await ada.enqueue(content="first")
    await _waiting(world, crowd, [ada], "with one event")
    await slashed.enqueue(content="of another")
    await _waiting(world, crowd, [ada, slashed], "with one each")
    await _waiting(world, [upper, other, apart], [], "who are called alike")
    await _waiting(world, [slashed, slashed], [slashed], "who is asked about twice")
    for attempt in range(1, limits.ATTEMPTS_MAX + 1):
        same("what is claimed", len(await ada.claim(5, world.short_lease)), 1)
        await _waiting(world, crowd, [slashed], "while the event is out")
        await world.lose_leases()
        await _waiting(world, crowd, [slashed], "past the maximum of attempts that is asked for", attempts_max=attempt)
        left = [ada] if attempt < limits.ATTEMPTS_MAX else []
        await _waiting(world, crowd, [*left, slashed], f"after the lease of attempt {attempt}")
    await ada.enqueue(content="second")
    await _waiting(world, crowd, [ada, slashed], "with another event beside the dead one")
    (delivery,) = await ada.claim(lease=world.short_lease)
    same("an acknowledgement", await ada.ack(delivery), "acknowledged")
    await world.lose_leases()
    await _waiting(world, crowd, [slashed], "once it is acknowledged")


async def _waiting(
    world: World,
    asked: list[Instance],
    expected: list[Instance],
    when: str,
    *,
    attempts_max: int = limits.ATTEMPTS_MAX,
) -> None:
    for storage in (world.storage, await world.second_storage()):
        named = await storage.agents_waiting([one.agent for one in asked], attempts_max=attempts_max)
        same(f"who is named {when}", sorted(map(str, named)), sorted(str(one.agent) for one in expected))
