"""READ-06: what a storage gives of the trail of a scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muniment.conformance.loading import new_id
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.world import World, holds, same
from muniment.models import AuditRecord
from muniment.ports import AuditDraft, Position, Storage

RULES = Rules(STORAGE, since="1.2")

SCOPES = ("t:suite", "T:suite", "t:suit_", "t:suite/", "t:", "%")
"""Keys of which none is another, unless they are compared in another way than whole."""
ENTRIES = 7
PAGE = 2


@RULES(
    "READ-06",
    "The trail of a scope has each of its entries that belongs to no memory, as it was stored, newest first and then "
    "by id, page by page: each exactly once, also while others are added, through every client and after reopening; "
    "and none of another scope, whatever its key.",
)
async def of_scopes(world: World) -> None:
    first, second = world.storage, await world.second_storage()
    alice = world.caller("alice")
    await alice("memory.write", content="A memory's entry is in that memory's history.")
    drafts = {scope: [_draft(world, scope, number) for number in range(ENTRIES)] for scope in (*SCOPES, "u:alice")}
    same("a trail without entries", await first.trail(SCOPES[0], after=None, limit=PAGE), [])
    for made in drafts.values():
        for number, draft in enumerate(made):
            await (first, second)[number % 2].record(draft)
    kept: dict[str, list[AuditRecord]] = {}
    for scope, made in drafts.items():
        kept[scope] = list(await first.trail(scope, after=None, limit=100))
        times = {one.id: one.at for one in kept[scope]}
        same(f"the ids of the trail of {scope}", sorted(times), sorted(one.id for one in made))
        expected = [one.record(times[one.id]) for one in made]
        expected.sort(key=lambda one: one.id)
        expected.sort(key=lambda one: one.at, reverse=True)
        same(f"the trail of {scope}", kept[scope], expected)
        for storage in (first, second):
            for limit in (1, PAGE, ENTRIES):
                same(f"the trail of {scope}, {limit} a page", await _pages(storage, scope, limit), kept[scope])
    known = {one.id for one in kept[SCOPES[0]]}
    seen: list[AuditRecord] = []
    after = None
    while page := await first.trail(SCOPES[0], after=after, limit=PAGE):
        seen += page
        after = Position(page[-1].at, page[-1].id)
        await second.record(_draft(world, SCOPES[0], len(seen)))
    same("the trail, while others are added", [one for one in seen if one.id in known], kept[SCOPES[0]])
    await world.reopen(alice)
    same("the trail after reopening", await _pages(world.storage, SCOPES[1], PAGE), kept[SCOPES[1]])


def _draft(world: World, scope: str, number: int) -> AuditDraft:
    """One whose fields differ from the others'."""
    details: dict[str, Any] | None = {"text": "αλίκη 😀", "list": ["a", number], "none": None} if number % 2 else None
    return AuditDraft(
        id=new_id(world.random),
        actor=f"actor {number}",
        agent=f"ada/{number}" if number % 3 else None,
        surface="suite",
        action=f"suite.{number}",
        memory_id=None,
        project_id=f"project {number}" if number % 3 else None,
        version=number + 1,
        changed=("one", "two")[: number % 3],
        scope_key=scope,
        details=details,
    )


async def _pages(storage: Storage, scope: str, limit: int) -> Sequence[AuditRecord]:
    found: list[AuditRecord] = []
    while page := await storage.trail(
        scope, after=Position(found[-1].at, found[-1].id) if found else None, limit=limit
    ):
        holds(len(page) <= limit, "a page of a trail", expected=f"at most {limit}", seen=len(page))
        found += page
    return found
