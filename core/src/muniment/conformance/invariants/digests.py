"""DIG-01 to DIG-04 and DIG-06: what an event's payload says of the agent's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from muniment import limits
from muniment.conformance.agent_model import KEYS, expected, fitting, said_of_memory
from muniment.conformance.agents_estate import POD, TIME, Entry, Instance, carried, compact, instance
from muniment.conformance.invariants.exchanges import stored_sizes_are_right
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Answer, World, holds, same

RULES = Rules(STORAGE_AND_TRANSPORT)
WIDE = "\U0001d54f"
_ROUNDS = 8


async def worst(of: Instance, number: int) -> Entry:
    """Record the largest entry that there can be, unlike any with another number."""
    peers = [f"{peer}-{number:03}".ljust(limits.ID_MAX, "x") for peer in range(limits.PEERS_MAX)]
    title = f"{number:03}" + WIDE * 500
    return await of.record(title, f"worst {number}", label=WIDE * limits.SURFACE_LABEL_MAX, peers=peers)


@RULES(
    "DIG-01",
    "A digest holds only entries above last seen; with nothing new there is no memoryDigest; memoryRevision is always "
    "there; the rest of the payload is as it was enqueued.",
)
async def only_new(world: World) -> None:
    ada = instance(world, "ada")
    payload: dict[str, Any] = {"content": "hello", "nested": {"memoryRevision": 7, "list": [1, None, "ü"]}}
    delivery = await ada.delivered(**payload)
    same("a payload before anything happened", delivery["payload"], {**payload, "memoryRevision": 0})
    entries = await ada.record_many(3)
    delivery = await ada.delivered(**payload)
    same("a payload with news", said_of_memory(delivery["payload"]), expected(entries, 3, 0))
    same("what was enqueued", {key: delivery["payload"][key] for key in payload}, payload)
    same("the fields of an entry", list(delivery["payload"]["memoryDigest"][0]), list(TIME_FIRST))
    await ada.ack(delivery)
    same("a payload with nothing new", (await ada.delivered())["payload"], {"memoryRevision": 3})
    entries += [await ada.record("later")]
    same("a payload with one new", said_of_memory((await ada.delivered())["payload"]), expected(entries, 4, 3))
    async with world.unchanged("payloads that name what a delivery adds"):
        for key in KEYS:
            event = {"agent": ada.ref, "payload": {key: 1}}
            await ada.platform.refused("invalid_input", "event.enqueue", **event)


TIME_FIRST = ("ts", "kind", "surfacePodId", "surfaceLabel", "peers", "takeaway")
"""The fields of an entry in a digest, in their order."""


@RULES(
    "DIG-02",
    "Oldest unseen first, as many as fit in 2,500 bytes of compact UTF-8 JSON, not one less; pending and evicted "
    "counts are right.",
)
async def as_many_as_fit(world: World) -> None:
    ada = instance(world, "ada")
    entries: list[Entry] = []
    for number in range(18):
        size = world.random.choice((1, 20, 200, 279, 400))
        letter = world.random.choice(("x", "ü", "語", WIDE, '"', "\\"))
        entries.append(await ada.record(f"{number}{letter * size}", label=letter * world.random.randrange(80)))
    seen = 0
    while seen < len(entries):
        delivery = await ada.delivered()
        same("what a delivery says", said_of_memory(delivery["payload"]), expected(entries, len(entries), seen))
        size = len(compact(delivery["payload"]["memoryDigest"]))
        holds(size <= limits.DIGEST_BYTES_MAX, "a digest's bytes", expected=limits.DIGEST_BYTES_MAX, seen=size)
        seen += len(delivery["payload"]["memoryDigest"])
        await ada.ack(delivery)
    await stored_sizes_are_right(ada)
    await _exactly(instance(world, "exact"))
    await _away_for_70(instance(world, "away"))


async def _exactly(ada: Instance) -> None:
    """Two entries that fill a digest to the byte, and two that are one byte over it."""
    for over in (0, 1):
        one = instance(ada.world, ada.agent.name, str(over))
        first, label = await worst(one, 0), "l" * limits.SURFACE_LABEL_MAX
        second: Entry = {"ts": TIME, "kind": "task-completed", "surfacePodId": POD, "surfaceLabel": label, "peers": []}
        without_title = {**second, "takeaway": " → ok"}
        bytes_so_far = len(compact([{name: first[name] for name in TIME_FIRST}, without_title]))
        room = limits.DIGEST_BYTES_MAX + over - bytes_so_far
        holds(0 < room < limits.TAKEAWAY_MAX - 5, "room for a title", expected="some", seen=room)
        entries = [first, await one.record("y" * room, label=label)]
        same("how many fit", len(carried(await one.delivered())), 2 - over)
        same("how many should fit", fitting(entries), 2 - over)


async def _away_for_70(ada: Instance) -> None:
    """Of 70 the cap has taken 20, which the agent is told; it gets the other 50."""
    entries = (await ada.record_many(70))[-limits.EXCHANGES_KEPT :]
    got: list[str] = []
    evicted: list[int] = []
    last_seen = 0
    while len(got) < len(entries):
        delivery = await ada.delivered()
        same("what a delivery says", said_of_memory(delivery["payload"]), expected(entries, 70, last_seen))
        evicted.append(delivery["payload"].get("memoryDigestEvicted", 0))
        got += carried(delivery)
        await ada.ack(delivery)
        last_seen = (await ada.numbers())[1]
    same("what it got", got, [entry["takeaway"] for entry in entries])
    same("of how many it was told that they are gone", (evicted[0], set(evicted[1:])), (20, {0}))


@RULES("DIG-03", "Something unseen always gives at least one entry, also where each is as large as its limits allow.")
async def never_empty(world: World) -> None:
    ada = instance(world, "ada")
    entries = [await worst(ada, number) for number in range(3)]
    for number, entry in enumerate(entries):
        delivery = await ada.delivered()
        same("what it carries", carried(delivery), [entry["takeaway"]])
        same("what waits", delivery["payload"].get("memoryDigestPending", 0), 2 - number)
        await ada.ack(delivery)
    same("revision and last seen in the end", await ada.numbers(), (3, 3))
    sizes = [one.size for one in await ada.stored_entries()]
    holds(max(sizes) <= limits.EXCHANGE_BYTES_MAX, "a size", expected=limits.EXCHANGE_BYTES_MAX, seen=sizes)
    await stored_sizes_are_right(ada)


@RULES("DIG-04", "Revision, digest and counts of a delivery come from one snapshot, also while exchanges are appended.")
async def one_snapshot(world: World) -> None:
    ada = instance(world, "ada")
    again = await ada.at_second()
    last_seen, claimed = 0, 0
    for number in range(_ROUNDS):
        for _ in range(4):
            await ada.enqueue()
        recording = asyncio.gather(*(again.record(f"{number} {turn} {'x' * 200}") for turn in range(8)))
        claiming = asyncio.gather(*((ada, again)[turn % 2].claim() for turn in range(4)))
        pages, _ = await asyncio.gather(claiming, recording)
        deliveries = [item for items in pages for item in items]
        claimed += len(deliveries)
        for delivery in deliveries:
            said = delivery["payload"]
            counts = said.get("memoryDigestPending", 0) + said.get("memoryDigestEvicted", 0)
            total = last_seen + len(said.get("memoryDigest", ())) + counts
            same("last seen and what is new, together", total, said["memoryRevision"])
        for delivery in reversed(deliveries):
            await ada.ack(delivery)
        last_seen = (await ada.numbers())[1]
        await _persisted(world, ada, deliveries)
    same("the deliveries that were looked at", claimed, 4 * _ROUNDS)


async def _persisted(world: World, ada: Instance, deliveries: Sequence[Answer]) -> None:
    """What is stored with a delivery is the revision of the last entry that it carried, or nothing."""
    stored = await world.stored_agents()
    revisions = {one.takeaway: one.revision for one in stored.exchanges if one.agent == ada.agent}
    delivered = {one.id: one.delivered for one in stored.events}
    for delivery in deliveries:
        takeaways = carried(delivery)
        newest = revisions.get(takeaways[-1]) if takeaways else None
        same("the revision stored with a delivery", delivered[delivery["id"]], newest)


@RULES(
    "DIG-06",
    "Equal revision and last seen give byte-identical digests: two events claimed before an acknowledgement carry the "
    "same, in one claim, in two, at another client, and delivered again.",
)
async def identical(world: World) -> None:
    ada = instance(world, "ada")
    again = await ada.at_second()
    for number in range(12):
        await ada.record(f"task {number} {'ü' * 250}", peers=["zoe/1", "bea/1"])
    for _ in range(5):
        await ada.enqueue(content="hi")
    deliveries = [*await ada.claim(2, world.short_lease), *await again.claim(), *await ada.claim(2)]
    same("how many were claimed", len(deliveries), 5)
    await world.lose_leases()
    deliveries += [*await again.claim(2)]
    same("how many were claimed again", len(deliveries), 7)
    texts = {compact({key: delivery["payload"].get(key) for key in KEYS}) for delivery in deliveries}
    same("how many different digests there are", len(texts), 1)
    same("what they carry", carried(deliveries[0])[0], f"task 0 {'ü' * 250} → ok")
    read = list(reversed((await ada.read("system_exchanges"))["system_exchanges"]["value"]))
    bare = [{name: value for name, value in entry.items() if name != "revision"} for entry in read]
    digest = deliveries[0]["payload"]["memoryDigest"]
    same("the digest beside the section", compact(digest), compact(bare[: len(digest)]))
    holds(0 < len(digest) < 12, "how many it carries", expected="some of 12", seen=len(digest))
