"""ACK-07 and ACK-09: leases that run out, dead events, and what reading marks as seen."""

from __future__ import annotations

from muniment import limits
from muniment.conformance.agents_estate import Instance, carried, instance
from muniment.conformance.answers import moment
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import LONG_LEASE, Answer, World, holds, same

RULES = Rules(STORAGE_AND_TRANSPORT)


@RULES(
    "ACK-07",
    "A lease that ran out is offered again with attempts + 1, a new token and a digest of its own; an extension sets "
    "its end, also to a sooner one; past the maximum the event is dead and visible; the latest token still "
    "acknowledges it; a requeued one is claimable again, and one that is out is not requeued.",
)
async def leases(world: World) -> None:
    ada = instance(world, "ada")
    lost = [await ada.enqueue(content=f"lost {number}") for number in range(3)]
    await _extended(world)
    tokens: set[str] = set()
    deliveries: list[Answer] = []
    for attempt in range(1, limits.ATTEMPTS_MAX + 1):
        entry = await ada.record(f"before attempt {attempt}")
        deliveries = await ada.claim(20, world.short_lease)
        same(f"the events of attempt {attempt}", [item["id"] for item in deliveries], lost)
        same("their attempts", {item["attempts"] for item in deliveries}, {attempt})
        same("the last entry that they carry", {carried(item)[-1] for item in deliveries}, {entry["takeaway"]})
        tokens |= {item["token"] for item in deliveries}
        same("what is claimed under a lease", await ada.claim(20), [])
        same("which are dead under a lease", await _dead(ada), [])
        early = await ada.platform("event.requeue", agent=ada.ref, ids=lost)
        same("what is requeued under a lease", early["requeued"], [])
        await world.lose_leases()
    same("how many tokens there were", len(tokens), 3 * limits.ATTEMPTS_MAX)
    same("what is claimed past the maximum", await ada.claim(20), [])
    await _are_dead(ada, lost)
    same("the latest token of a dead event", await ada.ack(deliveries[0]), "acknowledged")
    same("revision and last seen after it", await ada.numbers(), (limits.ATTEMPTS_MAX, limits.ATTEMPTS_MAX))
    await _are_dead(ada, lost[1:])
    await _requeued(world, ada, deliveries, lost)


async def _extended(world: World) -> None:
    """An event whose lease was extended outlives the lease that it had."""
    kept = instance(world, "kept")
    delivery = await kept.delivered(lease=world.short_lease)
    answer = await kept.own(
        "event.extend", id=delivery["id"], token=delivery["token"], lease_seconds=limits.LEASE_SECONDS_MAX
    )
    same("an extension", answer["outcome"], "acknowledged")
    until = moment(answer["lease_until"]) - moment(delivery["lease_until"])
    holds(until.total_seconds() > LONG_LEASE, "how far it was extended", expected="most of an hour", seen=until)
    await world.lose_leases()
    same("what is claimed of an extended lease", await kept.claim(), [])
    same("the extended one", await kept.ack(delivery), "acknowledged")
    async with world.unchanged("an extension after the acknowledgement"):
        late = await kept.own("event.extend", id=delivery["id"], token=delivery["token"])
    same("its outcome", late["outcome"], "already_acked")
    await _shortened(world)


async def _shortened(world: World) -> None:
    """A lease ends when its latest extension says, also where that is sooner."""
    short = instance(world, "short")
    delivery = await short.delivered(lease=limits.LEASE_SECONDS_MAX)
    answer = await short.own(
        "event.extend", id=delivery["id"], token=delivery["token"], lease_seconds=world.short_lease
    )
    until = moment(answer["lease_until"])
    holds(until < moment(delivery["lease_until"]), "its end", expected="sooner than before", seen=until)
    await world.lose_leases()
    again = await short.claim()
    same("what is claimed of a lease that was shortened", [item["id"] for item in again], [delivery["id"]])
    same("its attempts", [item["attempts"] for item in again], [2])


async def _dead(of: Instance, **more: object) -> list[Answer]:
    return (await of.platform("event.dead", agent=of.ref, **more))["items"]


async def _are_dead(ada: Instance, events: list[str]) -> None:
    dead = await _dead(ada)
    same("the dead events", sorted(item["id"] for item in dead), sorted(events))
    times = [moment(item["enqueued_at"]) for item in dead]
    same("the order of the dead events", times, sorted(times))
    same("their attempts", {item["attempts"] for item in dead}, {limits.ATTEMPTS_MAX})
    for item in dead:
        same("the payload of a dead event, as it was enqueued", list(item["payload"]), ["content"])
    pages: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await ada.platform("event.dead", agent=ada.ref, limit=1, **cursor)
        pages += [item["id"] for item in page["items"]]
        if page["cursor"] is None:
            break
        cursor = {"cursor": page["cursor"]}
        other = {"agent": instance(ada.world, "bea").ref, "limit": 1, **cursor}
        await ada.platform.refused("invalid_input", "event.dead", **other)
    same("the dead events, one a page", pages, [item["id"] for item in dead])
    same("another's dead events", await _dead(instance(ada.world, "bea")), [])


async def _requeued(world: World, ada: Instance, deliveries: list[Answer], lost: list[str]) -> None:
    acked, first, second = lost
    waiting = await ada.enqueue(content="waits")
    async with world.unchanged("requeuing what is not dead, or another's"):
        for of, ids in ((ada, [acked, waiting, "absent"]), (instance(world, "bea"), [first])):
            same("what was requeued", (await of.platform("event.requeue", agent=of.ref, ids=ids))["requeued"], [])
    answer = await ada.platform("event.requeue", agent=ada.ref, ids=[acked, first, waiting, second, first])
    same("what was requeued of the dead", sorted(answer["requeued"]), sorted([first, second]))
    same("what is dead after it", await _dead(ada), [])
    same("the latest token until the next claim", await ada.ack(deliveries[1]), "acknowledged")
    items = await ada.claim(20)
    same("what is claimed after it", [item["id"] for item in items], [second, waiting])
    same("their attempts", [item["attempts"] for item in items], [1, 1])
    same("the token before the requeue", await ada.ack(deliveries[2]), "stale_receipt")
    same("the requeued one", await ada.ack(items[0]), "acknowledged")


@RULES(
    "ACK-09",
    "Reading system_exchanges raises last seen by max, up to the contiguous oldest part that the reply held; reading "
    "other sections raises nothing.",
)
async def reading(world: World) -> None:
    ada = instance(world, "ada")
    await ada.record_many(5)
    await ada.read("soul", "cycles")
    same("after reading other sections", await ada.numbers(), (5, 0))
    for count in (1, 4):
        view = await ada.own("section.read", sections=["system_exchanges"], exchanges=count)
        same("how many a reply holds", len(view["sections"]["system_exchanges"]["value"]), count)
        same("the last seen that it names", view["last_seen_revision"], 0)
        same(f"after reading the newest {count} of 5", await ada.numbers(), (5, 0))
    early = await ada.delivered()
    view = await ada.own("section.read", sections=["soul", "system_exchanges"], exchanges=5)
    same("the last seen that a whole reply names", view["last_seen_revision"], 5)
    same("after reading all", await ada.numbers(), (5, 5))
    await ada.record_many(3, "later")
    await ada.ack(early)
    same("after an acknowledgement of less", await ada.numbers(), (8, 5))
    await ada.read("system_exchanges", exchanges=2)
    same("after reading the newest 2 of 3", await ada.numbers(), (8, 5))
    await ada.read("system_exchanges", exchanges=3)
    same("after reading the newest 3 of 3", await ada.numbers(), (8, 8))
    await ada.read("system_exchanges", exchanges=1)
    same("after reading again", await ada.numbers(), (8, 8))
    same("what an event then carries", carried(await ada.delivered()), [])
    await ada.record_many(limits.EXCHANGES_KEPT + 4, "many")
    await ada.own("section.read")
    same("after reading what the cap has left", await ada.numbers(), (62, 62))
