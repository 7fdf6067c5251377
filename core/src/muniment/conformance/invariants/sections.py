"""SEC-01 to SEC-03, SEC-09, SEC-13 to SEC-16: who reads and writes which section, and what is the server's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muniment import limits
from muniment.agent_models import SectionName
from muniment.conformance.agents_estate import (
    PLATFORM,
    Instance,
    agent_operations,
    agents_estate,
    compact,
    instance,
)
from muniment.conformance.answers import moment
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import World, holds, same
from muniment.models import Agent

RULES = Rules(STORAGE_AND_TRANSPORT)
EMPTY: Mapping[str, Any] = {
    "long_term": "",
    "soul": "",
    "shared": "",
    "dedup_state": {},
    "runtime_meta": {},
    "daily": [],
    "relationships": [],
    "cycles": [],
    "system_exchanges": [],
}
SECRET = "nobody else may read this"


async def _shown(reader: Instance, of: Instance) -> dict[str, Any]:
    """What a reader is shown of another's sections, by name."""
    return (await reader.own("section.read_shared", agent=of.ref))["sections"]


@RULES(
    "SEC-01",
    "Sections are private by default; another agent reads only what pod or public opens to it, element by element, and "
    "learns nothing of the rest; what is closed to it is so from the next call.",
)
async def private_by_default(world: World) -> None:
    ada = instance(world, "ada")
    inside, outside, nowhere = (instance(world, name, user=name) for name in ("bea", "cy", "dan"))
    for one, pods in ((ada, ["den", "attic"]), (inside, ["den"]), (outside, ["DEN", "de", "cellar"])):
        await one.platform("agent.register", agent=one.ref, pods=pods)
    for name in ("long_term", "dedup_state", "runtime_meta"):
        await ada.own("section.save", section=name, value=SECRET if name == "long_term" else {"secret": SECRET})
    await ada.own("section.save", section="soul", value="open to all", visibility="public")
    await ada.own("section.save", section="shared", value="open to pods", visibility="pod")
    days = [
        {"date": "2026-01-01", "content": SECRET},
        {"date": "2026-01-02", "content": "for all", "visibility": "public"},
        {"date": "2026-01-03", "content": "for pods", "visibility": "pod"},
    ]
    await ada.own("section.save", section="daily", value=days)
    others = [
        {"other": "bea/1", "content": SECRET, "visibility": "private"},
        {"other": "cy/1", "content": "for all"},
    ]
    await ada.own("section.save", section="relationships", value=others, visibility="public")
    for reader, name in (
        (outside, "of another pod"),
        (nowhere, "of no pod"),
        (instance(world, "ada", "2"), "its twin"),
    ):
        shown = await _shown(reader, ada)
        wanted = {"soul": "open to all", "daily": days[1:2], "relationships": others[1:]}
        same(f"what an agent {name} reads", {key: view["value"] for key, view in shown.items()}, wanted)
        sizes = {key: view["byte_size"] for key, view in shown.items()}
        same(f"the sizes that it reads {name}", sizes, {key: len(compact(value)) for key, value in wanted.items()})
    shown = await _shown(inside, ada)
    wanted = {"soul": "open to all", "shared": "open to pods", "daily": days[1:], "relationships": others[1:]}
    same("what an agent of its pod reads", {key: view["value"] for key, view in shown.items()}, wanted)
    same("what is opened of an agent that is not there", await _shown(inside, instance(world, "nobody")), {})
    again = await ada.at_second()
    await again.own("section.save", section="soul", value="closed again")
    await again.platform("agent.register", agent=ada.ref, pods=["attic"])
    same("what is open after it was closed", sorted(await _shown(inside, ada)), ["daily", "relationships"])
    same("what the agent itself reads", (await ada.read("long_term"))["long_term"]["value"], SECRET)


@RULES(
    "SEC-02",
    "An agent's write to system_exchanges is section_read_only with the reason system_exchanges_is_read_only, by every "
    "operation that names a section.",
)
async def exchanges_are_read_only(world: World) -> None:
    ada = instance(world, "ada")
    await ada.record()
    entry = {"ts": "2026-01-01T00:00:00.000Z", "kind": "task-completed", "takeaway": "forged"}
    attempts: list[tuple[str, dict[str, Any]]] = []
    for value in ([entry], [], "", None):
        attempts.append(("section.save", {"section": "system_exchanges", "value": value}))
        for mode in ("patch", "full"):
            sections = {"soul": {"value": "s"}, "system_exchanges": {"value": value}}
            attempts.append(("section.sync", {"mode": mode, "runtime": "r", "sections": sections}))
    named = {operation.name for operation, _ in agent_operations(world) if _writes_a_named_section(operation.input)}
    same("the operations that write a named section", named, {operation for operation, _ in attempts})
    async with world.unchanged("an agent's writes to system_exchanges"):
        for operation, payload in attempts:
            refusal = await ada.own.refused("section_read_only", operation, **payload)
            same("the reason", refusal.details.get("reason"), "system_exchanges_is_read_only")
            await ada.platform.refused("access_denied", operation, **payload)
    for operation, payload in (attempts[0], attempts[1]):
        other = {**payload, "section": "soul", "value": "mine"} if "section" in payload else payload
        if "sections" in payload:
            other = {**payload, "sections": {"soul": {"value": "mine, synced"}}}
        await ada.own(operation, **other)
    same("the own section after it", (await ada.read("soul"))["soul"]["value"], "mine, synced")


def _writes_a_named_section(model: Any) -> bool:
    fields = model.model_fields
    return "section" in fields or ("sections" in fields and "mode" in fields)


@RULES(
    "SEC-03",
    "system_exchanges and cycles cannot be made anything but private, and no principal but the agent itself reads "
    "them.",
)
async def always_private(world: World) -> None:
    ada, bea = instance(world, "ada"), instance(world, "bea")
    for one in (ada, bea):
        await one.platform("agent.register", agent=one.ref, pods=["den"])
    await ada.record(SECRET)
    await ada.own("section.log_cycle", text=SECRET)
    await ada.own("section.save", section="soul", value="open", visibility="public")
    async with world.unchanged("attempts to open what is always private"):
        for visibility in ("pod", "public"):
            for name, code in (("cycles", "section_append_only"), ("system_exchanges", "section_read_only")):
                await ada.own.refused(code, "section.save", section=name, value=[], visibility=visibility)
                sections: Any = {name: {"value": [], "visibility": visibility}}
                await ada.own.refused(code, "section.sync", mode="patch", runtime="r", sections=sections)
            await ada.own.refused("invalid_input", "section.log_cycle", text="x", visibility=visibility)
    for reader in (bea, instance(world, "ada", "2"), ada):
        same("what is open", sorted(await _shown(reader, ada)), ["soul"])
    await bea.record("own")
    own = await bea.read(*EMPTY)
    sizes = [len(own[name]["value"]) for name in ("system_exchanges", "cycles")]
    same("how many exchanges and cycles the other has", sizes, [1, 0])
    for caller in (world.caller("keeper"), ada.platform, world.caller("ada"), world.caller(ada.peer)):
        await caller.refused("access_denied", "section.read", sections=["cycles", "system_exchanges"])
        await caller.refused("access_denied", "section.read_shared", agent=ada.ref)
    mine = await ada.read("cycles", "system_exchanges")
    same("their visibility", {view["visibility"] for view in mine.values()}, {"private"})
    same("the own cycle", [line["text"] for line in mine["cycles"]["value"]], [SECRET])
    same("the own exchange", mine["system_exchanges"]["value"][0]["takeaway"], f"{SECRET} → ok")


@RULES("SEC-09", "byte_size, updated_at and schema_version are the server's; what a client sends there is dropped.")
async def server_fields(world: World) -> None:
    ada = instance(world, "ada")
    forged = {"byte_size": 1, "updated_at": "1999-01-01T00:00:00Z", "schema_version": 99}
    first = await ada.own("section.save", section="long_term", value="grüße", **forged)
    day = {"date": "2026-01-01", "content": "ein Tag", **forged}
    sections = {"daily": {"value": [day], **forged}, "runtime_meta": {"value": {"kept": 1}, **forged}}
    await ada.own("section.sync", mode="patch", runtime="r", sections=sections)
    read = await ada.read("long_term", "daily", "runtime_meta")
    values = {
        "long_term": "grüße",
        "daily": [{"content": "ein Tag", "date": "2026-01-01"}],
        "runtime_meta": {"kept": 1},
    }
    same("the values", {name: view["value"] for name, view in read.items()}, values)
    for name, view in read.items():
        same(f"the size of {name}", view["byte_size"], len(compact(values[name])))
        same(f"the schema version of {name}", view["schema_version"], 1)
        holds(
            moment(view["updated_at"]) >= moment(first["updated_at"]),
            f"updated_at of {name}",
            expected=f"the server's, not before {first['updated_at']}",
            seen=view["updated_at"],
        )
    same("when it was saved", read["long_term"]["updated_at"], first["updated_at"])
    for client, value in ((ada, "longer than before"), (await ada.at_second(), "by another client")):
        await client.own("section.save", section="long_term", value=value)
        size = (await ada.read("long_term", "daily", "runtime_meta"))["long_term"]["byte_size"]
        same(f"the size after another save, {value}", size, len(compact(value)))


@RULES("SEC-13", "An envelope that does not exist reads as empty sections, revision 0 and last seen 0.")
async def absent_envelope(world: World) -> None:
    await instance(world, "ada", "2").record()
    await instance(world, "ada", "2").own("section.save", section="soul", value="the other's")
    ada = instance(world, "ada")
    view = await ada.own("section.read")
    same("revision and last seen", (view["revision"], view["last_seen_revision"]), (0, 0))
    same("the sections", {name: one["value"] for name, one in view["sections"].items()}, EMPTY)
    same("the sections that the documentation names", set(EMPTY), {name.value for name in SectionName})
    same("their versions", {one["version"] for one in view["sections"].values()}, {0})
    same("their sizes", {one["byte_size"] for one in view["sections"].values()}, {0})
    same("a claim without an envelope", await ada.claim(), [])
    await ada.own("section.save", section="soul", value="mine", version=0)
    same("what is there then", (await ada.read("soul"))["soul"]["value"], "mine")


@RULES(
    "SEC-14",
    "Cycles are append-only: a whole-array overwrite is section_append_only; an append says what it truncated or "
    "evicted.",
)
async def append_only_cycles(world: World) -> None:
    ada = instance(world, "ada")
    first = await ada.own("section.log_cycle", text="first")
    same("what it says it truncated and evicted", (first["truncated"], first["evicted"]), (0, 0))
    async with world.unchanged("overwriting cycles"):
        for value in ([], [{"ts": "x", "text": "y"}], "", None):
            refusal = await ada.own.refused("section_append_only", "section.save", section="cycles", value=value)
            holds(bool(refusal.details.get("reason")), "the refusal", expected="a reason", seen=refusal.details)
            for mode in ("patch", "full"):
                sections = {"soul": {"value": "s"}, "cycles": {"value": value}}
                await ada.own.refused("section_append_only", "section.sync", mode=mode, runtime="r", sections=sections)
    long = await ada.own("section.log_cycle", text="x" * (limits.CYCLE_MAX + 7))
    same("what it says it truncated", (long["truncated"], long["evicted"]), (7, 0))
    for number in range(limits.CYCLES_KEPT - 2):
        await ada.own("section.log_cycle", text=f"cycle {number}")
    over = await ada.own("section.log_cycle", text="one too many")
    same("what it says it evicted", (over["truncated"], over["evicted"]), (0, 1))
    lines = [line["text"] for line in (await ada.read("cycles"))["cycles"]["value"]]
    kept = ["x" * limits.CYCLE_MAX, *(f"cycle {number}" for number in range(limits.CYCLES_KEPT - 2)), "one too many"]
    same("the cycles", lines, kept)


@RULES(
    "SEC-15",
    "Only a platform principal can record an exchange, enqueue an event or do whatever else is the platform's; only an "
    "agent's principal has sections and events. Every operation of the registry agrees.",
)
async def audiences(world: World) -> None:
    place = await agents_estate(world)
    wrong = {
        "platform": [
            place.ada.own,
            place.bea.own,
            world.caller(PLATFORM),
            world.caller("mallory", PLATFORM, "platform"),
            world.caller("platform", agent=Agent(name="platform", instance="platform"), surface="platform"),
        ],
        "agent": [
            place.ada.platform,
            world.caller("keeper"),
            world.caller("ada", "ada", "ada/1"),
            world.caller("ada/1", platform=True),
        ],
    }
    for operation, recipe in agent_operations(world):
        payload = recipe(place)
        async with world.unchanged(f"{operation.name} by those that it is not for"):
            for caller in wrong[operation.audience]:
                await caller.refused("access_denied", operation.name, **payload)
                await caller.refused(("access_denied", "invalid_input"), operation.name, **payload, platform=True)
        await place.rightful(operation)(operation.name, **payload)
    both = world.caller("both", agent=Agent(name="ada", instance="1"), platform=True)
    task = {"assignee": place.ada.ref, "title": "t", "result": "ok", "surface_pod_id": "pod-1"}
    await both("exchange.task_completed", **task, dedupe_key="by one that is both")
    same("the revision after what was allowed", (await place.ada.numbers())[0], 3)


@RULES("SEC-16", "Only exchanges raise the revision, each by exactly 1.")
async def revision(world: World) -> None:
    place = await agents_estate(world)
    ada = place.ada
    before = (await ada.numbers())[0]
    for operation, recipe in agent_operations(world):
        await place.rightful(operation)(operation.name, **recipe(place))
        after = (await ada.numbers())[0]
        raises = operation.name == "exchange.dm_concluded"  # the other kinds come with the same dedupe key
        same(f"how far {operation.name} raised the revision", after - before, int(raises))
        before = after
    for number in range(3):
        await ada.record(f"more {number}")
    same("the revision after three more", (await ada.numbers())[0], before + 3)
    sections = {"daily": {"value": [{"date": "2026-01-01", "content": "c"}]}, "shared": {"value": "s"}}
    await ada.own("section.sync", mode="full", runtime="r", sections=sections)
    same("the revision after a sync", (await ada.numbers())[0], before + 3)
