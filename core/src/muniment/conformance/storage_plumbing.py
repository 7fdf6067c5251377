"""Whether a storage's target can be relied on: what it opens, reads, breaks and kills.

Each check is given the target and a world over a subject of its own. Those of the other seats are in ``plumbing``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from muniment.conformance.agents_estate import Instance, instance
from muniment.conformance.invariant import Broken
from muniment.conformance.seams import Gate
from muniment.conformance.target import AgentFaultPoint, FaultPoint, StorageTarget, Stored
from muniment.conformance.world import LONG_LEASE, World, holds, same
from muniment.engine import Engine, spaces
from muniment.models import CallContext, Principal, ProjectPolicy
from muniment.ports import Storage
from muniment.reference import HashEmbedder

_LEASES_MEMORIES = "1.2"
"""The contract since which a storage leases memories that are to be embedded."""
TEXT = "The deeds lie in the north tower."
WRITERS = 4
WRITES = 50
"""What each writer tries after a crash before it has survived it."""

Storages = StorageTarget[Any]
Check = Callable[[Any, World], Awaitable[None]]


class _Raised(Exception):
    """What is raised inside a context of the target's, to see whether it comes out."""


class _Watched:
    """A storage that notes what is asked of it."""

    def __init__(self, storage: object) -> None:
        self.inner = storage
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self.inner, name)


async def opens_apart(target: Storages, world: World) -> None:
    """Empty at first, and apart from another one that is open."""
    same("what a fresh subject holds", _counts(await world.probe()), (0, 0, 0, 0))
    async with target.open() as other:
        await world.caller("alice")("memory.write", content=TEXT, idempotency_key="key")
        same("what another subject then holds", _counts(await target.probe(other)), (0, 0, 0, 0))


async def probes_what_is_stored(target: Storages, world: World) -> None:
    """All parts of a write, the same twice, and no more once it is deleted."""
    alice = world.caller("alice")
    before = await world.probe()
    written = await alice("memory.write", content=TEXT, idempotency_key="key")
    after = await world.probe()
    for part in ("passages", "terms", "audit"):
        ids = {one.memory_id for one in getattr(after, part)}
        holds(written["id"] in ids, f"the {part} that are probed", expected=f"those of {written['id']}", seen=ids)
    same("the receipts that are probed", after.receipts, before.receipts + 1)
    holds(after.rows != before.rows, "the rows that are probed", expected="changed by a write", seen="as before")
    holds(await world.probe() == after, "a probe with nothing done in between", expected="the same", seen="another")
    await alice("memory.delete", id=written["id"])
    deleted = await world.probe()
    for part in ("passages", "terms"):
        ids = {one.memory_id for one in getattr(deleted, part)}
        holds(written["id"] not in ids, f"the {part} probed after a delete", expected="none of its", seen=ids)
    holds(deleted.rows != after.rows, "the rows that are probed", expected="changed by a delete", seen="as before")


async def probes_agent_memory(target: Storages, world: World) -> None:
    """The envelope, its exchanges and their keys, and the events, after each thing that changes them."""
    ada = instance(world, "ada")
    same("the envelope of an agent of which nothing is stored", await ada.stored_envelope(), None)
    before = await world.probe()
    entry = await ada.record("task", "key")
    stored = await world.stored_agents()
    same(
        "the exchanges", [(one.revision, one.takeaway) for one in _of(ada, stored.exchanges)], [(1, entry["takeaway"])]
    )
    same("the dedupe keys", [(one.key, one.revision) for one in _of(ada, stored.dedupe_keys)], [("key", 1)])
    same("revision and last seen", await _numbers(ada), (1, 0))
    event = await ada.enqueue()
    same("the event", await _event(ada, event), (False, 0, None, None))
    (delivery,) = await ada.claim()
    same("the event once it is delivered", await _event(ada, event), (False, 1, delivery["token"], 1))
    await ada.ack(delivery)
    same("whether the event is acknowledged", (await _event(ada, event))[0], True)
    same("revision and last seen after an acknowledgement", await _numbers(ada), (1, 1))
    await ada.own("section.sync", mode="patch", runtime="r", sections={"soul": {"value": "kind"}})
    synced = await ada.stored_envelope()
    holds(bool(synced and synced.sync_key), "the sync key after a sync", expected="one", seen="none")
    await ada.own("section.save", section="soul", value="kinder")
    saved = await ada.stored_envelope()
    holds(bool(saved and saved.sync_key is None), "the sync key after a save", expected="none", seen=saved)
    same("the version of a section that was written twice", saved and saved.versions.get("soul"), 2)
    holds((await world.probe()).rows != before.rows, "the rows that are probed", expected="changed", seen="as before")


async def probes_around_the_plugin(target: Storages, world: World) -> None:
    """Nothing is asked of the storage itself."""
    async with target.open() as subject:
        watched = _Watched(subject.storage)
        subject.storage = watched
        try:
            await target.probe(subject)
        finally:
            subject.storage = watched.inner
    same("what a probe asked of the plugin", watched.asked, [])


async def second_shares_the_data(target: Storages, world: World) -> None:
    """Another client; what either writes the other reads."""
    async with target.open() as subject, target.second(subject) as other:
        holds(other is not subject.storage, "the second client", expected="another one", seen="the first")
    first = world.caller("alice")
    second = await world.second(first)
    for writer, reader in ((first, second), (second, first)):
        written = await writer("memory.write", content=TEXT)
        same("what the other client reads", (await reader("memory.get", id=written["id"]))["content"], TEXT)


async def reopens_the_data(target: Storages, world: World) -> None:
    """What was written before the client was closed is read afterwards."""
    alice = world.caller("alice")
    written = await alice("memory.write", content=TEXT)
    again = await world.reopen(alice)
    same("what is read after a reopening", (await again("memory.get", id=written["id"]))["content"], TEXT)


async def lets_exceptions_pass(target: Storages, world: World) -> None:
    """From every context that it gives."""
    agent = instance(world, "deed").agent
    async with target.open() as subject:
        await passes("second", target.second(subject))
        await passes("reopen", target.reopen(subject))
        for point in FaultPoint if target.can_fault else ():
            await passes(f"fault at {point}", target.fault(subject, point))
        for point in AgentFaultPoint if target.can_fault_agent else ():
            await passes(f"fault_agent at {point}", target.fault_agent(subject, point, agent))
    await passes("open", target.open())


async def faults_while_entered(target: Storages, world: World) -> None:
    """Each point of a write that registers its project; reads work, and afterwards writes."""
    alice = world.caller("alice", policy=ProjectPolicy.CREATE_MISSING)
    written = await alice("memory.write", content=TEXT)
    for point in FaultPoint:
        write = {"content": TEXT, "project": f"acme/{point}", "idempotency_key": f"{point}"}
        async with world.fault(point):
            await alice.fails("memory.write", **write)
            await alice("memory.get", id=written["id"])
        await alice("memory.write", **write)


async def faults_one_agent(target: Storages, world: World) -> None:
    """Its envelope, by every change of it, and its events; another agent's go on, and afterwards its own."""
    one, other = instance(world, "one"), instance(world, "other")
    await one.record()
    delivery = await one.delivered()
    async with world.fault_agent(AgentFaultPoint.ENVELOPE, one.agent):
        await one.own.fails("section.save", section="soul", value="kind")
        await one.own.fails("event.ack", id=delivery["id"], token=delivery["token"])
        await _fails("a record of the agent", one.record("another"))
        await other.record()
        await other.own("section.save", section="soul", value="kind")
        await one.numbers()
    await one.record("afterwards")
    await one.own("section.save", section="soul", value="kind")
    same("the acknowledgement afterwards", await one.ack(delivery), "acknowledged")
    await one.enqueue()
    await other.enqueue()
    async with world.fault_agent(AgentFaultPoint.EVENT, one.agent):
        await _fails("a claim of the agent", one.claim())
        same("how much another agent claims", len(await other.claim()), 1)
    same("how much is claimed afterwards", len(await one.claim()), 1)


async def reads_the_layout(target: Storages, world: World) -> None:
    """There is something, which what is written does not change."""
    before = await world.layout()
    holds(bool(before), "the layout of an empty subject", expected="tables and columns", seen="nothing")
    await world.caller("alice")("memory.write", content=TEXT)
    same("the layout once a memory was written", await world.layout(), before)


async def ages_leases(target: Storages, world: World) -> None:
    """A lease of an hour and more is over at once."""
    one = instance(world, "one")
    await one.enqueue()
    await one.claim(lease=LONG_LEASE)
    same("how much is claimed under a lease", len(await one.claim()), 0)
    await world.lose_leases()
    same("how much is claimed once leases have aged", len(await one.claim()), 1)
    if target.is_of(_LEASES_MEMORIES):
        await _ages_leases_of_memories(world)


async def _ages_leases_of_memories(world: World) -> None:
    plain = await world.without_embedder(world.caller("alice"))
    await plain("memory.write", content=TEXT)
    space = await spaces.register(world.storage, world.embedder)

    async def leased() -> int:
        lease = timedelta(seconds=LONG_LEASE)
        return len(await world.storage.lease_unembedded(space.id, after=None, limit=2, lease=lease))

    same("how many memories are leased at first, and under a lease", [await leased(), await leased()], [1, 0])
    await world.lose_leases()
    same("how many memories are leased once leases have aged", await leased(), 1)


async def crashes(target: Storages, world: World) -> None:
    """A writer under way fails; what was written before is there once the client is opened again."""
    crashed = asyncio.Event()
    async with target.open() as subject:
        async with _over(subject.storage) as engine:
            first = await _write(engine)

            async def write() -> bool:
                """Whether a write failed, of those under way at the crash and some after it."""
                survived = 0
                while survived < WRITES:
                    try:
                        await _write(engine)
                    except Exception:
                        return True
                    survived += crashed.is_set()
                return False

            writers = [asyncio.ensure_future(write()) for _ in range(WRITERS)]
            await asyncio.sleep(0)
            await target.crash(subject)
            crashed.set()
            failed = await asyncio.gather(*writers)
        holds(any(failed), "what was under way at a crash, or came next", expected="a failure", seen="none")
        with suppress(Exception):
            await subject.storage.close()
        async with target.reopen(subject) as storage, _over(storage) as engine:
            same("what is read after a crash", await _read(engine, first), TEXT)


STORAGES: tuple[tuple[str, Check], ...] = (
    ("open gives an empty subject that shares nothing with another", opens_apart),
    ("probe sees every part of what is stored, and nothing else", probes_what_is_stored),
    ("probe sees every part of agent memory", probes_agent_memory),
    ("probe reads around the plugin", probes_around_the_plugin),
    ("second gives another client on the same data", second_shares_the_data),
    ("reopen gives a client on the same data", reopens_the_data),
    ("exceptions pass through open, second, reopen and the faults", lets_exceptions_pass),
    ("fault makes writes fail at each point, and only while it is entered", faults_while_entered),
    ("fault_agent makes one agent's changes fail, and only while it is entered", faults_one_agent),
)
LAYOUT: tuple[str, Check] = ("layout tells what there is, whatever is written", reads_the_layout)
AGES: tuple[str, Check] = ("age ends leases", ages_leases)
CRASHES: tuple[str, Check] = ("crash kills what is under way, and reopen recovers from it", crashes)


async def passes(name: str, context: AbstractAsyncContextManager[Any]) -> None:
    """Broken where an exception that is raised inside a context does not come out of it."""
    try:
        async with context:
            raise _Raised
    except _Raised:
        return
    raise Broken(f"an exception raised inside {name}", expected="the same outside", seen="nothing; it was swallowed")


def _counts(stored: Stored) -> tuple[int, int, int, int]:
    return len(stored.passages), len(stored.terms), len(stored.audit), stored.receipts


def _of(agent: Instance, stored: Any) -> list[Any]:
    return [one for one in stored if one.agent == agent.agent]


async def _numbers(agent: Instance) -> tuple[int, int] | None:
    envelope = await agent.stored_envelope()
    return envelope and (envelope.revision, envelope.last_seen_revision)


async def _event(agent: Instance, event: str) -> tuple[bool, int, str | None, int | None]:
    (stored,) = [one for one in (await agent.world.stored_agents()).events if one.id == event]
    return stored.acked, stored.attempts, stored.token, stored.delivered


async def _fails(what: str, under_way: Awaitable[object]) -> None:
    try:
        seen = await under_way
    except Exception:
        return
    raise Broken(f"{what} during a fault", expected="a failure", seen=seen)


@asynccontextmanager
async def _over(storage: Storage) -> AsyncGenerator[Engine]:
    """An engine over an open storage, which stays open."""
    engine = Engine(Gate(storage).as_storage(), HashEmbedder(), background=False)
    async with engine:
        yield engine


_ALICE = CallContext(principal=Principal(user="alice"), surface="conformance")


async def _write(engine: Engine) -> str:
    receipt = await engine.call("memory.write", {"content": TEXT}, _ALICE)
    return str(receipt.model_dump()["id"])


async def _read(engine: Engine, memory: str) -> str:
    return str((await engine.call("memory.get", {"id": memory}, _ALICE)).model_dump()["content"])
