"""DIG-05 and ACK-08: over any sequence nothing is lost and nothing is seen unread, also when workers die."""

from __future__ import annotations

import asyncio
from typing import Any

from muniment.conformance import walk
from muniment.conformance.agents_estate import Instance, carried, instance
from muniment.conformance.invariants.digests import worst
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import AgentFaultPoint
from muniment.conformance.world import Answer, Caller, World, same

RULES = Rules(STORAGE_AND_TRANSPORT)
_AWAY = 45
_IN_FLIGHT = 12


@RULES(
    "DIG-05",
    "Over any sequence of appends, deliveries, acknowledgements, reads and lease losses, an entry at or below last "
    "seen was delivered in an acknowledged event, was read, or was evicted by the cap; random sequences agree with a "
    "model.",
)
async def seen_is_explained(world: World) -> None:
    await walk.agree(world, {"read": 3})


@RULES(
    "ACK-08",
    "Killed at any point of claim or acknowledgement, the system converges: nothing lost, nothing seen unread; an "
    "acknowledgement moves status and last seen together or neither; random sequences with crashes agree with a model.",
)
async def converges(world: World) -> None:
    await _together(world)
    await walk.agree(world, {"lose": 3, "read": 3}, rare=["crash", "lose", "crash", "reopen", "crash"], part=2)
    await _away_for_45(world)
    if world.can_crash:
        await _killed(world)
    else:
        world.notes.append("no crash: the target has none")


async def _together(world: World) -> None:
    """Whichever of the two rows cannot be stored, neither is changed; then the same token does both."""
    for number, point in enumerate(AgentFaultPoint):
        ada = instance(world, "together", str(number))
        other = instance(world, "other", str(number))
        await ada.record()
        delivery = await ada.delivered()
        async with world.fault_agent(point, ada.agent):
            async with world.unchanged(f"an acknowledgement whose {point} cannot be stored"):
                await ada.own.fails("event.ack", id=delivery["id"], token=delivery["token"])
            await other.record()
            same("another's acknowledgement meanwhile", await other.ack(await other.delivered()), "acknowledged")
        same("the same after it", await ada.ack(delivery), "acknowledged")
        same("revision and last seen", await ada.numbers(), (1, 1))
    ada = instance(world, "together", "claim")
    await ada.enqueue()
    async with world.fault_agent(AgentFaultPoint.EVENT, ada.agent), world.unchanged("a claim that cannot be stored"):
        await ada.own.fails("event.claim", limit=1)
    same("how many are claimed after it", len(await ada.claim(2)), 1)


async def _away_for_45(world: World) -> None:
    """45 entries as large as can be reach the agent, over as many events as it takes; one worker is killed."""
    ada = instance(world, "away")
    entries = [(await worst(ada, number))["takeaway"] for number in range(_AWAY)]
    got: list[str] = []
    killed: Answer | None = None
    for number in range(_AWAY):
        for _ in range(3 - len([killed] if number == 8 else [])):
            await ada.enqueue(number=number)
        batch = await ada.claim(3, world.short_lease)
        if number == 7:
            killed = batch.pop()
        if number == 8:
            await world.lose_leases()
            batch += await ada.claim(1, world.short_lease)
            same("the event of the worker that was killed", [batch[-1]["id"]], [killed and killed["id"]])
            same("its attempts", batch[-1]["attempts"], 2)
        world.random.shuffle(batch)
        for delivery in batch:
            same("an acknowledgement", await ada.ack(delivery), "acknowledged")
            got += [takeaway for takeaway in carried(delivery) if takeaway not in got]
        same("last seen beside what was got", (await ada.numbers())[1], len(got))
    same("what it got", got, entries)
    same("what the killed worker's token is worth", killed and await ada.ack(killed), "stale_receipt")


async def _killed(world: World) -> None:
    """The server dies under claims and acknowledgements; what was answered holds, and the rest comes again."""
    ada = instance(world, "killed")
    entries = await ada.record_many(_IN_FLIGHT)
    for number in range(_IN_FLIGHT):
        await ada.enqueue(number=number)
    claimed = await ada.claim(_IN_FLIGHT // 2)
    calls = [_outcome(ada.own, "event.ack", id=one["id"], token=one["token"]) for one in claimed]
    calls += [
        _outcome(ada.own, "event.claim", limit=1, lease_seconds=world.short_lease) for _ in range(_IN_FLIGHT // 2)
    ]
    running = asyncio.gather(*calls)
    await asyncio.sleep(0.001)
    own = await world.reopen(ada.own, crash=True)
    answers = await running
    again = Instance(world, ada.agent, own, ada.platform.at(own.client))
    same("the revision after a crash", (await again.numbers())[0], len(entries))
    acked = {answer["id"] for answer in answers if answer and answer.get("outcome") == "acknowledged"}
    stored = {one.id for one in (await world.stored_agents()).events if one.acked}
    same("the acknowledged events that are not", acked - stored, set[str]())
    await _drained(world, again, _IN_FLIGHT)
    same("revision and last seen in the end", await again.numbers(), (len(entries), len(entries)))


async def _drained(world: World, of: Instance, events: int) -> None:
    for _ in range(4):
        await world.lose_leases()
        for delivery in await of.claim(20, world.short_lease):
            await of.ack(delivery)
    acked = [one for one in (await world.stored_agents()).events if one.agent == of.agent and one.acked]
    same("how many events are acknowledged in the end", len(acked), events)


async def _outcome(caller: Caller, operation: str, **payload: Any) -> Answer | None:
    """The answer, or None where the server died before it."""
    try:
        return await caller(operation, **payload)
    except Exception:
        return None
