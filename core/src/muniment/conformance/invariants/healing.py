"""VEC-07 and VEC-08: an embedder that is down, vectors that come late, and a space whose filling is interrupted."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from functools import partial
from itertools import count

from muniment.conformance.answers import found, ranker_scores
from muniment.conformance.filled import Contents, are_embedded, filled, passages_in, written
from muniment.conformance.invariant import NotExercised
from muniment.conformance.invariants.vectors import say_something, stored_of
from muniment.conformance.meetings import in_either_order
from muniment.conformance.mortal import fills
from muniment.conformance.other_embedders import MoodyEmbedder, OtherWeights
from muniment.conformance.rules import STORAGE_AND_EMBEDDER, Rules
from muniment.conformance.seams import CountingEmbedder
from muniment.conformance.texts import document
from muniment.conformance.world import Caller, World, holds, same
from muniment.engine import spaces
from muniment.engine.cutting import cut
from muniment.errors import EmbedderMismatch, EmbedderUnavailable
from muniment.ports import Passages, PassageVector
from muniment.reference import HashEmbedder

RULES = Rules(STORAGE_AND_EMBEDDER, since="1.2")
MEMORIES = 5
"""How many are swapped."""
OLD_DIMENSIONS = 32
LEAST_KILLED = 4
MEETINGS = 4
"""Of an edit with vectors that are stored for the text before it."""


@RULES(
    "VEC-07",
    "With the embedder down a write succeeds as pending and no vector of text that is gone stays; a search answers "
    "from words and tags and says degraded. Healing makes the vectors those of the present text, and a vector that "
    "comes late for text that is gone is dropped and undoes nothing, also where both are at once.",
)
async def down_and_healed(world: World) -> None:
    moody = MoodyEmbedder(world.embedder)
    alice = await world.with_embedder(moody, world.caller("alice"), patient=True)
    contents = await written(world, alice, (2_000, 600))
    say_something((await world.probe()).passages)
    edited, _ = contents
    kept = contents[edited][:1_000]
    moody.down = True
    for operation, payload in (
        ("memory.patch", {"old_string": contents[edited][1_000:1_400], "new_string": " Nobody has read this yet. "}),
        ("memory.update", {"content": kept + document(world.random, 700)}),
    ):
        receipt = await alice(operation, id=edited, **payload)
        same(f"the embedding state of {operation} with the embedder down", receipt["embedding"], "pending")
        contents[edited] = (await alice("memory.get", id=edited))["content"]
        await _only_present(world, contents[edited], edited)
    pending = await alice("memory.write", content=document(world.random, 500))
    same("the embedding state of a write with the embedder down", pending["embedding"], "pending")
    contents[pending["id"]] = (await alice("memory.get", id=pending["id"]))["content"]
    same("the passages of a memory that was written meanwhile", len(await stored_of(world, pending["id"])), 0)
    for memory, content in contents.items():
        await _by_words_alone(alice, memory, content)
    await _fails(filled(world, moody), EmbedderUnavailable)
    moody.down = False
    same("how many memories are healed", await filled(world, moody), 2)
    await are_embedded(world, world.embedder, contents)
    whole = await world.with_embedder(world.embedder, alice, patient=True)
    page = await whole("memory.search", query=contents[pending["id"]][:200])
    same("what a search says once all is healed", page["degraded"], None)
    holds("meaning" in ranker_scores(page, pending["id"]), "the healed hit", expected="a score by meaning", seen=page)
    await _late(world, contents)


async def _only_present(world: World, content: str, memory: str) -> None:
    """No passage of a memory is of other text than its present one."""
    texts = {one.hash for one in await stored_of(world, memory)}
    space = await world.embedder.space()
    present = await cut(content, world.embedder.inner, space.passage_tokens)
    same("stored passages of text that is gone", sorted(texts - present.keys()), [])


async def _by_words_alone(caller: Caller, memory: str, content: str) -> None:
    page = await caller("memory.search", query=" ".join(content.split()[3:7]))
    same("whether a memory is found by its words with the embedder down", memory in found(page), True)
    same("whether it has a score by meaning then", "meaning" in ranker_scores(page, memory), False)
    holds(bool(page["degraded"]), "what the answer says", expected="that it is degraded", seen=page["degraded"])


async def _fails(under_way: Awaitable[object], *refusals: type[Exception]) -> None:
    try:
        seen = await under_way
    except refusals:
        return
    holds(False, "what is done without a working embedder", expected="a refusal", seen=seen)


async def _late(world: World, contents: Contents) -> None:
    """While vectors are made of it, one memory is edited and another one is deleted."""
    plain = await world.without_embedder(world.caller("alice"))
    edited, deleted = await written(world, plain, (700, 700))
    space = await world.embedder.space()
    lease = timedelta(seconds=world.short_lease)
    leased = await world.storage.lease_unembedded(space.id, after=None, limit=MEMORIES, lease=lease)
    same("the memories that are leased", sorted(one.memory_id for one in leased), sorted((edited, deleted)))
    late = {one.memory_id: (one.version, await _made(world, one.content)) for one in leased}
    present = document(world.random, 600)
    await plain("memory.update", id=edited, content=present)
    await plain("memory.delete", id=deleted)
    for storage in (world.storage, await world.second_storage()):
        for memory, (version, passages) in late.items():
            stored = await storage.store_passages(memory, version, passages)
            same("whether vectors are stored that come late", stored, False)
    await _only_present(world, present, edited)
    same("the passages of a memory that was deleted meanwhile", len(await stored_of(world, deleted)), 0)
    same("how many memories are healed then", await filled(world, world.embedder), 1)
    contents = {**contents, edited: present}
    await are_embedded(world, world.embedder, contents)
    for turn in range(MEETINGS):
        contents = {**contents, **await _beside_an_edit(world, turn)}
    await are_embedded(world, world.embedder, contents)


async def _beside_an_edit(world: World, turn: int) -> Contents:
    """Vectors of a text are stored while it is replaced: the edit stays, whoever is first; what is there then."""
    alice, healer = world.caller("alice"), await world.second_storage()
    ((memory, content),) = (await written(world, await world.without_embedder(alice), (300,))).items()
    version, present = (await alice("memory.get", id=memory))["version"], document(world.random, 300).strip()
    edit = partial(alice, "memory.update", id=memory, content=present)
    heal = partial(healer.store_passages, memory, version, await _made(world, content))
    await in_either_order(world, ("apply", "store_passages"), turn, edit, heal)
    same("the content after an edit beside vectors", (await alice("memory.get", id=memory))["content"], present)
    return {memory: present}


async def _made(world: World, content: str) -> Passages:
    """What is stored in the background for this text."""
    space = await world.embedder.space()
    texts = await cut(content, world.embedder.inner, space.passage_tokens)
    vectors = await world.embedder.embed_passages(list(texts.values()))
    made = tuple(PassageVector(key, vector) for key, vector in zip(texts, vectors, strict=True))
    return Passages(space.id, frozenset(texts), made, complete=True)


@RULES(
    "VEC-08",
    "A space that is filled by processes that are killed, wherever they are, is filled to the end by the next: what "
    "counts as complete is complete, and answers say which share is, with all text found by its words. The old space "
    "is intact throughout, and a new embedder whose probe fails, or is another model's, changes nothing.",
)
async def killed_and_resumed(world: World) -> None:
    alice = world.caller("alice")
    old, new = CountingEmbedder(HashEmbedder(OLD_DIMENSIONS)), world.embedder
    writer = await world.with_embedder(old, alice, patient=True)
    contents = await written(world, writer, [300 * (1 + number) for number in range(MEMORIES)])
    before = await passages_in(world, (await old.space()).id)
    say_something(before)
    await _failed_probes(world, writer, old, contents)
    killed = 0
    for at in count(1):
        survived = await fills(world, new, until=at)
        await _half_way(world, alice, contents)
        same("the old space's passages", await passages_in(world, (await old.space()).id), before)
        if survived:
            break
        killed += 1
        await world.lose_leases()
    if killed < LEAST_KILLED:
        raise NotExercised(f"a process was killed only {killed} times before the space was full")
    for embedder in (new, old):
        await are_embedded(world, embedder, contents)
    say_something(await passages_in(world, (await new.space()).id))
    back = await world.with_embedder(old, alice, patient=True)
    await _finds_all(back, contents, None)


async def _failed_probes(world: World, writer: Caller, old: CountingEmbedder, contents: Contents) -> None:
    moody = MoodyEmbedder(world.embedder)
    moody.down = True
    unreachable = await world.with_embedder(moody, writer, patient=True)
    wrong = await world.with_embedder(OtherWeights(old.inner), writer, patient=True)
    async with world.unchanged("the probes of a new embedder failed"):
        await _fails(spaces.register(world.storage, moody), EmbedderUnavailable)
        for memory, content in contents.items():
            await _by_words_alone(unreachable, memory, content)
        await _fails(spaces.register(world.storage, OtherWeights(old.inner)), EmbedderMismatch)
        await wrong.refused("embedder_mismatch", "memory.search", query="anything")
    await _finds_all(writer, contents, None)


async def _finds_all(caller: Caller, contents: Contents, degraded: str | None) -> None:
    """Every memory by its words, and where nothing is degraded by its meaning too."""
    for memory, content in contents.items():
        page = await caller("memory.search", query=" ".join(content.split()[3:63]), limit=50)
        same("what an answer says of the share that is done", page["degraded"], degraded)
        scores = ranker_scores(page, memory)
        wanted = {"words"} if degraded else {"words", "meaning"}
        holds(scores.keys() >= wanted, "how a memory is found", expected=sorted(wanted), seen=sorted(scores))


async def _half_way(world: World, alice: Caller, contents: Contents) -> None:
    """What is stored is right, what counts as complete is whole, and both are told."""
    space = await world.embedder.space()
    stored: dict[str, set[str]] = {memory: set() for memory in contents}
    for one in await passages_in(world, space.id):
        stored[one.memory_id].add(one.hash)
    whole = 0
    for memory, content in contents.items():
        texts = await cut(content, world.embedder.inner, space.passage_tokens)
        same("stored passages that are not in the text", sorted(stored[memory] - texts.keys()), [])
        whole += stored[memory] == texts.keys()
    progress = await world.storage.space_progress(space.id)
    same("the memories that are counted", progress.memories, len(contents))
    holds(progress.complete <= whole, "the memories that count as complete", expected=whole, seen=progress.complete)
    share = f"reembedding {100 * progress.complete // progress.memories}%"
    caller = await world.with_embedder(world.embedder, alice, patient=True)
    await _finds_all(caller, contents, share if progress.complete < progress.memories else None)
