"""OPS-01 and OPS-02: what a storage says that waits, for whoever operates it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from muniment import limits
from muniment.conformance.agents_estate import instance
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.world import Answer, World, same
from muniment.passages import digest
from muniment.ports import Passages, PassageVector, Space

RULES = Rules(STORAGE, since="1.1")

OTHER = Space("suite:other", "suite", "other", 4, "mean", normalised=True, passage_tokens=64)
UNKNOWN = "suite:never-registered"
MANY = 50
"""More than the memories that the check writes."""


@RULES(
    "OPS-01",
    "The events that are counted as waiting are those of all agents that a claim would get: not those that are out, "
    "acknowledged or dead; those whose lease ran out are among them again.",
)
async def events_waiting(world: World) -> None:
    ada, bea = instance(world, "ada"), instance(world, "bea")
    await _waiting(world, 0, "before there are any")
    for number in range(2):
        await ada.enqueue(content=f"lost {number}")
    for number in range(3):
        await bea.enqueue(content=f"waits {number}")
    await _waiting(world, 5, "of two agents")
    for attempt in range(1, limits.ATTEMPTS_MAX + 1):
        same("what is claimed", len(await ada.claim(20, world.short_lease)), 2)
        await _waiting(world, 3, "while two are out")
        await world.lose_leases()
        await _waiting(world, 3, "past the maximum of attempts that is asked for", attempts_max=attempt)
        left = attempt < limits.ATTEMPTS_MAX
        await _waiting(world, 5 if left else 3, f"after the lease of attempt {attempt}")
    (delivery,) = await bea.claim(lease=world.short_lease)
    await _waiting(world, 2, "while one is out")
    same("an acknowledgement", await bea.ack(delivery), "acknowledged")
    await world.lose_leases()
    await _waiting(world, 2, "once it is acknowledged")


async def _waiting(world: World, expected: int, when: str, *, attempts_max: int = limits.ATTEMPTS_MAX) -> None:
    for storage in (world.storage, await world.second_storage()):
        counted = await storage.backlog(None, attempts_max=attempts_max)
        same(f"the events that wait {when}", counted.events_waiting, expected)
        same("the embeddings that are pending without a space", counted.embeddings_pending, 0)


@RULES(
    "OPS-02",
    "The embeddings that are counted as pending are the live memories, of all users, whose passages in the space are "
    "not complete: those that healing finds. Of a space that is not registered they are all of them.",
)
async def embeddings_pending(world: World) -> None:
    alice, bob = world.caller("alice"), world.caller("bob")
    own = (await world.embedder.space()).id
    await _pending(world, {own: 0, OTHER.id: 0, UNKNOWN: 0}, "before there are any")
    await world.storage.register_space(OTHER, np.eye(2, OTHER.dimensions, dtype=np.float32))
    whole, in_part, without = [await alice("memory.write", content=f"memory {number}") for number in range(3)]
    of_bob = await bob("memory.write", content="of another user")
    await _pending(world, {own: 0, OTHER.id: 4, UNKNOWN: 4}, "of two users")
    plain = await world.without_embedder(alice)
    await plain("memory.write", content="without vectors")
    await _pending(world, {own: 1, OTHER.id: 5, UNKNOWN: 5}, "with one that has no vectors at all")
    for receipt, complete in ((whole, True), (in_part, False), (of_bob, True)):
        await _embed(world, receipt, complete=complete)
    await _pending(world, {own: 1, OTHER.id: 3, UNKNOWN: 5}, "once two are complete in another space, and one in part")
    for receipt in (whole, in_part, without):
        await alice("memory.delete", id=receipt["id"])
    await _pending(world, {own: 1, OTHER.id: 1, UNKNOWN: 2}, "once one of each kind is deleted")


async def _embed(world: World, written: Answer, *, complete: bool) -> None:
    hashed = digest(f"a passage of {written['id']}")
    vector = PassageVector(hashed, np.full(OTHER.dimensions, 0.5, dtype=np.float32))
    passages = Passages(OTHER.id, frozenset({hashed}), (vector,), complete=complete)
    stored = await world.storage.store_passages(written["id"], written["version"], passages)
    same("whether background vectors were stored", stored, True)


async def _pending(world: World, expected: Mapping[str, int], when: str) -> None:
    for storage in (world.storage, await world.second_storage()):
        for space, number in expected.items():
            counted = await storage.backlog(space, attempts_max=limits.ATTEMPTS_MAX)
            same(f"the embeddings that are pending in {space} {when}", counted.embeddings_pending, number)
            same("what healing finds there", len(await storage.unembedded(space, limit=MANY)), number)
