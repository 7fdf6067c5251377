"""VEC-01 to VEC-03: the vectors are those of the present text, read around the plugin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from muniment.conformance.answers import ranker_scores
from muniment.conformance.estate import estate
from muniment.conformance.rules import STORAGE_AND_EMBEDDER, Rules
from muniment.conformance.target import StoredPassage
from muniment.conformance.texts import document
from muniment.conformance.world import Caller, World, holds, same
from muniment.passages import digest

RULES = Rules(STORAGE_AND_EMBEDDER)
TOLERANCE = 1e-4
"""Between a stored vector and the embedder's; float32, and batches of other sizes, differ by less."""


@RULES(
    "VEC-01",
    "After any mutation that changes content, the stored passages of the active space are exactly those of the present "
    "text, and each vector equals the embedding of its passage.",
)
async def present_text(world: World) -> None:
    place = await estate(world)
    alice = place.owner
    text = document(world.random, 4_000)
    memory = (await alice("memory.write", content=text))["id"]
    await is_embedded(world, alice, memory, "u:alice")
    say_something(await stored_of(world, memory))
    middle, start = text[2_000:2_060], text[:50]
    filed = f"p:{place.project}"
    steps: list[tuple[str, dict[str, Any], str]] = [
        ("memory.patch", {"old_string": middle, "new_string": "quite another sentence. "}, "u:alice"),
        ("memory.patch", {"old_string": start, "new_string": ""}, "u:alice"),
        ("memory.update", {"content": document(world.random, 3_000)}, "u:alice"),
        ("memory.update", {"project": place.key}, filed),
        ("memory.update", {"content": "short now  "}, filed),
        ("memory.update", {"content": document(world.random, 2_500), "scope": "user"}, "u:alice"),
        ("memory.update", {"content": " \n "}, "u:alice"),
        ("memory.update", {"content": "the same line\n" * 300}, "u:alice"),
        ("memory.delete", {}, "u:alice"),
        ("memory.restore", {}, "u:alice"),
    ]
    for operation, payload, scope_key in steps:
        receipt = await alice(operation, id=memory, **payload)
        if operation == "memory.delete":
            same("the passages of a deleted memory", await stored_of(world, memory), [])
            continue
        if receipt["content_length"] is not None or operation == "memory.restore":
            same(f"the embedding state after {operation}", receipt["embedding"], "ready")
        await is_embedded(world, alice, memory, scope_key)


async def stored_of(world: World, memory: str) -> list[StoredPassage]:
    return [passage for passage in (await world.probe()).passages if passage.memory_id == memory]


async def is_embedded(world: World, caller: Caller, memory: str, scope_key: str) -> None:
    """The stored passages cover the text, are those of a fresh memory with it, and their vectors are right."""
    content = (await caller("memory.get", id=memory))["content"]
    stored = await stored_of(world, memory)
    space = (await world.embedder.space()).id
    same("the spaces of the stored passages", {passage.space for passage in stored} or {space}, {space})
    same("the scope keys of the stored passages", {one.scope_key for one in stored} or {scope_key}, {scope_key})
    texts = {digest(text): text for text in world.embedder.passages}
    unknown = [passage.hash for passage in stored if passage.hash not in texts]
    same("stored passages whose text was never embedded", unknown, [])
    passages = [texts[passage.hash] for passage in stored]
    same("what of the text no stored passage covers", _uncovered(content, passages), "")
    fresh = (await caller("memory.write", content=content))["id"]
    copy = await stored_of(world, fresh)
    await caller("memory.delete", id=fresh)
    hashes = sorted(passage.hash for passage in stored)
    same("the stored passages", hashes, sorted(passage.hash for passage in copy))
    same("stored passages that are there twice", len(hashes) - len(set(hashes)), 0)
    await _vectors_are_right(world, stored, passages)


def _uncovered(content: str, passages: list[str]) -> str:
    """The characters, white space left out, that lie in none of the passages."""
    covered = bytearray(len(content))
    for passage in passages:
        at = content.find(passage)
        if at < 0:
            return f"[a passage that is not in the text: {passage[:40]!r}]"
        while at >= 0:
            covered[at : at + len(passage)] = b"\x01" * len(passage)
            at = content.find(passage, at + 1)
    return "".join(
        character for character, held in zip(content, covered, strict=True) if not held and not character.isspace()
    )


async def _vectors_are_right(world: World, stored: list[StoredPassage], passages: list[str]) -> None:
    if not stored:
        return
    expected = await world.embedder.inner.embed_passages(passages)
    seen = np.array([passage.vector for passage in stored], dtype=np.float32)
    same("the shape of the stored vectors", seen.shape, expected.shape)
    off = float(np.abs(seen - expected).max())
    holds(off <= TOLERANCE, "the stored vectors against the embedder's", expected=f"within {TOLERANCE}", seen=off)


def say_something(stored: Sequence[StoredPassage]) -> None:
    """Broken where the vectors are zero, or the same for different passages: then nothing else about them
    counts."""
    holds(bool(stored), "the stored passages", expected="some", seen="none")
    vectors = np.array([passage.vector for passage in stored], dtype=np.float32)
    shortest = float(np.linalg.norm(vectors, axis=1).min())
    holds(shortest > 0, "the length of the shortest stored vector", expected="more than 0", seen=shortest)
    kinds = len({passage.hash for passage in stored})
    if kinds > 1:
        spread = float(np.ptp(vectors, axis=0).max())
        holds(spread > TOLERANCE, f"the vectors of {kinds} passages", expected="different", seen=f"{spread:g} apart")


@RULES(
    "VEC-02",
    "A mutation that leaves content alone calls the embedder not at all and leaves the vectors as they were.",
)
async def content_alone(world: World) -> None:
    place = await estate(world)
    alice = place.owner
    text = document(world.random, 4_000)
    memory = (await alice("memory.write", content=text, tags=["t"]))["id"]
    before = await stored_of(world, memory)
    holds(len(before) > 1, "the passages of the memory", expected="several", seen=len(before))
    say_something(before)
    own, filed = "u:alice", f"p:{place.project}"
    steps: list[tuple[str, dict[str, Any], str]] = [
        ("memory.update", {"tags": ["u"]}, own),
        ("memory.update", {"project": place.key}, filed),
        ("memory.update", {"project": place.key, "tags": []}, filed),
        ("memory.update", {"content": text}, filed),
        ("memory.update", {"scope": "user"}, own),
    ]
    for operation, payload, scope_key in steps:
        calls = world.embedder.calls
        await alice(operation, id=memory, **payload)
        what = f"{operation} of {', '.join(payload)}"
        same(f"calls of the embedder during {what}", world.embedder.calls - calls, 0)
        after = await stored_of(world, memory)
        vectors = [(passage.space, passage.hash, passage.vector) for passage in after]
        same(f"the vectors after {what}", vectors, [(one.space, one.hash, one.vector) for one in before])
        same(f"the scope key after {what}", {passage.scope_key for passage in after}, {scope_key})
    calls = world.embedder.calls
    await alice("memory.delete", id=memory)
    same("calls of the embedder during memory.delete", world.embedder.calls - calls, 0)
    written = await alice("memory.write", content=document(world.random, 300))
    same("whether a new memory calls the embedder", world.embedder.calls > calls, True)
    same("whether the new memory has vectors", bool(await stored_of(world, written["id"])), True)


@RULES("VEC-03", "Text that was removed no longer matches, in any ranker, after update, patch, delete or move.")
async def removed_text(world: World) -> None:
    place = await estate(world)
    alice, bob = place.owner, world.caller("bob", "writers")
    removed = "Xylophone quarrel near the obsidian viaduct"
    keeping = document(world.random, 4_000)
    for operation, payload in (
        ("memory.update", {"content": keeping}),
        ("memory.patch", {"old_string": f"{removed}.\n\n", "new_string": ""}),
        ("memory.patch", {"old_string": removed, "new_string": "Plain words"}),
    ):
        memory = (await alice("memory.write", content=f"{removed}.\n\n{keeping}", project=place.key))["id"]
        await _matches(world, bob, memory, removed)
        await alice(operation, id=memory, **payload)
        await _no_longer_matches(world, bob, memory, removed)
    memory = (await alice("memory.write", content=removed, tags=["viaduct"], project=place.key))["id"]
    for operation, payload in (("memory.update", {"scope": "user"}), ("memory.delete", {})):
        await _matches(world, alice, memory, removed)
        await alice(operation, id=memory, **payload)
        same(
            f"the scores after {operation}",
            ranker_scores(await bob("memory.search", query=f"{removed} viaduct", limit=50), memory),
            {},
        )
    same("the scores after it was deleted", ranker_scores(await alice("memory.search", query=removed), memory), {})
    await alice("memory.restore", id=memory)
    await alice("memory.update", id=memory, tags=["other"])
    same("the tags that match after they were removed", "tags" in await _scores(alice, memory, "viaduct"), False)


async def _scores(caller: Caller, memory: str, query: str) -> dict[str, float]:
    return ranker_scores(await caller("memory.search", query=query, limit=50), memory)


async def _matches(world: World, caller: Caller, memory: str, query: str) -> None:
    scores = await _scores(caller, memory, query)
    holds(scores.get("words", 0) > 0, "the words of text that is there", expected="a match", seen=scores)
    await _meaning_is_of_the_present(world, memory, query, scores)


async def _no_longer_matches(world: World, caller: Caller, memory: str, query: str) -> None:
    scores = await _scores(caller, memory, query)
    same("whether the words of removed text match", "words" in scores, False)
    same("whether the tags of removed text match", "tags" in scores, False)
    await _meaning_is_of_the_present(world, memory, query, scores)


async def _meaning_is_of_the_present(world: World, memory: str, query: str, scores: dict[str, float]) -> None:
    """The score by meaning is the cosine of the best passage of the present text, embedded anew."""
    texts = {digest(text): text for text in world.embedder.passages}
    content = (await world.caller("alice")("memory.get", id=memory))["content"]
    present = [texts[one.hash] for one in await stored_of(world, memory) if texts.get(one.hash, "\x00") in content]
    holds(bool(present), "the stored passages of the present text", expected="at least one", seen=0)
    say_something(await stored_of(world, memory))
    vectors = (await world.embedder.inner.embed_passages(present)).astype(np.float64)
    target = (await world.embedder.inner.embed_query(query)).astype(np.float64)
    cosines = vectors @ target / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(target))
    expected = max(float(cosines.max()), 0.0)
    seen = scores.get("meaning", 0.0)
    holds(
        abs(seen - expected) <= TOLERANCE * 10,
        "the score by meaning",
        expected=f"that of the best present passage, {expected:.5f}",
        seen=f"{seen:.5f}",
    )
