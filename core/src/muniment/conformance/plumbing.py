"""Whether a target itself can be relied on: that what it opens, reads and breaks is what it says.

The suite sees a storage through its target, so one that is empty where it should not be, or reads something else than
what is stored, would let faults pass. These checks are no invariants of a plugin; ``self_test`` runs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from muniment.conformance.agents_estate import instance
from muniment.conformance.invariant import Broken, Invariant, NotExercised, seat_of
from muniment.conformance.target import (
    AgentFaultPoint,
    EmbedderTarget,
    FaultPoint,
    StorageTarget,
    Stored,
    Target,
    TransportTarget,
)
from muniment.conformance.world import LONG_LEASE, World, holds, same
from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.reference import HashEmbedder, ReferenceStorage

TEXT = "The deeds lie in the north tower."

Storages = StorageTarget[Any]


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
    left = {term.memory_id for term in (await world.probe()).terms}
    holds(written["id"] not in left, "the terms probed after a delete", expected="none of its", seen=left)


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
        await _passes("second", target.second(subject))
        await _passes("reopen", target.reopen(subject))
        for point in FaultPoint if target.can_fault else ():
            await _passes(f"fault at {point}", target.fault(subject, point))
        for point in AgentFaultPoint if target.can_fault_agent else ():
            await _passes(f"fault_agent at {point}", target.fault_agent(subject, point, agent))
    await _passes("open", target.open())


async def faults_while_entered(target: Storages, world: World) -> None:
    """Each point of a write; reads work, and afterwards writes."""
    alice = world.caller("alice")
    written = await alice("memory.write", content=TEXT)
    for point in FaultPoint:
        async with world.fault(point):
            await alice.fails("memory.write", content=TEXT, idempotency_key=f"{point}")
            await alice("memory.get", id=written["id"])
        await alice("memory.write", content=TEXT, idempotency_key=f"after {point}")


async def faults_one_agent(target: Storages, world: World) -> None:
    """Its envelope and its events; another agent's go on."""
    one, other = instance(world, "one"), instance(world, "other")
    async with world.fault_agent(AgentFaultPoint.ENVELOPE, one.agent):
        await _fails("a record of the agent", one.record())
        await other.record()
    await one.enqueue()
    await other.enqueue()
    async with world.fault_agent(AgentFaultPoint.EVENT, one.agent):
        await _fails("a claim of the agent", one.claim())
        same("how much another agent claims", len(await other.claim()), 1)
    same("how much is claimed afterwards", len(await one.claim()), 1)


async def ages_leases(target: Storages, world: World) -> None:
    """A lease of an hour and more is over at once."""
    if not target.can_age:
        raise NotExercised("the target cannot age leases; give it an age method")
    one = instance(world, "one")
    await one.enqueue()
    await one.claim(lease=LONG_LEASE)
    same("how much is claimed under a lease", len(await one.claim()), 0)
    await world.lose_leases()
    same("how much is claimed once leases have aged", len(await one.claim()), 1)


async def opens_embedders_apart(target: EmbedderTarget, world: World) -> None:
    """Closing one leaves another; exceptions pass."""
    async with target.open() as first:
        async with target.open():
            pass
        same("how many vectors one gives after another was closed", len(await first.embed_passages([TEXT])), 1)
    await _passes("open", target.open())


async def connects_engines_apart(target: TransportTarget, world: World) -> None:
    """Leaving a connection leaves its engine open; exceptions pass."""
    engine = Engine(ReferenceStorage(), HashEmbedder(), background=False)
    context = CallContext(principal=Principal(user="alice"), surface="conformance")
    await engine.open()
    try:
        async with target.connect(engine, context) as client:
            await client.call("memory.write", {"content": TEXT})
        await _passes("connect", target.connect(engine, context))
        async with target.connect(engine, context) as client:
            same("what another connection lists", len((await client.call("memory.list", {})).answer["items"]), 1)
    finally:
        await engine.close()


Check = Callable[[Any, World], Awaitable[None]]

_STORAGES: tuple[tuple[str, Check], ...] = (
    ("open gives an empty subject that shares nothing with another", opens_apart),
    ("probe sees every part of what is stored, and nothing else", probes_what_is_stored),
    ("probe reads around the plugin", probes_around_the_plugin),
    ("second gives another client on the same data", second_shares_the_data),
    ("reopen gives a client on the same data", reopens_the_data),
    ("exceptions pass through open, second, reopen and the faults", lets_exceptions_pass),
    ("fault makes writes fail at each point, and only while it is entered", faults_while_entered),
    ("fault_agent makes one agent's changes fail, and only while it is entered", faults_one_agent),
    ("age ends leases", ages_leases),
)
_EMBEDDERS: tuple[tuple[str, Check], ...] = (
    ("open gives an embedder of its own, and lets exceptions pass", opens_embedders_apart),
)
_TRANSPORTS: tuple[tuple[str, Check], ...] = (
    ("connect ends its own connection alone, and lets exceptions pass", connects_engines_apart),
)


def plumbing(target: Target) -> tuple[Invariant, ...]:
    """The checks of a target, as the runner takes them."""
    match target:
        case EmbedderTarget():
            checks = _EMBEDDERS
        case TransportTarget():
            checks = _TRANSPORTS
        case _:
            checks = _STORAGES
    return tuple(
        Invariant(
            id=f"TARGET-{number:02}",
            statement=statement,
            check=partial(check, target),
            seats=frozenset({seat_of(target)}),
        )
        for number, (statement, check) in enumerate(checks, 1)
    )


def _counts(stored: Stored) -> tuple[int, int, int, int]:
    return len(stored.passages), len(stored.terms), len(stored.audit), stored.receipts


async def _passes(name: str, context: AbstractAsyncContextManager[Any]) -> None:
    try:
        async with context:
            raise _Raised
    except _Raised:
        return
    raise Broken(f"an exception raised inside {name}", expected="the same outside", seen="nothing; it was swallowed")


async def _fails(what: str, under_way: Awaitable[object]) -> None:
    try:
        seen = await under_way
    except Exception:
        return
    raise Broken(f"{what} during a fault", expected="a failure", seen=seen)
