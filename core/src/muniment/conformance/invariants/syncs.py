"""SEC-10 to SEC-12: what a sync merges and replaces, when it is a no-op, and the versions of section writes."""

from __future__ import annotations

import asyncio
from typing import Any

from muniment.conformance.agents_estate import Instance, instance
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import Refused
from muniment.conformance.world import Answer, World, holds, same

RULES = Rules(STORAGE_AND_TRANSPORT)


def _day(number: int, content: str = "a day", **more: Any) -> dict[str, Any]:
    return {"date": f"2026-01-{number:02}", "content": content, **more}


def _other(name: str, content: str = "a peer") -> dict[str, Any]:
    return {"other": name, "content": content}


async def _sync(of: Instance, mode: str = "patch", runtime: str = "r", **values: Any) -> Answer:
    """A sync of these sections: each a value, or a dictionary with ``value`` and what goes with it."""
    whole = {"runtime_meta", "soul"}
    sections: dict[str, Any] = {
        name: value if name in whole and isinstance(value, dict) else {"value": value} for name, value in values.items()
    }
    return await of.own("section.sync", mode=mode, runtime=runtime, sections=sections)


async def _value(of: Instance, name: str) -> Any:
    return (await of.read(name))[name]["value"]


@RULES(
    "SEC-10",
    "patch merges daily by date and relationships by other; full replaces; concurrent patches of different keys both "
    "survive; every section write takes a version, and a stale one is version_conflict and changes nothing.",
)
async def merging(world: World) -> None:
    ada = instance(world, "ada")
    await _sync(ada, daily=[_day(3), _day(1)], relationships=[_other("bea/1"), _other("cy/1")], soul="first")
    await _sync(ada, daily=[_day(2), _day(3, "again", visibility="pod")], relationships=[_other("cy/1", "new")])
    merged = [_day(1), _day(2), _day(3, "again", visibility="pod")]
    same("daily after a patch", await _value(ada, "daily"), merged)
    same("relationships after a patch", await _value(ada, "relationships"), [_other("bea/1"), _other("cy/1", "new")])
    same("what a patch did not name", await _value(ada, "soul"), "first")
    await _sync(ada, "full", daily=[_day(9)])
    same("daily after a full sync", await _value(ada, "daily"), [_day(9)])
    same("what a full sync did not name", await _value(ada, "soul"), "first")
    await _versions(world, instance(world, "versioned"))
    await _concurrent(world, instance(world, "busy"))


async def _versions(world: World, ada: Instance) -> None:
    await ada.own("section.save", section="soul", value="1")
    receipt = await ada.own("section.save", section="soul", value="2", version=1)
    same("the version after two saves", receipt["versions"], {"soul": 2})
    await _sync(ada, daily=[_day(1)], shared="s")
    await ada.own("section.log_cycle", text="one")
    stale: list[tuple[str, dict[str, Any], int]] = [
        ("section.log_cycle", {"text": "two", "version": 0}, 1),
        *(("section.save", {"section": "soul", "value": "3", "version": version}, 2) for version in (0, 1, 3)),
    ]
    for mode in ("patch", "full"):
        sections = {"shared": {"value": "new"}, "daily": {"value": [_day(5)], "version": 0}}
        stale.append(("section.sync", {"mode": mode, "runtime": "r", "sections": sections}, 1))
    async with world.unchanged("section writes for a stale version"):
        for operation, payload, current in stale:
            refusal = await ada.own.refused("version_conflict", operation, **payload)
            same(f"the version that {operation} names", refusal.details.get("current_version"), current)
    await ada.own("section.log_cycle", text="two", version=1)
    sections = {"shared": {"value": "new", "version": 1}, "daily": {"value": [_day(5)], "version": 1}}
    receipt = await ada.own("section.sync", mode="full", runtime="r", sections=sections)
    same("the versions after a versioned sync", receipt["versions"], {"shared": 2, "daily": 2})


async def _concurrent(world: World, ada: Instance) -> None:
    again = await ada.at_second()
    await _sync(ada, daily=[_day(1)])
    async with world.race(2, "write_sections"):
        await asyncio.gather(
            _sync(ada, daily=[_day(2, "here")]),
            _sync(again, daily=[_day(3, "there")], relationships=[_other("bea/1")]),
        )
    same("daily after two patches at once", await _value(ada, "daily"), [_day(1), _day(2, "here"), _day(3, "there")])
    same("what came with one of them", await _value(ada, "relationships"), [_other("bea/1")])
    async with world.race(2, "write_sections"):
        await asyncio.gather(*(one.own("section.log_cycle", text=one.own.user) for one in (ada, again)))
    same("the cycles after two appends at once", len(await _value(ada, "cycles")), 2)
    await _all_or_none(world, ada, again)
    async with world.race(2, "write_sections"):
        answers = await asyncio.gather(
            ada.own.attempt("section.save", section="soul", value="here", version=0),
            again.own.attempt("section.save", section="soul", value="there", version=0),
        )
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    same("the refusals of two saves for the same version", [one.code for one in refused], ["version_conflict"])
    winner = "there" if isinstance(answers[0], Refused) else "here"
    same("what was saved", await _value(ada, "soul"), winner)


async def _all_or_none(world: World, ada: Instance, again: Instance) -> None:
    """A sync of which one section was written meanwhile is refused whole, whichever section that is."""
    sections = {"long_term": {"value": "lost"}, "shared": {"value": "lost"}}
    for turn, name in enumerate(sections):

        async def slow() -> Answer | Refused:
            return await ada.own.attempt("section.sync", mode="full", runtime="r", sections=sections)

        async def quick(name: str = name, turn: int = turn) -> Answer:
            return await again.own("section.save", section=name, value=f"won {turn}")

        late, _ = await world.overtaken("load_envelope", slow, quick)
        code = late.code if isinstance(late, Refused) else "an answer"
        same("a sync that was overtaken", code, "version_conflict")
        read = await ada.read("long_term", "shared")
        won = [f"won {place}" for place in range(turn + 1)] + [""] * (1 - turn)
        same("what is there after it", [read[one]["value"] for one in ("long_term", "shared")], won)


@RULES(
    "SEC-11",
    "The same semantic payload as the last sync's, from the same runtime on the same UTC day, is deduped and changes "
    "nothing, whatever the order of keys and entries; A, B, A applies A again.",
)
async def deduped(world: World) -> None:
    ada = instance(world, "ada")
    meta = {"model": {"name": "m", "size": 1}, "list": [1, 2]}
    first = await _sync(ada, daily=[_day(1), _day(2)], runtime_meta={"value": meta})
    same(
        "whether the first was deduped", (first["deduped"], first["versions"]), (False, {"daily": 1, "runtime_meta": 1})
    )
    swapped = {"list": [1, 2], "model": {"size": 1, "name": "m"}}
    forged = {"value": swapped, "byte_size": 5, "visibility": "private"}
    async with world.unchanged("a repeated sync"):
        repeats: list[tuple[Instance, dict[str, Any]]] = [
            (ada, {"daily": [_day(1), _day(2)], "runtime_meta": {"value": meta}}),
            (await ada.at_second(), {"runtime_meta": forged, "daily": [_day(2), _day(1)]}),
        ]
        for client, values in repeats:
            again = await _sync(client, **values)
            same("a repeated sync", (again["deduped"], again["versions"]), (True, first["versions"]))
    for what, values in _that_differ(meta):
        answer = await _sync(ada, runtime="r2", **values)
        same(f"whether {what} was deduped", answer["deduped"], False)
    seen: list[bool] = []
    for letter in "ABAABBA":
        seen.append((await _sync(ada, shared=letter))["deduped"])
    same("which of A B A A B B A were deduped", seen, [False, False, False, True, False, True, False])
    same("what is there after the last", await _value(ada, "shared"), "A")
    other = instance(world, "ada", "2")
    same("whether another agent's was deduped", (await _sync(other, shared="A"))["deduped"], False)
    same("what it wrote", await _value(other, "shared"), "A")


def _that_differ(meta: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Syncs that follow each other, none the same as the last one."""
    days = [_day(1), _day(2)]
    return [
        ("another runtime", {"daily": days, "runtime_meta": {"value": meta}}),
        ("another order in a list", {"daily": days, "runtime_meta": {"value": {**meta, "list": [2, 1]}}}),
        ("another visibility", {"soul": {"value": "s", "visibility": "pod"}}),
        ("private again", {"soul": {"value": "s"}}),
    ]


@RULES(
    "SEC-12",
    "Any writer but sync clears the sync key, so that the same sync is applied again; appending an exchange or a cycle "
    "does not, nor does reading, claiming or acknowledging.",
)
async def sync_key(world: World) -> None:
    ada = instance(world, "ada")

    async def synced() -> bool:
        return bool((await _sync(ada, shared="as synced", soul="mine"))["deduped"])

    same("whether the first sync was deduped", await synced(), False)
    await _key_is(ada, kept=True)
    await ada.record("kept over an exchange")
    await ada.own("section.log_cycle", text="kept over a cycle")
    await ada.read("system_exchanges", "soul")
    await ada.record("another")
    await ada.ack(await ada.delivered())
    await _key_is(ada, kept=True)
    same("whether it was deduped after an exchange, a cycle, a read and an ack", await synced(), True)
    for name, value in (("shared", "overwritten"), ("long_term", "another section")):
        await ada.own("section.save", section=name, value=value)
        await _key_is(ada, kept=False)
        same(f"whether it was deduped after {name} was saved", await synced(), False)
        same("what is there after it", await _value(ada, "shared"), "as synced")
    same("whether it is deduped again", await synced(), True)


async def _key_is(of: Instance, *, kept: bool) -> None:
    envelope = await of.stored_envelope()
    holds(envelope is not None, "the stored envelope", expected="one", seen="none")
    assert envelope is not None
    same("whether a sync key is stored", envelope.sync_key is not None, kept)
