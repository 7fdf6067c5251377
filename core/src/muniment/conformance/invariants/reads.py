"""READ-01 to READ-04: what a read returns, and in which portions."""

from __future__ import annotations

from typing import Any

from muniment import access
from muniment.conformance.answers import RANKERS, found, moment
from muniment.conformance.estate import estate, every_operation
from muniment.conformance.loading import Row, apply_all, created, new_id
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Answer, Caller, World, holds, same
from muniment.limits import LIST_LIMIT_MAX

RULES = Rules(STORAGE_AND_TRANSPORT)
NINE = frozenset(
    {
        "id",
        "scope",
        "project_id",
        "content",
        "tags",
        "version",
        "last_edited_by",
        "created_at",
        "updated_at",
    }
)
PAGE_MAX = 48_000


@RULES(
    "READ-01",
    "get and list return exactly the nine fields, a search hit's memory the same nine; never a vector, an index, an "
    "owner or a deletion mark.",
)
async def nine_fields(world: World) -> None:
    alice = world.caller("alice")
    project = (await alice("project.identify", project="acme/reads"))["project"]["id"]
    own = (await alice("memory.write", content="the ninth wave", tags=["sea"]))["id"]
    filed = (await alice("memory.write", content="the ninth wave", project="acme/reads"))["id"]
    await alice("memory.patch", id=own, old_string="ninth", new_string="tenth")
    listed = {memory["id"]: memory for memory in (await alice("memory.list"))["items"]}
    page = await alice("memory.search", query="wave sea")
    hits = {hit["memory"]["id"]: hit for hit in page["items"]}
    for memory in (own, filed):
        got = await alice("memory.get", id=memory)
        same("the fields of get", sorted(got), sorted(NINE))
        same("the same memory in a list", listed.get(memory), got)
        same("the same memory in a hit", hits.get(memory, {}).get("memory"), got)
        same("the fields of a hit", sorted(hits[memory]), sorted({"memory", "score", *RANKERS}))
        for ranker in RANKERS:
            part: Any = hits[memory][ranker]
            same(f"the fields of the {ranker} ranker's part", sorted(part or {"rank", "score"}), ["rank", "score"])
        where = ("user", None) if memory == own else ("project", project)
        same("scope and project", (got["scope"], got["project_id"]), where)
    same("the fields of a page of the list", sorted(await alice("memory.list")), ["cursor", "cut", "items"])
    same("the fields of a page of hits", sorted(page), ["cursor", "cut", "degraded", "items"])


@RULES(
    "READ-02",
    "list pages by cursor over created_at descending, then id: every memory that was readable throughout appears "
    "exactly once, also while others are written, and a page has as many as were asked for; every read shows what "
    "another client wrote before it.",
)
async def pages(world: World) -> None:
    alice = world.caller("alice")
    written = [(await alice("memory.write", content=f"entry {number}"))["id"] for number in range(23)]
    again = await world.second(alice)
    for limit in (1, 5, 23):
        seen = await _read_while_writing(alice, again, limit, written)
        ids = [memory["id"] for memory in seen]
        same(f"memories that appear twice with limit {limit}", len(ids) - len(set(ids)), 0)
        order = sorted(sorted(seen, key=lambda one: one["id"]), key=lambda one: moment(one["created_at"]), reverse=True)
        same(f"the order with limit {limit}", ids, [memory["id"] for memory in order])
        missing = [memory for memory in written if memory not in ids]
        same(f"memories that never appear with limit {limit}", missing, [])
    gone = written[::3]
    for memory in gone:
        await alice("memory.delete", id=memory)
    deleted = await _all(alice, deleted=True, limit=3)
    same("the deleted memories read in pages", sorted(one["id"] for one in deleted), sorted(gone))
    await _largest_page(world)
    await _written_elsewhere(world)


async def _largest_page(world: World) -> None:
    """One more memory than fit, of a few characters each."""
    space, place = (await world.embedder.space()).id, access.own_placement("bob")
    rows = [Row(new_id(world.random), place, f"{number}") for number in range(LIST_LIMIT_MAX + 1)]
    await apply_all(world.storage, (created(row, space, world.random) for row in rows))
    bob = world.caller("bob")
    page = await bob("memory.list", limit=LIST_LIMIT_MAX)
    same(f"how many memories the page of {LIST_LIMIT_MAX} has", len(page["items"]), LIST_LIMIT_MAX)
    rest = await bob("memory.list", limit=LIST_LIMIT_MAX, cursor=page["cursor"])
    ids = sorted(memory["id"] for memory in (*page["items"], *rest["items"]))
    same("the memories on it and the one after it", ids, sorted(row.id for row in rows))


async def _written_elsewhere(world: World) -> None:
    """What one client has read it reads anew after another one has changed it."""
    place = await estate(world)
    elsewhere = await world.second(place.owner)
    reads = [(operation.name, build(place)) for operation, build in every_operation(world) if operation.read_only]
    before = [await place.owner(name, **payload) for name, payload in reads]
    await elsewhere("memory.patch", id=place.live, old_string="clock", new_string="mirror")
    await elsewhere("project.share", project=place.key, group="newcomers", access="ro")
    for (name, payload), answer in zip(reads, before, strict=True):
        again = await place.owner(name, **payload)
        same(f"whether {name} answers as before another client wrote", again == answer, False)


async def _read_while_writing(reader: Caller, writer: Caller, limit: int, written: list[str]) -> list[Answer]:
    """All pages, while new memories are written and both shown ones and those still to come are edited."""
    seen: list[Answer] = []
    page = await reader("memory.list", limit=limit)
    for number in range(100):
        holds(len(page["items"]) <= limit, "a page", expected=f"at most {limit}", seen=len(page["items"]))
        seen.extend(page["items"])
        if page["cursor"] is None:
            break
        if number < 5:
            await writer("memory.write", content=f"written between pages {number}")
            await writer("memory.update", id=seen[-1]["id"], tags=[f"read-{number}"])
            await writer("memory.update", id=written[number], tags=[f"still-to-come-{number}"])
        page = await reader("memory.list", limit=limit, cursor=page["cursor"])
    return seen


async def _all(caller: Caller, **query: Any) -> list[Answer]:
    """Every item of a list, by its cursors."""
    page = await caller("memory.list", **query)
    items: list[Answer] = list(page["items"])
    while page["cursor"] is not None:
        before = len(items)
        page = await caller("memory.list", **query, cursor=page["cursor"])
        items.extend(page["items"])
        holds(len(items) > before, "a page after a cursor", expected="at least one item", seen="none")
    return items


@RULES("READ-03", "Tag filters mean all of these; unknown tags give nothing, not an error.")
async def tag_filters(world: World) -> None:
    alice = world.caller("alice")
    tagged: dict[str, list[str]] = {}
    for tags in (["a"], ["b"], ["a", "b"], ["a", "b", "c"], ["A"], ["ab"], []):
        receipt = await alice("memory.write", content="one subject for all", tags=tags)
        tagged[receipt["id"]] = tags
    for wanted in (["a"], ["b", "a"], ["a", "b", "c"], ["A"], ["ab"], ["a", "a"], [], ["unknown"], ["a", "unknown"]):
        expected = sorted(memory for memory, tags in tagged.items() if set(wanted) <= set(tags))
        listed = [memory["id"] for memory in await _all(alice, tags=wanted, limit=2)]
        same(f"the list with tags {wanted}", sorted(listed), expected)
        page = await alice("memory.search", query="subject", tags=wanted)
        same(f"the hits with tags {wanted}", sorted(found(page)), expected)


@RULES(
    "READ-04",
    "A page of list or search holds at most 48,000 characters of content and at least one item, says that it was cut, "
    "and can be continued; get never cuts.",
)
async def page_size(world: World) -> None:
    alice = world.caller("alice")
    lengths = (20_000, 20_000, 20_000, 64_000, 47_999, 1, 1)
    written: dict[str, int] = {}
    for number, length in enumerate(lengths):
        text = (f"paper {number}. " + "Wood pulp. " * (length // 11))[:length] if length > 1 else "p"
        written[(await alice("memory.write", content=text.ljust(length, "."), tags=["paper"]))["id"]] = length
    for memory, length in written.items():
        same("the length of a memory that get returns", len((await alice("memory.get", id=memory))["content"]), length)
    for operation, query in (("memory.list", {}), ("memory.search", {"query": "paper wood"})):
        for limit in (2, 50):
            await _cut_pages(alice, operation, {**query, "limit": limit}, written)


async def _cut_pages(alice: Caller, operation: str, query: dict[str, Any], written: dict[str, int]) -> None:
    seen: list[str] = []
    cuts = 0
    cursor: str | None = None
    for _ in range(2 * len(written)):
        page = await alice(operation, **query, cursor=cursor)
        items = page["items"] if operation == "memory.list" else [hit["memory"] for hit in page["items"]]
        size = sum(len(memory["content"]) for memory in items)
        holds(bool(items), f"a page of {operation}", expected="at least one item", seen="none")
        fits = size <= PAGE_MAX or len(items) == 1
        holds(fits, f"the content of a page of {operation}", expected=f"at most {PAGE_MAX}, or one item", seen=size)
        for memory in items:
            same("the length of a listed content", len(memory["content"]), written[memory["id"]])
        seen.extend(memory["id"] for memory in items)
        cursor = page["cursor"]
        cuts += page["cut"]
        shortened = cursor is not None and len(items) < query["limit"]
        same(f"whether a page of {operation} of {len(items)} items says that it was cut", page["cut"], shortened)
        if cursor is None:
            break
    same(f"the memories on all pages of {operation}", sorted(seen), sorted(written))
    same(f"whether any page of {operation} was cut", cuts > 0, True)
