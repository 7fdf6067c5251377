"""ACC-01 to ACC-05: who may read, who may write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from muniment.conformance.answers import found
from muniment.conformance.estate import (
    FRAGMENT,
    OWN_ANSWER,
    OWNERS_ONLY,
    READERS,
    TAG,
    WRITERS,
    Estate,
    changing,
    estate,
    every_operation,
    hidden_code,
    of_either,
)
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import Refused
from muniment.conformance.world import Answer, Caller, World, holds, same

RULES = Rules(STORAGE_AND_TRANSPORT)
WAYS: tuple[dict[str, Any], ...] = ({}, {"tags": [TAG]}, {"scope": "user"}, {"scope": "project"})
"""How a list or a search may be narrowed by one who names no project."""
MANY = 100
"""Groups of one caller that hold no grant."""


@RULES(
    "ACC-01",
    "No grant, no access: every operation of the registry that touches a memory or a project agrees.",
)
async def no_grant(world: World) -> None:
    strangers = (world.caller("mallory"), world.caller("mallory", "strangers"))
    for number, (operation, build) in enumerate(every_operation(world)):
        place = await estate(world, f"acme/closed-{number}")
        payload = build(place)
        if operation.name not in OWN_ANSWER:
            async with world.unchanged(f"a {operation.name} without a grant"):
                for stranger in strangers:
                    for either in of_either(place, payload):
                        await stranger.refused(hidden_code(operation), operation.name, **either)
        await place.owner(operation.name, **payload)
    place = await estate(world, "acme/closed")
    for stranger in strangers:
        same("the projects that a stranger lists", (await stranger("project.list"))["items"], [])
    own = await _holdings(strangers[0])
    for stranger in strangers:
        await _sees_its_own(world, stranger, place, own)
    await _registers_its_own(strangers[0], place)


async def _holdings(stranger: Caller) -> set[str]:
    """The ids of a stranger's projects and memories: two of each kind, so that every list of them has a second page."""
    ids: set[str] = set()
    for key in ("acme/mallorys", "acme/mallorys-too"):
        ids.add((await stranger("project.identify", project=key))["project"]["id"])
        for where in ({}, {"project": "acme/mallorys"}):
            for content in ("mallory's own deed", "mallory's deleted deed"):
                ids.add((await stranger("memory.write", content=content, tags=[TAG], **where))["id"])
            await stranger("memory.delete", id=(await stranger("memory.list", limit=1, **where))["items"][0]["id"])
    return ids


async def _sees_its_own(world: World, stranger: Caller, place: Estate, own: set[str]) -> None:
    for operation, query in _lists():
        listed = [item["id"] for item in await _two_pages(stranger, operation, query)]
        same(f"what of others {operation} gives for {query}", [one for one in listed if one not in own], [])
    for client in (stranger, await world.without_embedder(stranger)):
        for way in WAYS:
            query = {"query": f"deeds {FRAGMENT} deed", **way}
            hits = [hit["memory"]["id"] for hit in await _two_pages(client, "memory.search", query)]
            same(f"whether the caller's own memories are hits of {query}", bool(own & set(hits)), True)
            same(f"what of others memory.search gives for {query}", [one for one in hits if one not in own], [])
        owner_hits = found(await place.owner.at(client.client)("memory.search", query=f"{FRAGMENT} {TAG}", limit=50))
        same("whether the owner's memory is the owner's hit", place.live in owner_hits, True)


def _lists() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "project.list", {}
    for deleted in (False, True):
        for way in WAYS:
            yield "memory.list", {"deleted": deleted, **way}


async def _two_pages(caller: Caller, operation: str, query: dict[str, Any]) -> list[Answer]:
    """The items of a page of one, and of one after it of as many as there may be."""
    page = await caller(operation, **query, limit=1)
    items: list[Answer] = list(page["items"])
    if page["cursor"] is not None:
        items += (await caller(operation, **query, limit=50, cursor=page["cursor"]))["items"]
    return items


async def _registers_its_own(stranger: Caller, place: Estate) -> None:
    own = (await stranger("project.identify", project=place.key))["project"]
    same("whether a stranger's project of the same key is another", own["id"] != place.project, True)
    same("its owner", own["owner"], "mallory")
    same("what a stranger lists in it", (await stranger("memory.list", project=place.key))["items"], [])


@RULES(
    "ACC-02",
    "Owner and rw write; ro reads, and is refused with access_denied on every kind of write; only the owner shares.",
)
async def levels(world: World) -> None:
    writer, reader = world.caller("bob", WRITERS), world.caller("rita", READERS)
    for number, (operation, build) in enumerate(changing(world)):
        for role in ("owner", "writer"):
            place = await estate(world, f"acme/levels-{number}-{role}")
            payload = build(place)
            async with world.unchanged(f"a {operation.name} with ro"):
                await reader.refused("access_denied", operation.name, **payload)
            if role == "owner":
                await place.owner(operation.name, **payload)
            elif operation.name in OWNERS_ONLY:
                async with world.unchanged(f"a {operation.name} with rw"):
                    await writer.refused("access_denied", operation.name, **payload)
            else:
                await writer(operation.name, **payload)
    place = await estate(world, "acme/levels")
    for operation, build in every_operation(world):
        if operation.read_only:
            for caller in (place.owner, writer, reader):
                await caller(operation.name, **build(place))
    await _listed_access(place, [(place.owner, "rw"), (writer, "rw"), (reader, "ro")])
    await reader.refused("access_denied", "memory.update", id=place.live, scope="user")


async def _listed_access(place: Estate, expected: list[tuple[Caller, str]]) -> None:
    for caller, access in expected:
        projects = {project["id"]: project for project in (await caller("project.list"))["items"]}
        same(f"the access that {caller.user} is told", projects[place.project]["access"], access)
        shares = projects[place.project]["shares"]
        same(f"whether {caller.user} sees the shares", shares is not None, caller is place.owner)
        hits = found(await caller("memory.search", query=FRAGMENT, project=place.key))
        same(f"what {caller.user} finds", hits, [place.live])


@RULES(
    "ACC-03",
    "The author of a memory whose grant was lowered to ro can no longer update, patch, delete or restore it; revoked, "
    "can no longer read it.",
)
async def former_author(world: World) -> None:
    place = await estate(world)
    bob = world.caller("bob", WRITERS)
    live = (await bob("memory.write", content="bob's words", project=place.key))["id"]
    gone = (await bob("memory.write", content="bob's deleted words", project=place.key))["id"]
    await bob("memory.delete", id=gone)
    edits: list[tuple[str, dict[str, Any]]] = [
        ("memory.update", {"id": live, "content": "new words"}),
        ("memory.update", {"id": live, "scope": "user"}),
        ("memory.patch", {"id": live, "old_string": "bob", "new_string": "rob"}),
        ("memory.delete", {"id": live}),
        ("memory.restore", {"id": gone}),
    ]
    await place.owner("project.share", project=place.key, group=WRITERS, access="ro")
    async with world.unchanged("edits by the author with ro"):
        for operation, payload in edits:
            await bob.refused("access_denied", operation, **payload)
    same("what the author still reads", (await bob("memory.get", id=live))["content"], "bob's words")
    await place.owner("project.unshare", project=place.key, group=WRITERS)
    async with world.unchanged("operations by the author without a grant"):
        for operation, payload in [*edits, ("memory.get", {"id": live}), ("memory.history", {"id": live})]:
            await bob.refused("not_found", operation, **payload)
    same("what the author lists", (await bob("memory.list"))["items"], [])
    same("what the author lists of the deleted", (await bob("memory.list", deleted=True))["items"], [])
    same("what the author finds", found(await bob("memory.search", query="bob's words")), [])
    await place.owner("project.share", project=place.key, group=WRITERS, access="rw")
    for operation, payload in edits[2:]:
        await bob(operation, **payload)


@RULES("ACC-04", "Not readable and not existing are the same answer.")
async def same_answer(world: World) -> None:
    mallory = world.caller("mallory")
    place = await estate(world)
    absent = Estate(place.owner, "acme/absent", place.project, _like(place.live), _like(place.gone))
    pairs = [
        (operation, hidden, missing)
        for operation, build in every_operation(world)
        for hidden, missing in zip(of_either(place, build(place)), of_either(absent, build(absent)), strict=True)
    ]
    for operation, hidden, missing in pairs:
        if operation.name in OWN_ANSWER:
            continue
        codes = hidden_code(operation)
        unreadable = await mallory.refused(codes, operation.name, **hidden)
        nowhere = await mallory.refused(codes, operation.name, **missing)
        names = ((place.live, absent.live), (place.gone, absent.gone), (place.key, absent.key))
        same(f"the answer to {operation.name}", _renamed(unreadable, names), _renamed(nowhere, names))
    owned = await place.owner("memory.get", id=place.live)
    same("what the owner reads", owned["id"], place.live)
    await place.owner.refused("not_found", "memory.get", id=absent.live)


def _renamed(refusal: Refused, names: Sequence[tuple[str, str]]) -> tuple[str, dict[str, Any]]:
    """A refusal's message and details, with each hidden name replaced by the absent one."""

    def rename(value: Any) -> Any:
        for hidden, absent in names:
            value = value.replace(hidden, absent) if isinstance(value, str) else value
        return value

    return rename(refusal.message), {name: rename(value) for name, value in refusal.details.items()}


def _like(memory: str) -> str:
    """An id of the same form that belongs to nothing."""
    return "".join("0" if character not in "-0" else "1" if character == "0" else "-" for character in memory)


@RULES(
    "ACC-05", "Of several groups, however many, the strongest grant counts; a revoked grant counts from the next call."
)
async def strongest(world: World) -> None:
    place = await estate(world)
    await _among_many(world, place)
    both = await world.second(world.caller("bob", READERS, WRITERS, "strangers"))
    await both("memory.patch", id=place.live, old_string=FRAGMENT, new_string="east tower")
    await place.owner("project.share", project=place.key, group=WRITERS, access="ro")
    async with world.unchanged("an edit after the stronger grant was lowered"):
        await both.refused("access_denied", "memory.update", id=place.live, content="new")
    await place.owner("project.share", project=place.key, group=READERS, access="rw")
    await both("memory.update", id=place.live, tags=["raised"])
    await place.owner("project.unshare", project=place.key, group=READERS)
    await both.refused("access_denied", "memory.update", id=place.live, content="new")
    same("what is read with what is left", (await both("memory.get", id=place.live))["tags"], ["raised"])
    await place.owner("project.unshare", project=place.key, group=WRITERS)
    for operation, payload in (("memory.get", {}), ("memory.update", {"content": "new"}), ("memory.history", {})):
        await both.refused("not_found", operation, id=place.live, **payload)
    same("what is listed with no grant left", (await both("memory.list"))["items"], [])
    holds(
        (await place.owner("memory.get", id=place.live))["tags"] == ["raised"],
        "what the owner reads",
        expected="the memory as it was",
        seen="another",
    )


async def _among_many(world: World, place: Estate) -> None:
    """A grant counts wherever its group stands among those that a caller is in."""
    for first in ("a", "z"):
        others = [f"{first}-{number:03}" for number in range(MANY)]
        reader, writer = world.caller("rita", READERS, *others), world.caller("will", WRITERS, *others)
        for caller in (reader, writer):
            what = f"{caller.user} in {MANY} groups called {first} and one with a grant"
            same(f"what {what} reads", (await caller("memory.get", id=place.live))["id"], place.live)
            listed = [memory["id"] for memory in (await caller("memory.list"))["items"]]
            same(f"whether the memory is listed to {what}", place.live in listed, True)
            hits = found(await caller("memory.search", query=FRAGMENT))
            same(f"whether the memory is found by {what}", place.live in hits, True)
            projects = [project["id"] for project in (await caller("project.list"))["items"]]
            same(f"the projects of {what}", projects, [place.project])
        await writer("memory.update", id=place.live, tags=[first])
