"""SEC-04 to SEC-08: how exchanges are appended, capped, cut and deduplicated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from muniment import limits
from muniment.agent_models import SectionName, Visibility
from muniment.conformance.agents_estate import POD, TIME, Instance, compact, instance
from muniment.conformance.invariant import Broken
from muniment.conformance.meetings import Calling, in_either_order
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import AgentFaultPoint, FaultPoint, Refused
from muniment.conformance.world import Answer, World, holds, same
from muniment.ports import SectionChange, SectionsWrite

RULES = Rules(STORAGE_AND_TRANSPORT)
WRITERS = 200
"""Appends to one agent at once."""
PATIENCE = 30.0
"""Seconds after which appends that wait for each other count as deadlocked."""
_FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
_ROUNDS = 6
_MEETINGS = 2
"""Of an append with each other write, in each order."""
SEEING = ("ack", "raise_last_seen")
BESIDE = (*SEEING, "write_sections", "register_agent")
"""The storage's other methods that write an envelope."""


async def _dm(
    platform: Instance, first: Instance, second: Instance, key: str, messages: Sequence[str] = ("bye",), **more: Any
) -> Answer:
    peers = [first.ref, second.ref]
    return await platform.platform(
        "exchange.dm_concluded", peers=peers, messages=list(messages), surface_pod_id=POD, dedupe_key=key, **more
    )


async def _entries(of: Instance) -> list[dict[str, Any]]:
    """What the agent reads of its own exchanges, newest first."""
    return (await of.read("system_exchanges"))["system_exchanges"]["value"]


@RULES("SEC-04", "Exchanges are newest first, never more than the cap of 50; the oldest goes.")
async def capped(world: World) -> None:
    ada, other = instance(world, "ada"), instance(world, "ada", "2")
    await other.record("the other's")
    for number in range(1, limits.EXCHANGES_KEPT + 3):
        await ada.record(f"task {number}")
        if number in (1, 2, limits.EXCHANGES_KEPT, limits.EXCHANGES_KEPT + 1, limits.EXCHANGES_KEPT + 2):
            await _newest(ada, number)
    part = (await ada.read("system_exchanges", exchanges=2))["system_exchanges"]["value"]
    same("the newest two", [entry["revision"] for entry in part], [52, 51])
    same("the other's exchanges", [entry["revision"] for entry in await _entries(other)], [1])


async def _newest(ada: Instance, number: int) -> None:
    kept = list(range(number, max(0, number - limits.EXCHANGES_KEPT), -1))
    read = [(entry["revision"], entry["takeaway"]) for entry in await _entries(ada)]
    same(f"the exchanges after {number}", read, [(one, f"task {one} → ok") for one in kept])
    stored = [one.revision for one in await ada.stored_entries()]
    same(f"the stored exchanges after {number}", stored, sorted(kept))


@RULES(
    "SEC-05",
    "N concurrent appends: N revisions, all different and without a gap; the last min(N, cap) entries are there, and "
    "no more. Whoever else writes the agent's envelope meanwhile undoes none of them.",
)
async def concurrent(world: World) -> None:
    ada = instance(world, "ada")
    again = await ada.at_second()
    for count, done in ((2, 0), (WRITERS, 2)):
        async with world.race(count, "append_exchange"):
            made = await asyncio.gather(
                *((ada, again)[number % 2].record(f"writer {done + number}") for number in range(count))
            )
        revisions = {entry["revision"]: entry["takeaway"] for entry in made}
        same("the revisions", sorted(revisions), list(range(done + 1, done + count + 1)))
        same("the envelope's revision", (await ada.numbers())[0], done + count)
    last = {revision: revisions[revision] for revision in sorted(revisions)[-limits.EXCHANGES_KEPT :]}
    same("the entries", {entry["revision"]: entry["takeaway"] for entry in await _entries(ada)}, last)
    same("the stored entries", [one.revision for one in await ada.stored_entries()], sorted(last))
    for method in BESIDE:
        for turn in range(2 * _MEETINGS):
            await _beside(world, method, turn)


async def _beside(world: World, method: str, turn: int) -> None:
    """An append and another write of the same envelope at once: both are there."""
    ada, other = instance(world, "ada", f"{method}-{turn}"), await world.second_storage()
    await ada.record("before", f"before {method} {turn}")
    delivery = await ada.delivered()
    soul = SectionChange(SectionName.SOUL, "kind", Visibility.PRIVATE, len(compact("kind")), 0)
    writes: dict[str, Calling] = {
        "ack": partial(other.ack, ada.agent, delivery["id"], delivery["token"]),
        "raise_last_seen": partial(other.raise_last_seen, ada.agent, 1),
        "write_sections": partial(other.write_sections, SectionsWrite(ada.agent, (soul,))),
        "register_agent": partial(other.register_agent, ada.agent, frozenset({"den"})),
    }
    append = partial(ada.record, "beside", f"beside {method} {turn}")
    await in_either_order(world, ("append_exchange", method), turn, append, writes[method])
    facts = await world.storage.load_envelope(ada.agent, exchanges=True)
    what = f"after an append beside {method}"
    same(f"the exchanges {what}", sorted(one.exchange.revision for one in facts.exchanges), [1, 2])
    same(f"the revision {what}", facts.revision, 2)
    seen = facts.last_seen_revision
    holds(method not in SEEING or seen > 0, f"last seen {what}", expected="what was seen", seen=seen)
    same(f"the sections {what}", list(facts.sections), [SectionName.SOUL] * (method == "write_sections"))
    same(f"the pods {what}", sorted(facts.pods), ["den"] * (method == "register_agent"))


@RULES(
    "SEC-06",
    "A two-peer exchange is in both envelopes or in neither, whatever fails; nobody is among its own peers; opposite "
    "pairs at once do not deadlock.",
)
async def pairs(world: World) -> None:
    ada, bea, cy = (instance(world, name) for name in ("ada", "bea", "cy"))
    receipt = await _dm(ada, bea, ada, "first")
    same("the recipients", [one["revision"] for one in receipt["recipients"]], [1, 1])
    for one, peer in ((ada, bea), (bea, ada)):
        entry = (await _entries(one))[0]
        same(f"the entry of {one.peer}", (entry["peers"], entry["takeaway"]), ([peer.peer], "bye"))
    await ada.record("of three", peers=[bea.peer, ada.peer, cy.peer])
    same("the peers of a task", (await _entries(ada))[0]["peers"], [bea.peer, cy.peer])
    same("whether peers are recipients", [await one.numbers() for one in (bea, cy)], [(1, 1), (0, 0)])
    twin = instance(world, "ada", "2")
    await _dm(ada, ada, twin, "twins")
    same("the peers of a twin", [(await _entries(one))[0]["peers"] for one in (ada, twin)], [[twin.peer], [ada.peer]])
    async with world.unchanged("an exchange of one with itself"):
        payload = {"surface_pod_id": POD, "dedupe_key": "alone", "peers": [ada.ref, ada.ref]}
        await ada.platform.refused("invalid_input", "exchange.dm_concluded", **payload, messages=[])
        await ada.platform.refused("invalid_input", "exchange.loop_tripped", **payload)
    await _both_or_neither(world, [ada, bea, cy])
    await _opposite(world, ada, bea)


async def _both_or_neither(world: World, agents: Sequence[Instance]) -> None:
    """The one that fails is once the first and once the second by its key, and once by its place in the input."""
    first, middle, last = agents
    for number, pair in enumerate(((first, middle), (middle, first), (middle, last), (last, middle))):
        async with world.fault_agent(AgentFaultPoint.ENVELOPE, middle.agent):
            async with world.unchanged("an exchange of which one half fails"):
                payload = {"peers": [one.ref for one in pair], "surface_pod_id": POD, "dedupe_key": f"half {number}"}
                await middle.platform.fails("exchange.dm_concluded", **payload, messages=["lost"])
            await first.record(f"others go on {number}")
        await _dm(middle, *pair, f"half {number}", ["whole"])
        same("the entries of both", [(await _entries(one))[0]["takeaway"] for one in pair], ["whole", "whole"])
    async with world.fault(FaultPoint.RECEIPT), world.unchanged("an exchange whose idempotency key fails"):
        payload = {"peers": [first.ref, last.ref], "surface_pod_id": POD, "dedupe_key": "kept", "messages": []}
        await first.platform.fails("exchange.dm_concluded", **payload, idempotency_key="kept")


async def _opposite(world: World, ada: Instance, bea: Instance) -> None:
    again = await ada.at_second()
    before = [(await one.numbers())[0] for one in (ada, bea)]
    for number in range(_ROUNDS):
        try:
            async with asyncio.timeout(PATIENCE), world.race(4, "append_exchange"):
                await asyncio.gather(
                    *(
                        _dm(client, *pair, f"opposite {number} {turn}")
                        for turn, client in enumerate((ada, again))
                        for pair in (((ada, bea), (bea, ada))[turn],)
                    ),
                    ada.record(f"beside {number}"),
                    bea.record(f"beside {number}"),
                )
        except TimeoutError:
            raise Broken("opposite pairs at once", expected="both recorded", seen="no end, a deadlock") from None
        except Refused as refusal:
            raise Broken("opposite pairs at once", expected="both recorded", seen=refusal) from None
    after = [(await one.numbers())[0] for one in (ada, bea)]
    same("how many were recorded", [new - old for new, old in zip(after, before, strict=True)], [3 * _ROUNDS] * 2)


@RULES(
    "SEC-07",
    "A text over its limit ends in … at the place the design names and is exactly at the limit; never cut inside a "
    "surrogate pair or a combining sequence, and then shorter by that sequence.",
)
async def cut(world: World) -> None:
    ada, bea = instance(world, "ada"), instance(world, "bea")
    most = limits.TAKEAWAY_MAX
    plain = "".join(chr(97 + number % 26) for number in range(2 * most))
    cases: list[tuple[list[str], str]] = [
        (["said before", plain[:most]], plain[:most]),
        ([plain[: most + 1]], plain[: most - 1] + "…"),
        (["\U0001d54f" * (most + 1)], "\U0001d54f" * (most - 1) + "…"),
        (["said", "NO_REPLY", "  NO_REPLY\n"], "said"),
        (["NO_REPLY"], ""),
        ([], ""),
        (["said", " not a NO_REPLY"], "not a NO_REPLY"),
        (["a \t b\r\n\x07c\u2028d\u00a0 "], "a b c d"),
        ([plain[: most - 2] + "e\u0301\u0301" + plain], plain[: most - 2] + "…"),
        ([plain[: most - 3] + _FAMILY + plain], plain[: most - 3] + "…"),
    ]
    for number, (messages, takeaway) in enumerate(cases):
        receipt = await _dm(ada, ada, bea, f"cut {number}", messages)
        stored = [(await _entries(one))[0]["takeaway"] for one in (ada, bea)]
        same(f"the takeaway of case {number}", [receipt["takeaway"], *stored], [takeaway] * 3)
    loop = {"peers": [ada.ref, bea.ref], "surface_pod_id": POD}
    for key, numbers, wanted in (
        ("loop", {}, "8 consecutive bot turns within 30 min — guard tripped"),
        ("own numbers", {"turns": 12, "minutes": 5}, "12 consecutive bot turns within 5 min — guard tripped"),
    ):
        await ada.platform("exchange.loop_tripped", **loop, **numbers, dedupe_key=key)
        same("the takeaway of a loop", [(await _entries(one))[0]["takeaway"] for one in (ada, bea)], [wanted] * 2)
    await _titles(ada, plain)


async def _titles(ada: Instance, plain: str) -> None:
    url = "https://forge.example/acme/pulls/12345"
    room = limits.TAKEAWAY_MAX - len(f" → {url}")
    for number, (title, wanted) in enumerate(
        (
            ("Fix  the\nlogin", f"Fix the login → {url}"),
            (plain[:room], f"{plain[:room]} → {url}"),
            (plain[: room + 1], f"{plain[: room - 1]}… → {url}"),
            ("\U0001d54f" * 500, "\U0001d54f" * (room - 1) + f"… → {url}"),
        )
    ):
        task = {
            "assignee": ada.ref,
            "title": title,
            "result": url,
            "surface_pod_id": POD,
            "surface_label": " The\n pod ",
        }
        await ada.platform("exchange.task_completed", **task, dedupe_key=f"title {number}")
        entry = (await _entries(ada))[0]
        same("the takeaway of a task", (entry["takeaway"], entry["surfaceLabel"]), (wanted, "The pod"))


@RULES("SEC-08", "The same dedupe key twice is one entry and one revision, also when concurrent, and after eviction.")
async def deduplicated(world: World) -> None:
    ada, bea, cy = (instance(world, name) for name in ("ada", "bea", "cy"))
    again = await ada.at_second()
    first = await _dm(ada, ada, bea, "once")
    same("whether the first was deduped", first["deduped"], False)
    async with world.unchanged("exchanges with a key that was used"):
        await _same_revisions(ada, bea, first)
        same("one with another peer", (await _dm(ada, cy, ada, "once"))["deduped"], True)
        same("another kind", (await ada.record_task("other", "once"))["deduped"], True)
    same("the same key of another agent", (await cy.record_task("its own", "once"))["deduped"], False)
    await ada.platform("agent.register", agent=ada.ref, pods=["den"])
    async with world.unchanged("an exchange with a key that was used before the agent was registered"):
        await _same_revisions(ada, bea, first)
    async with world.race(2, "append_exchange"):
        twice = await asyncio.gather(ada.record_task("raced", "raced"), again.record_task("raced", "raced"))
    same("which of two at once were deduped", sorted(one["deduped"] for one in twice), [False, True])
    same("their revisions", [one["recipients"][0]["revision"] for one in twice], [2, 2])
    await ada.record_many(limits.EXCHANGES_KEPT)
    same("the oldest that is left", (await _entries(ada))[-1]["revision"], 3)
    async with world.unchanged("exchanges with a key whose entry was evicted"):
        await _same_revisions(ada, bea, first)
        evicted = await ada.record_task("raced", "raced")
        same("what is said of it", (evicted["deduped"], evicted["recipients"][0]["revision"]), (True, 2))
    same(
        "a key that is like it",
        [(await ada.record_task("x", key))["deduped"] for key in ("Once", "once ", "onc_")],
        [False] * 3,
    )


async def _same_revisions(ada: Instance, bea: Instance, first: Answer) -> None:
    receipt = await _dm(ada, ada, bea, "once", ["another text"])
    same("whether it was deduped", receipt["deduped"], True)
    same("the revisions that it names", receipt["recipients"], first["recipients"])


async def stored_sizes_are_right(of: Instance) -> None:
    """Broken unless each stored entry's size is that of its compact JSON in a digest."""
    read = {entry["revision"]: entry for entry in await _entries(of)}
    for one in await of.stored_entries():
        entry = {**read[one.revision], "ts": TIME}
        del entry["revision"]
        holds(one.size == len(compact(entry)), "a stored size", expected=len(compact(entry)), seen=one.size)
