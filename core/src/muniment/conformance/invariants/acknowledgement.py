"""ACK-01 to ACK-06 and ACK-10: who gets an event, what a token is worth, and what an acknowledgement moves."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

from muniment.conformance.agents_estate import Instance, carried, instance
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import World, same
from muniment.limits import CLAIM_MAX

RULES = Rules(STORAGE_AND_TRANSPORT)
_CLAIMERS = 6
_ROUNDS = 4


@RULES(
    "ACK-01",
    "Racing claimers get one winner per event, under one lease; nobody gets another agent's; a batch is at most what "
    "was asked for, and as many where so many wait, and no event is left over.",
)
async def one_winner(world: World) -> None:
    ada = instance(world, "ada")
    again = await ada.at_second()
    others = [instance(world, "ada", "2"), instance(world, "ad", "a/1"), instance(world, "ADA"), instance(world, "bea")]
    for other in others:
        await other.enqueue(content=other.peer)
    for limit in (1, 2) * (_ROUNDS // 2):
        events = {await ada.enqueue(content="work") for _ in range(limit * _CLAIMERS)}
        async with world.race(_CLAIMERS, "claim"):
            pages = await asyncio.gather(*((ada, again)[turn % 2].claim(limit) for turn in range(_CLAIMERS)))
        won = [item["id"] for page in pages for item in page]
        won += [item["id"] for item in await ada.claim(20)]
        same("the events that were won, each once", sorted(won), sorted(events))
        same("whether a page holds more than was asked for", max(len(page) for page in pages) <= limit, True)
    event = await ada.enqueue(content="only one")
    async with world.race(2, "claim"):
        pages = await asyncio.gather(ada.claim(5), again.claim(5))
    same("the winners of one event", [item["id"] for page in pages for item in page], [event])
    same("what is left for a claim", await again.claim(20), [])
    many = [await ada.enqueue(content="one of many") for _ in range(CLAIM_MAX + 1)]
    batch = [item["id"] for item in await ada.claim(CLAIM_MAX)]
    same(f"how many a claim of {CLAIM_MAX} gets where one more waits", len(batch), CLAIM_MAX)
    left = [item["id"] for item in await again.claim(CLAIM_MAX)]
    same("what it and the next claim get", sorted([*batch, *left]), sorted(many))
    for other in others:
        items = await other.claim(20)
        same(f"what {other.peer} gets", [item["payload"]["content"] for item in items], [other.peer])


@RULES(
    "ACK-02",
    "The first acknowledgement with the latest token is acknowledged, any repeat of it already_acked, also when "
    "concurrent, and nothing moves.",
)
async def repeated(world: World) -> None:
    ada = instance(world, "ada")
    again = await ada.at_second()
    await ada.record("first")
    delivery = await ada.delivered()
    same("the first acknowledgement", await ada.ack(delivery), "acknowledged")
    same("revision and last seen", await ada.numbers(), (1, 1))
    await ada.record("second")
    async with world.unchanged("repeated acknowledgements"):
        for one in (ada, again, ada):
            same("a repeat", await one.ack(delivery), "already_acked")
    for _ in range(_ROUNDS):
        delivery = await ada.delivered()
        async with world.race(2, "ack"):
            outcomes = await asyncio.gather(ada.ack(delivery), again.ack(delivery))
        same("two acknowledgements at once", sorted(outcomes), ["acknowledged", "already_acked"])
    await world.lose_leases()
    same("what is claimed after all was acknowledged", await ada.claim(20), [])
    same("revision and last seen in the end", await ada.numbers(), (2, 2))


@RULES(
    "ACK-03",
    "Last seen only rises: acknowledgements in any order end at the maximum, which registering the agent again leaves.",
)
async def any_order(world: World) -> None:
    for number, order in enumerate(permutations(range(3))):
        ada = instance(world, "ada", f"{number}")
        deliveries: list[Any] = []
        for turn in range(3):
            await ada.record(f"before event {turn}")
            deliveries.append(await ada.delivered())
        await ada.record("after all of them")
        highest = 0
        for turn in order:
            same("an acknowledgement", await ada.ack(deliveries[turn]), "acknowledged")
            highest = max(highest, turn + 1)
            same(f"last seen after event {turn} of {order}", await ada.numbers(), (4, highest))
        await ada.platform("agent.register", agent=ada.ref, pods=["den"])
        same("revision and last seen once the agent is registered again", await ada.numbers(), (4, highest))
    for number in range(_ROUNDS):
        ada = instance(world, "racer", f"{number}")
        again = await ada.at_second()
        await ada.record("first")
        deliveries = [await ada.delivered()]
        await ada.record("second")
        deliveries.append(await ada.delivered())
        async with world.race(2, "ack"):
            await asyncio.gather(ada.ack(deliveries[number % 2]), again.ack(deliveries[1 - number % 2]))
        same("last seen after two at once", await ada.numbers(), (2, 2))


@RULES("ACK-04", "An event delivered without a digest moves nothing when it is acknowledged.")
async def without_digest(world: World) -> None:
    ada = instance(world, "ada")
    early = await ada.delivered()
    same("what it carries", carried(early), [])
    await ada.record("after the delivery")
    same("its acknowledgement", await ada.ack(early), "acknowledged")
    same("revision and last seen", await ada.numbers(), (1, 0))
    with_one = await ada.delivered()
    same("what the next carries", carried(with_one), ["after the delivery → ok"])
    await ada.ack(with_one)
    nothing_new = await ada.delivered()
    await ada.record_many(2)
    same("the acknowledgement of one with nothing new", await ada.ack(nothing_new), "acknowledged")
    same("revision and last seen after it", await ada.numbers(), (3, 1))


@RULES(
    "ACK-05",
    "The token of an earlier delivery is stale_receipt, before and after the event was acknowledged; an event of "
    "another agent, of nobody, or that was never delivered is not_found, all alike.",
)
async def earlier_tokens(world: World) -> None:
    ada = instance(world, "ada")
    others = [instance(world, "ada", "2"), instance(world, "bea"), instance(world, "ad", "a/1")]
    await ada.record("first")
    first = await ada.delivered(lease=world.short_lease)
    await world.lose_leases()
    await ada.record("second")
    (second,) = await ada.claim()
    same("the event that is offered again", (second["id"], second["attempts"]), (first["id"], 2))
    same("whether its token is a new one", second["token"] == first["token"], False)
    waiting = await ada.enqueue(content="never delivered")
    async with world.unchanged("acknowledgements that are not the latest delivery's"):
        for token in (first["token"], "made-up", second["token"].swapcase(), second["token"][:-1]):
            await _is_stale(ada, first["id"], token)
        for event in (waiting, "00000000-0000-4000-8000-000000000000", "nonsense"):
            await _is_nowhere(ada, event, second["token"])
        for other in others:
            await _is_nowhere(other, second["id"], second["token"])
    same("the latest", await ada.ack(second), "acknowledged")
    same("revision and last seen", await ada.numbers(), (2, 2))
    async with world.unchanged("the same after it was acknowledged"):
        await _is_stale(ada, first["id"], first["token"])
        for other in others:
            await _is_nowhere(other, second["id"], second["token"])


async def _is_stale(ada: Instance, event: str, token: str) -> None:
    for operation in ("event.ack", "event.extend"):
        answer = await ada.own(operation, id=event, token=token)
        same(f"{operation} with an earlier token", (answer["outcome"], answer["lease_until"]), ("stale_receipt", None))


async def _is_nowhere(caller: Instance, event: str, token: str) -> None:
    for operation in ("event.ack", "event.extend"):
        refusal = await caller.own.refused("not_found", operation, id=event, token=token)
        nowhere = await caller.own.refused("not_found", operation, id="absent", token=token)
        same("its message", refusal.message.replace(event, "absent"), nowhere.message)


@RULES("ACK-06", "A revision that a client sends has no effect: an acknowledgement raises to what was delivered.")
async def not_the_clients(world: World) -> None:
    ada = instance(world, "ada")
    await ada.record("delivered")
    delivery = await ada.delivered(revision=3, last_seen_revision=3, delivered=3)
    await ada.record_many(2)
    acknowledged = {"id": delivery["id"], "token": delivery["token"]}
    async with world.unchanged("acknowledgements that name a revision"):
        for field in ("revision", "memoryRevision", "memory_revision", "last_seen_revision", "delivered"):
            await ada.own.refused("invalid_input", "event.ack", **acknowledged, **{field: 3})
            await ada.own.refused("invalid_input", "section.read", sections=["soul"], **{field: 3})
    same("an acknowledgement that names none", await ada.ack(delivery), "acknowledged")
    same("revision and last seen", await ada.numbers(), (3, 1))


@RULES(
    "ACK-10",
    "The oldest claimable event of an agent is offered first, a batch in that order, and one that comes again before "
    "those that were enqueued after it.",
)
async def oldest_first(world: World) -> None:
    ada = instance(world, "ada")
    again = await ada.at_second()
    other = instance(world, "bea")
    events: list[str] = []
    for turn in range(8):
        events.append(await (ada, again)[turn % 2].enqueue(number=turn))
        await other.enqueue(number=turn)
    first = await ada.claim(lease=world.short_lease)
    batch = await again.claim(3, world.short_lease)
    same("the order of the first four", [item["id"] for item in (*first, *batch)], events[:4])
    await ada.ack(batch[0])
    await world.lose_leases()
    left = await ada.claim(4)
    same(
        "the order with those that come again", [item["id"] for item in left], [events[place] for place in (0, 2, 3, 4)]
    )
    same("their attempts", [item["attempts"] for item in left], [2, 2, 2, 1])
    same("the order of the rest", [item["id"] for item in await again.claim(20)], events[5:])
    same("the payloads of another's", [item["payload"]["number"] for item in await other.claim(20)], list(range(8)))
