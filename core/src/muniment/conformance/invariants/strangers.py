"""LEX-04: what a caller cannot read weighs nothing in what it finds."""

from __future__ import annotations

from muniment.conformance.answers import RANKERS
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.world import Caller, World, holds, same

RULES = Rules(STORAGE)
TOLERANCE = 1e-7
"""Of scores that must be the same; sums in another order differ by less."""
WORDS = ("harbour", "signal", "granite", "mirror", "orchard")
QUERIES = ("harbour", "signal granite", "harbour mirror unseen", "the orchard signal")

Placed = list[tuple[str, float, dict[str, tuple[int, float]]]]
"""The hits of one search: id, score, and rank and score in each ranker."""


@RULES(
    "LEX-04",
    "Scores depend only on what the caller can read: another's data coming and going, and deleted memories, change "
    "neither order nor score in any ranker; the caller's own data do.",
)
async def only_what_is_readable(world: World) -> None:
    alice = world.caller("alice", "team")
    await alice("project.identify", project="acme/own")
    for number in range(12):
        where = {"project": "acme/own"} if number % 3 == 0 else {}
        await alice("memory.write", content=_text(number), tags=[WORDS[number % 3]], **where)
    before = await _placed(alice)
    holds(all(before.values()), "the hits of each query", expected="some", seen=before)
    _all_rankers_had_a_part(before)
    await _counted_before_filters(alice, before)
    await _others_come_and_go(world, alice, before)
    await _deleted_ones(alice, before)
    await _grants_come_and_go(world, alice, before)


def _text(number: int) -> str:
    words = [WORDS[(number + step) % len(WORDS)] for step in range(1 + number % 4)]
    return f"{' '.join(words)} {'and so on ' * (number % 5)}number {number}"


async def _placed(caller: Caller, **narrow: str) -> dict[tuple[str, str], Placed]:
    return {
        (query, fusion): [
            (
                hit["memory"]["id"],
                hit["score"],
                {name: (hit[name]["rank"], hit[name]["score"]) for name in RANKERS if hit[name]},
            )
            for hit in (await caller("memory.search", query=query, fusion=fusion, limit=50, **narrow))["items"]
        ]
        for query in QUERIES
        for fusion in ("weighted", "rrf")
    }


def _all_rankers_had_a_part(placed: dict[tuple[str, str], Placed]) -> None:
    rankers = {name for hits in placed.values() for _, _, parts in hits for name in parts}
    same("the rankers that had a part", rankers, set(RANKERS))


def _unmoved(what: str, seen: dict[tuple[str, str], Placed], expected: dict[tuple[str, str], Placed]) -> None:
    for way, hits in expected.items():
        named = f"{way[0]!r} by {way[1]} after {what}"
        same(f"the order of {named}", [hit[0] for hit in seen[way]], [hit[0] for hit in hits])
        for (_, score, parts), (_, wanted, wanted_parts) in zip(seen[way], hits, strict=True):
            holds(abs(score - wanted) <= TOLERANCE, f"a score of {named}", expected=wanted, seen=score)
            same(f"the rankers of {named}", sorted(parts), sorted(wanted_parts))
            for ranker, (rank, part) in parts.items():
                same(f"a rank by {ranker} of {named}", rank, wanted_parts[ranker][0])
                close = abs(part - wanted_parts[ranker][1]) <= TOLERANCE
                holds(close, f"a score by {ranker} of {named}", expected=wanted_parts[ranker][1], seen=part)


def _moved(what: str, seen: dict[tuple[str, str], Placed], before: dict[tuple[str, str], Placed]) -> None:
    """Data that the caller reads do count: the control of all the rest."""
    for query in QUERIES:
        words = [{hit[0]: hit[2].get("words") for hit in placed[query, "weighted"]} for placed in (seen, before)]
        same(f"whether the scores of {query!r} are other ones after {what}", words[0] != words[1], True)


async def _counted_before_filters(alice: Caller, before: dict[tuple[str, str], Placed]) -> None:
    """A filter narrows the hits and leaves what words are worth."""
    for way, hits in (await _placed(alice, project="acme/own")).items():
        whole = {memory: parts for memory, _, parts in before[way]}
        for memory, _, parts in hits:
            if "words" in parts:
                seen, expected = parts["words"][1], whole[memory]["words"][1]
                what = f"a score by words of {way[0]!r} under a filter"
                holds(abs(seen - expected) <= TOLERANCE, what, expected=expected, seen=seen)


async def _others_come_and_go(world: World, alice: Caller, before: dict[tuple[str, str], Placed]) -> None:
    mallory = world.caller("mallory", "others")
    await mallory("project.identify", project="acme/own")
    theirs: list[str] = []
    for number in range(20):
        where = {"project": "acme/own"} if number % 2 else {}
        text = f"{_text(number)} {'harbour ' * number}"
        theirs.append((await mallory("memory.write", content=text, tags=list(WORDS[:2]), **where))["id"])
    _unmoved("another's memories came", await _placed(alice), before)
    for number, memory in enumerate(theirs):
        if number % 2:
            await mallory("memory.delete", id=memory)
        else:
            await mallory("memory.update", id=memory, content="granite mirror", tags=[])
    _unmoved("another's memories changed and went", await _placed(alice), before)


async def _deleted_ones(alice: Caller, before: dict[tuple[str, str], Placed]) -> None:
    own = (await alice("memory.write", content="harbour granite signal orchard mirror", tags=["harbour"]))["id"]
    _moved("a memory of its own came", await _placed(alice), before)
    await alice("memory.delete", id=own)
    _unmoved("it was deleted", await _placed(alice), before)


async def _grants_come_and_go(world: World, alice: Caller, before: dict[tuple[str, str], Placed]) -> None:
    bob = world.caller("bob")
    await bob("project.identify", project="acme/bobs")
    for number in range(4):
        await bob("memory.write", content=f"{_text(number)} orchard", tags=["signal"], project="acme/bobs")
    _unmoved("another's project came", await _placed(alice), before)
    await bob("project.share", project="acme/bobs", group="team", access="ro")
    _moved("a project was shared with it", await _placed(alice), before)
    await bob("project.unshare", project="acme/bobs", group="team")
    _unmoved("the grant was taken away", await _placed(alice), before)
