"""VEC-10 and VEC-11: who works on what while a space is filled, and what the registry of spaces says and drops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta

import numpy as np

from muniment.conformance.filled import passages_in, written
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.world import Caller, World, holds, same
from muniment.errors import ConfigurationError
from muniment.passages import digest
from muniment.ports import Passages, PassageVector, Progress, Space, Storage, Unembedded, Vectors

RULES = Rules(STORAGE, since="1.2")
ONE = Space("suite:one", "suite", "one", 8, "mean", normalised=True, passage_tokens=64)
TWO = Space("suite:two", "suite", "two", 12, "mean", normalised=False, passage_tokens=32)
UNKNOWN = "suite:never-registered"
MANY = 50
"""More than the memories that a check writes."""


@RULES(
    "VEC-10",
    "Of all who fill a space at once each memory goes to one, by id and above the one that is named. A lease ends with "
    "the memory's vectors, with its time and with a mutation of the memory, and no write waits for it.",
)
async def one_at_a_time(world: World) -> None:
    alice = world.caller("alice")
    plain = await world.without_embedder(alice)
    ids = sorted(await written(world, plain, [200] * 7))
    await world.storage.register_space(ONE, _probes(ONE))
    await world.storage.register_space(TWO, _probes(TWO))
    await _in_a_race(world, ids)
    await world.lose_leases()
    same("the memories that are leased first", _ids(await _lease(world, after=None, limit=3)), ids[:3])
    same("the memories above the last one", _ids(await _lease(world, after=ids[2], limit=2)), ids[3:5])
    same("the memories that are not leased, from the beginning", _ids(await _lease(world, after=None)), ids[5:])
    same("the memories to be had while all are leased", _ids(await _lease(world, after=None)), [])
    same("those of another space", _ids(await _lease(world, after=None, space=TWO)), ids)
    await _store(plain, world.storage, ONE, ids[0], complete=True)
    await _store(plain, world.storage, ONE, ids[1], complete=False)
    again = await _lease(world, after=None)
    same("what is to be had once one is complete and one is stored in part", _ids(again), [ids[1]])
    same("its passages", [one.passages for one in again], [frozenset({_hash(ids[1])})])
    await _mutations_end_it(world, plain, ids)
    await world.lose_leases()
    same("what is to be had once the leases are over", _ids(await _lease(world, after=None)), [*ids[1:3], *ids[4:]])
    try:
        seen = await world.storage.lease_unembedded(UNKNOWN, after=None, limit=1, lease=timedelta(seconds=1))
    except ConfigurationError:
        return
    holds(False, "a lease in a space that is not registered", expected="a refusal", seen=seen)


async def _in_a_race(world: World, ids: Sequence[str]) -> None:
    """Two clients ask at once, and then until nothing is left."""
    second = await world.second_storage()
    async with world.race(2, "lease_unembedded"):
        shares = await asyncio.gather(_lease(world, over=world.storage), _lease(world, over=second))
    rest = [await _lease(world, over=world.storage), await _lease(world, over=second)]
    leased = [memory for share in (*shares, *rest) for memory in _ids(share)]
    same("the memories that two clients lease at once", sorted(leased), sorted(ids))


async def _mutations_end_it(world: World, plain: Caller, ids: Sequence[str]) -> None:
    """An edit makes a memory to be had again, at its new version; a deleted one is not."""
    await plain("memory.update", id=ids[2], tags=["edited"])
    await plain("memory.update", id=ids[6], content="another text")
    await plain("memory.delete", id=ids[3])
    again = await _lease(world, after=None)
    same("what is to be had after an edit of two and a delete", _ids(again), [ids[2], ids[6]])
    versions = [await _version(plain, memory) for memory in (ids[2], ids[6])]
    same("at which versions", [one.version for one in again], versions)
    same("with which text", again[1].content, "another text")


def _ids(leased: Sequence[Unembedded]) -> list[str]:
    return [one.memory_id for one in leased]


async def _lease(
    world: World,
    *,
    after: str | None = None,
    limit: int = MANY,
    space: Space = ONE,
    over: Storage | None = None,
) -> Sequence[Unembedded]:
    lease = timedelta(seconds=world.short_lease)
    return await (over or world.storage).lease_unembedded(space.id, after=after, limit=limit, lease=lease)


def _probes(space: Space) -> Vectors:
    return np.eye(2, space.dimensions, dtype=np.float32)


def _hash(memory: str) -> str:
    return digest(f"a passage of {memory}")


async def _version(caller: Caller, memory: str) -> int:
    return (await caller("memory.get", id=memory))["version"]


async def _store(caller: Caller, storage: Storage, space: Space, memory: str, *, complete: bool) -> None:
    """Store a passage of a memory at its present version."""
    version = await _version(caller, memory)
    vector = PassageVector(_hash(memory), np.full(space.dimensions, 0.25, dtype=np.float32))
    passages = Passages(space.id, frozenset({vector.hash}), (vector,), complete=complete)
    same("whether background vectors were stored", await storage.store_passages(memory, version, passages), True)


@RULES(
    "VEC-11",
    "The space that was activated last is the active one, and it is never dropped. Another one is dropped with all its "
    "vectors, and nothing else is; vectors that come for it later are refused. A space keeps the fingerprint that it "
    "was registered with. Progress counts the live memories, and those whose passages in the space are complete.",
)
async def registered_and_dropped(world: World) -> None:
    alice, bob = world.caller("alice"), world.caller("bob")
    contents = await written(world, alice, [200] * 3)
    (of_bob,) = await written(world, bob, [200])
    own = (await world.embedder.space()).id
    storage, second = world.storage, await world.second_storage()
    for space in (ONE, TWO):
        kept = await storage.register_space(space, _probes(space))
        same("the fingerprint of a new space", kept.tolist(), _probes(space).tolist())
    kept = await second.register_space(ONE, 2 * _probes(ONE))
    same("the fingerprint of a space that is registered again", kept.tolist(), _probes(ONE).tolist())
    await _standing(world, {own: True, ONE.id: False, TWO.id: False}, active=own)
    whole, part, deleted = contents
    await _store(alice, storage, ONE, whole, complete=True)
    await _store(alice, storage, ONE, part, complete=False)
    await _store(alice, storage, ONE, deleted, complete=True)
    await _store(bob, storage, TWO, of_bob, complete=True)
    await alice("memory.delete", id=deleted)
    await _progress(world, {own: 3, ONE.id: 1, TWO.id: 1, UNKNOWN: 0}, 3)
    same("whether activating changes which one is active", await storage.activate_space(ONE.id, "suite:ONE"), True)
    await _standing(world, {own: True, ONE.id: True, TWO.id: False}, active=ONE.id)
    async with world.unchanged("the active space was activated, or dropped, and so was an unknown one"):
        same("whether activating it again changes that", await second.activate_space(ONE.id, "suite:again"), False)
        same("whether the active space is dropped", await second.drop_space(ONE.id), False)
        same("whether an unknown space is dropped", await storage.drop_space(UNKNOWN), False)
        await _is_unknown(world)
    same("whether activating the first one changes it", await storage.activate_space(own, "suite:own"), True)
    await _standing(world, {own: True, ONE.id: True, TWO.id: False}, active=own)
    others = [await passages_in(world, space) for space in (own, TWO.id)]
    same("whether a space that was active is dropped", await second.drop_space(ONE.id), True)
    same("its passages", len(await passages_in(world, ONE.id)), 0)
    same("those of the others", [await passages_in(world, space) for space in (own, TWO.id)], others)
    await _standing(world, {own: True, TWO.id: False}, active=own)
    await _progress(world, {own: 3, ONE.id: 0, TWO.id: 1}, 3)
    same("whether it is dropped again", await storage.drop_space(ONE.id), False)
    async with world.unchanged("vectors came for a space that was dropped"):
        for client in (storage, second):
            await _is_refused(_store(alice, client, ONE, whole, complete=True), "vectors of a space that was dropped")
    kept = await storage.register_space(ONE, 2 * _probes(ONE))
    same("the fingerprint of a space that comes back", kept.tolist(), (2 * _probes(ONE)).tolist())
    await _progress(world, {ONE.id: 0}, 3)
    page = await alice("memory.search", query=contents[whole][:100])
    same("what a search says after a space was dropped", page["degraded"], None)


async def _standing(world: World, spaces: Mapping[str, bool], *, active: str) -> None:
    """The registered spaces in their order, by whether they were ever active, and which one was activated last."""
    for storage in (world.storage, await world.second_storage()):
        found = await storage.list_spaces()
        same("the registered spaces", {one.space.id: one.activated_at is not None for one in found}, dict(spaces))
        in_order = sorted(found, key=lambda one: (one.registered_at, one.space.id))
        same("their order", [one.space.id for one in found], [one.space.id for one in in_order])
        last = max((one for one in found if one.activated_at), key=lambda one: one.activated_at or one.registered_at)
        same("the space that was activated last", last.space.id, active)
        for one in found:
            known = {ONE.id: ONE, TWO.id: TWO}.get(one.space.id)
            same("what is kept of a space", one.space, known or await world.embedder.space())
            same("whether its embedder is named", one.embedder is not None, one.activated_at is not None)
        names = [one.embedder for one in found if one.space.id == ONE.id and one.activated_at]
        same("what its embedder was called", names, ["suite:ONE"] * len(names))


async def _progress(world: World, complete: Mapping[str, int], memories: int) -> None:
    for storage in (world.storage, await world.second_storage()):
        for space, number in complete.items():
            same(f"the progress of {space}", await storage.space_progress(space), Progress(number, memories))


async def _is_unknown(world: World) -> None:
    activating = world.storage.activate_space(UNKNOWN, "suite:unknown")
    await _is_refused(activating, "a space that is not registered, activated")


async def _is_refused(doing: Awaitable[object], what: str) -> None:
    try:
        seen = await doing
    except ConfigurationError:
        return
    holds(False, what, expected="a refusal", seen=seen)
