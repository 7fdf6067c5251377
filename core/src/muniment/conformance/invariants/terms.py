"""LEX-02: the word index is part of the commit, and terms of another analyser are detected and healed."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from muniment import access, lexical
from muniment.conformance.answers import ranker_scores
from muniment.conformance.estate import estate
from muniment.conformance.invariant import Feature
from muniment.conformance.loading import Row, apply_all, created, new_id
from muniment.conformance.meetings import in_either_order
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.target import FaultPoint
from muniment.conformance.world import Caller, World, holds, same
from muniment.engine.terms import StoredTerms

RULES = Rules(STORAGE)
OLD_ANALYSER = "an-older-analyser"
ALTERNATIONS = 20
MEETINGS = 6
"""Of an edit with terms that are stored for the text before it."""


@RULES(
    "LEX-02",
    "The term index changes in the same commit as the text, or not at all; stored terms of another analyser are "
    "detected and healed, and late terms for a memory that changed are dropped and undo nothing, also where both are "
    "at once.",
    features=frozenset({Feature.FAULT}),
)
async def terms_of_the_text(world: World) -> None:
    await _after_every_mutation(world)
    await _never_apart(world)
    await _healed(world)
    await _dropped_when_late(world)
    for turn in range(MEETINGS):
        await _beside_an_edit(world, turn)


async def _after_every_mutation(world: World) -> None:
    place = await estate(world)
    alice = place.owner
    memory = (await alice("memory.write", content="walrus gallery, walrus garden", tags=["t"]))["id"]
    await _has_its_terms(world, alice, memory, "u:alice", gone="lantern")
    filed = f"p:{place.project}"
    steps: list[tuple[str, dict[str, Any], str, str]] = [
        ("memory.update", {"content": "lantern gallery"}, "u:alice", "walrus"),
        ("memory.patch", {"old_string": "lantern", "new_string": "compass"}, "u:alice", "lantern"),
        ("memory.update", {"tags": ["other"]}, "u:alice", "lantern"),
        ("memory.update", {"project": place.key}, filed, "lantern"),
        ("memory.update", {"project": place.key, "content": "anchor compass", "scope": "project"}, filed, "gallery"),
        ("memory.update", {"content": "rope", "scope": "user"}, "u:alice", "anchor"),
        ("memory.delete", {}, "", "rope"),
        ("memory.restore", {}, "u:alice", "anchor"),
    ]
    for operation, change, scope_key, gone in steps:
        await alice(operation, id=memory, **change)
        if operation == "memory.delete":
            same("the terms of a deleted memory", await _terms(world, memory), {})
            await _is_not_found(alice, memory, gone)
        else:
            await _has_its_terms(world, alice, memory, scope_key, gone=gone)
    async with world.unchanged("an edit that failed to store its terms"), world.fault(FaultPoint.TERMS):
        await alice.fails("memory.update", id=memory, content="pulley")
    await _has_its_terms(world, alice, memory, "u:alice", gone="pulley")


async def _has_its_terms(world: World, caller: Caller, memory: str, scope_key: str, *, gone: str) -> None:
    """What is stored is the analysis of the text, and a search says so at once."""
    content = (await caller("memory.get", id=memory))["content"]
    expected = {(scope_key, term): count for term, count in lexical.analyse(content).frequencies.items()}
    same(f"the stored terms of {content!r}", await _terms(world, memory), expected)
    for word in content.replace(",", "").split():
        scores = ranker_scores(await caller("memory.search", query=word, limit=50), memory)
        holds("words" in scores, f"the memory by its word {word!r}", expected="a hit of the words ranker", seen=scores)
    await _is_not_found(caller, memory, gone)


async def _is_not_found(caller: Caller, memory: str, word: str) -> None:
    scores = ranker_scores(await caller("memory.search", query=word, limit=50), memory)
    same(f"whether {word!r}, which is gone, still finds the memory", "words" in scores, False)


async def _terms(world: World, memory: str) -> dict[tuple[str, str], int]:
    stored = (await world.probe()).terms
    return {(one.scope_key, one.term): one.frequency for one in stored if one.memory_id == memory}


async def _never_apart(world: World) -> None:
    """While a text alternates, whoever finds it by a word reads a text with that word."""
    writer = world.caller("wendy")
    reader = await world.second(writer)
    memory = (await writer("memory.write", content="odd 0"))["id"]
    writing = asyncio.ensure_future(_alternate(writer, memory))
    try:
        while not writing.done():
            for word in ("odd", "even"):
                page = await reader("memory.search", query=word)
                for hit in page["items"]:
                    if hit["words"]:
                        same("the text that a word of it found", hit["memory"]["content"].split()[0], word)
        await writing
    finally:
        writing.cancel()
    await _has_its_terms(world, writer, memory, "u:wendy", gone="even")


async def _alternate(writer: Caller, memory: str) -> None:
    for number in range(1, 2 * ALTERNATIONS + 1):
        await writer("memory.update", id=memory, content=f"{'even' if number % 2 else 'odd'} {number}")


async def _healed(world: World) -> None:
    """Live memories with another analyser's terms, and only those, are found and analysed anew."""
    place = await estate(world, "acme/healed")
    alice = place.owner
    same("the outdated memories before there are any", await _outdated(world), set[str]())
    contents = {new_id(world.random): content for content in ("tidal estuary", "mountain pass")}
    await _store_outdated(world, contents)
    deleted = next(iter(await _store_outdated(world, {new_id(world.random): "a deleted estuary"})))
    await alice("memory.delete", id=deleted)
    same("the outdated memories", await _outdated(world), set(contents))
    limited = await world.storage.outdated_terms(lexical.ANALYSER, limit=1)
    same("how many a limit of one gives", len(limited), 1)
    for memory, content in contents.items():
        await _is_not_found(alice, memory, content.split()[0])
    healing = StoredTerms(world.storage)
    same("how many were healed", await healing.heal(), len(contents))
    same("the outdated memories after healing", await _outdated(world), set[str]())
    for memory in contents:
        await _has_its_terms(world, alice, memory, "u:alice", gone="outdated")
    same("how many a second healing finds", await healing.heal(), 0)
    same("the version of a healed memory", (await alice("memory.get", id=next(iter(contents))))["version"], 1)


async def _dropped_when_late(world: World) -> None:
    """Terms made for a version that is no longer there change nothing."""
    alice = world.caller("alice")
    contents = {new_id(world.random): content for content in ("first draft", "second draft", "third draft")}
    await _store_outdated(world, contents)
    edited, deleted, kept = contents
    late = lexical.analyse("stale text")
    await alice("memory.update", id=edited, content="a newer text")
    await alice("memory.delete", id=deleted)
    same("the outdated memories after an edit and a deletion", await _outdated(world), {kept})
    async with world.unchanged("late terms"):
        for memory, version in ((edited, 1), (deleted, 1), (deleted, 2), (new_id(world.random), 1)):
            stored = await world.storage.store_terms(memory, version, lexical.ANALYSER, late)
            same("whether late terms are stored", stored, False)
    terms = lexical.analyse(contents[kept])
    same("whether timely ones are", await world.storage.store_terms(kept, 1, lexical.ANALYSER, terms), True)
    for memory in (edited, kept):
        await _has_its_terms(world, alice, memory, "u:alice", gone="stale")


async def _beside_an_edit(world: World, turn: int) -> None:
    """Terms of a text are stored while it is replaced: the edit stays, whoever is first."""
    alice, healer = world.caller("alice"), await world.second_storage()
    memory = new_id(world.random)
    await _store_outdated(world, {memory: "odd draft"})
    edit = partial(alice, "memory.update", id=memory, content="even draft")
    heal = partial(healer.store_terms, memory, 1, lexical.ANALYSER, lexical.analyse("odd draft"))
    await in_either_order(world, ("apply", "store_terms"), turn, edit, heal)
    same("the content after an edit beside terms", (await alice("memory.get", id=memory))["content"], "even draft")
    await _has_its_terms(world, alice, memory, "u:alice", gone="odd")


async def _outdated(world: World) -> set[str]:
    return {one.memory_id for one in await world.storage.outdated_terms(lexical.ANALYSER, limit=1_000)}


async def _store_outdated(world: World, contents: dict[str, str]) -> dict[str, str]:
    """alice's memories with the terms that another analyser made of them."""
    space = (await world.embedder.space()).id
    rows = [
        Row(
            memory,
            access.own_placement("alice"),
            content,
            analyser=OLD_ANALYSER,
            terms=lexical.Terms({"outdated": 1}, 1),
        )
        for memory, content in contents.items()
    ]
    await apply_all(world.storage, [created(row, space, world.random) for row in rows])
    return contents
