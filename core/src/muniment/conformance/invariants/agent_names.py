"""The part of ACC-08 that is about agents: two instances whose names are alike share nothing."""

from __future__ import annotations

from muniment.conformance.agents_estate import Instance, carried, instance
from muniment.conformance.world import World, same
from muniment.models import Agent


async def are_apart(world: World, both: tuple[Agent, Agent]) -> None:
    """Broken where sections, pods, exchanges, dedupe keys or events of the one are the other's."""
    one, other = (instance(world, agent.name, agent.instance) for agent in both)
    for each, mine in ((one, "the first's"), (other, "the second's")):
        await each.own("section.save", section="soul", value=mine, visibility="pod", version=0)
        await each.own("section.log_cycle", text=mine, version=0)
        same("the revision of its first exchange", (await each.record(mine, "the same key"))["revision"], 1)
        await each.enqueue(content=mine)
    await one.platform("agent.register", agent=one.ref, pods=["den"])
    for each, of in ((one, other), (other, one)):
        shown = await each.own("section.read_shared", agent=of.ref)
        same("what is open to one that is in no pod with it", shown["sections"], {})
    for each, mine in ((one, "the first's"), (other, "the second's")):
        await _has_its_own(each, mine)


async def _has_its_own(each: Instance, mine: str) -> None:
    (delivery,) = await each.claim(20)
    same("the event that it gets", (delivery["payload"]["content"], carried(delivery)), (mine, [f"{mine} → ok"]))
    same("the acknowledgement of it", await each.ack(delivery), "acknowledged")
    read = await each.read("soul", "cycles", "system_exchanges")
    same("its section", read["soul"]["value"], mine)
    same("its cycles", [line["text"] for line in read["cycles"]["value"]], [mine])
    same("its exchanges", [entry["takeaway"] for entry in read["system_exchanges"]["value"]], [f"{mine} → ok"])
    same("revision and last seen", await each.numbers(), (1, 1))
