"""VEC-04: what an edit costs the embedder."""

from __future__ import annotations

from statistics import median

from muniment.conformance.invariant import Broken
from muniment.conformance.invariants.vectors import say_something, stored_of
from muniment.conformance.rules import STORAGE_AND_EMBEDDER, Rules
from muniment.conformance.texts import document
from muniment.conformance.world import Caller, World, holds, same

RULES = Rules(STORAGE_AND_EMBEDDER)
LENGTH = 13_000
EDITS = 200
MEDIAN_MAX = 2
P95_MAX = 5


@RULES(
    "VEC-04",
    "An edit embeds only passages whose text changed: over 200 seeded positions in a 13,000-character document, the "
    "very first included, the median is at most 2 and the 95th percentile at most 5.",
)
async def small_edits(world: World) -> None:
    alice = world.caller("alice")
    memory = (await alice("memory.write", content=document(world.random, LENGTH)))["id"]
    costs: list[int] = []
    for number in range(EDITS):
        content = (await alice("memory.get", id=memory))["content"]
        position = 0 if number == 0 else world.random.randrange(len(content) - 60)
        costs.append(len(await _edit(world, alice, memory, content, position, number)))
    ordered = sorted(costs)
    high = ordered[int(0.95 * EDITS) - 1]
    seen = f"median {median(costs)}, 95th percentile {high}, at the first position {costs[0]}"
    fits = median(costs) <= MEDIAN_MAX and high <= P95_MAX and costs[0] <= P95_MAX
    expected = f"a median of at most {MEDIAN_MAX} and a 95th percentile of at most {P95_MAX}"
    holds(fits, f"passages embedded in each of {EDITS} edits", expected=expected, seen=seen)
    same("whether the edits were embedded at all", min(costs) > 0, True)
    await _first_edit_of_a_new_client(world, alice, memory)
    say_something(await stored_of(world, memory))


async def _first_edit_of_a_new_client(world: World, alice: Caller, memory: str) -> None:
    """A client that has embedded nothing yet knows what is stored, as after a restart."""
    content = (await alice("memory.get", id=memory))["content"]
    embedded = await _edit(world, await world.second(alice), memory, content, len(content) // 2, EDITS)
    edited = (await alice("memory.get", id=memory))["content"]
    cost = sum(text in edited for text in embedded)
    expected = f"1 to {P95_MAX}"
    holds(0 < cost <= P95_MAX, "passages embedded in a new client's first edit", expected=expected, seen=cost)


async def _edit(world: World, alice: Caller, memory: str, content: str, position: int, number: int) -> list[str]:
    """Replace, delete or insert some characters at a position; the texts that were embedded for it."""
    fragment = _unique(content, position)
    changes = (f"edited {number} {fragment[7:]}", fragment[:8] + fragment[12:], f"{fragment} and {number} more")
    before = len(world.embedder.passages)
    await alice("memory.patch", id=memory, old_string=fragment, new_string=changes[number % 3])
    return world.embedder.passages[before:]


def _unique(content: str, position: int) -> str:
    for length in (40, 80, 160, 320):
        fragment = content[position : position + length]
        if content.find(fragment) == position and content.find(fragment, position + 1) < 0:
            return fragment
    raise Broken("the seeded document", expected="a unique fragment at each position", seen=position)
