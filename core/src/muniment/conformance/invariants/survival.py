"""MUT-16: what was acknowledged is there after a restart, and after the backend was killed.

It is asked of something of every kind that a storage keeps, since each may be kept somewhere else.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from muniment.conformance.agents_estate import Instance, instance
from muniment.conformance.estate import Estate, estate
from muniment.conformance.loading import new_id
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import Stored
from muniment.conformance.world import Answer, Caller, World, difference, holds, same
from muniment.ports import NewToken, Space

RULES = Rules(STORAGE_AND_TRANSPORT)
KEYED: Mapping[str, str] = {"content": "sent once, and again", "idempotency_key": "kept"}
TASK = ("kept", "kept")
"""Title and dedupe key."""
WRITERS = 4
ENOUGH = 20
"""Acknowledged writes, after which the backend is killed."""


@dataclass(frozen=True)
class Kept:
    """Something of every kind, and the callers that are asked for it.

    ``written`` is the receipt of the keyed write, ``revoked`` the hash of a token, None where the contract has none.
    """

    world: World
    place: Estate
    ada: Instance
    written: Answer
    revoked: str | None

    def at(self, caller: Caller) -> Kept:
        """The same through a caller's client."""
        own, platform, owner = (one.at(caller.client) for one in (self.ada.own, self.ada.platform, self.place.owner))
        ada = replace(self.ada, own=own, platform=platform)
        return replace(self, ada=ada, place=replace(self.place, owner=owner))

    async def told(self) -> list[tuple[str, Any]]:
        """What is read of it; the registry of spaces first, as a search may write to it."""
        world, owner, told = self.world, self.place.owner, list[tuple[str, Any]]()
        if world.is_of("1.2"):
            told.append(("the spaces", list(await world.storage.list_spaces())))
        if self.revoked is not None:
            told.append(("the revoked token", await world.storage.find_token(self.revoked)))
        told.append(("the agent's pods", (await world.storage.load_envelope(self.ada.agent)).pods))
        told.append(("the agent's section", await self.ada.own("section.read", sections=["soul"])))
        reads: list[tuple[str, dict[str, Any]]] = [
            ("memory.get", {"id": self.place.live}),
            ("memory.list", {"deleted": True}),
            ("memory.history", {"id": self.place.gone}),
            ("project.list", {}),
        ]
        return told + [(f"the answer of {read}", await owner(read, **payload)) for read, payload in reads]

    async def check_told(self, when: str, expected: list[tuple[str, Any]]) -> None:
        """Broken unless the same is read as before."""
        for (what, seen), (_, before) in zip(await self.told(), expected, strict=True):
            same(f"{what} {when}", seen, before)

    async def check_repeated(self, when: str) -> None:
        """Broken unless requests that were answered before are known to be the same again."""
        async with self.world.unchanged(f"requests that are repeated {when}"):
            same(f"the receipt of a keyed write {when}", await self.place.owner("memory.write", **KEYED), self.written)
            same(f"whether an exchange is deduped {when}", (await self.ada.record_task(*TASK))["deduped"], True)


@RULES(
    "MUT-16",
    "What an acknowledged mutation wrote is there after closing and reopening the storage, and after its server was "
    "killed.",
)
async def survives(world: World) -> None:
    kept = await _filled(world)
    live = kept.place.live
    found, expected = await _search(kept), await kept.told()
    before = await world.probe()
    kept = kept.at(await world.reopen(kept.place.owner))
    await kept.check_told("after reopening", expected)
    same("what a search finds after reopening", await _search(kept), found)
    after = await world.probe()
    holds(after.rows == before.rows, "the rows after reopening", expected="as before", seen=difference(before, after))
    await kept.check_repeated("after reopening")
    receipt = await kept.place.owner("memory.update", id=live, tags=["after"])
    same("the version of an edit after reopening", receipt["version"], 2)
    if world.can_crash:
        await _killed_while_writing(kept)
    else:
        world.notes.append("closed and reopened only, as the target has no crash")


async def _filled(world: World) -> Kept:
    """A shared project with memories, a used key, an agent with a queue, a revoked token and a space."""
    if world.is_of("1.2"):
        await _register(world)
    place, ada = await estate(world), instance(world, "ada")
    written = await place.owner("memory.write", **KEYED)
    await ada.platform("agent.register", agent=ada.ref, pods=["den"])
    await ada.own("section.sync", mode="patch", runtime="r", sections={"soul": {"value": "kind"}})
    await ada.record(*TASK)
    await ada.ack(await ada.delivered(content="acknowledged"))
    await ada.delivered(content="out")
    await ada.enqueue(content="waits")
    return Kept(world, place, ada, written, await _revoked(world) if world.is_of("1.1") else None)


async def _register(world: World) -> None:
    """A space of the embedder's dimensions, which is never active."""
    dimensions = (await world.embedder.space()).dimensions
    space = Space("suite:kept", "suite", "kept", dimensions, "mean", normalised=True, passage_tokens=64)
    await world.storage.register_space(space, np.eye(2, dimensions, dtype=np.float32))


async def _revoked(world: World) -> str:
    """The hash of a token that was revoked."""
    id_ = new_id(world.random)
    digest = hashlib.sha256(id_.encode()).hexdigest()
    await world.storage.add_token(NewToken(id_, digest, "alice", frozenset({"writers"}), ("read",), None))
    await world.storage.revoke_token(id_)
    return digest


async def _search(kept: Kept) -> Answer:
    return await kept.place.owner("memory.search", query="north tower")


async def _killed_while_writing(kept: Kept) -> None:
    """Several writers are under way when the server dies; what any of them was told stays, and all from before."""
    world = kept.world
    writer = world.caller("wendy")
    expected, before = await kept.told(), await world.probe()
    acknowledged: list[tuple[Answer, dict[str, str]]] = []
    enough = asyncio.Event()

    async def write(number: int) -> None:
        for entry in range(10_000):
            text = f"writer {number}, entry {entry}"
            payload = {"content": text, "idempotency_key": text}
            acknowledged.append((await writer("memory.write", **payload), payload))
            if len(acknowledged) >= ENOUGH:
                enough.set()

    writers = [asyncio.ensure_future(write(number)) for number in range(WRITERS)]
    started = asyncio.ensure_future(enough.wait())
    await asyncio.wait([started, *writers], return_when=asyncio.FIRST_COMPLETED)
    again = await world.reopen(writer, crash=True)
    for task in (started, *writers):
        task.cancel()
    await asyncio.gather(started, *writers, return_exceptions=True)
    same("whether any write was acknowledged before the server was killed", len(acknowledged) >= ENOUGH, True)
    after = await world.probe()
    _all_is_there(before, after)
    entries = {(entry.action, entry.memory_id) for entry in after.audit}
    for receipt, payload in acknowledged:
        memory = receipt["id"]
        content = (await again("memory.get", id=memory))["content"]
        same(f"the acknowledged content of {memory}", content, payload["content"])
        same(f"whether {memory} has its audit entry", ("memory.write", memory) in entries, True)
        same(f"the receipt of {memory}, repeated", await again("memory.write", **payload), receipt)
    kept = kept.at(again)
    await kept.check_told("after the crash", expected)
    await kept.check_repeated("after the crash")
    receipt = await again("memory.write", content="after the crash")
    same("the version of a write after the crash", receipt["version"], 1)


def _all_is_there(before: Stored, after: Stored) -> None:
    """Broken where something that nobody touched is gone; what the writers added is beside it."""
    for part in ("passages", "terms", "audit"):
        gone = set(getattr(before, part)) - set(getattr(after, part))
        same(f"how many of the {part} from before the crash are gone", len(gone), 0)
    same("agent memory after the crash", after.agents, before.agents)
    holds(
        after.receipts >= before.receipts,
        "how many receipts there are after the crash",
        expected=f"at least {before.receipts}",
        seen=after.receipts,
    )
