"""What a check works with: callers who call operations by name, raw reads, races, and expectations.

A check speaks in operations with JSON-like payloads and reads JSON-like answers, so the same check runs
wherever the plugin sits. Everything that it does is on the trail. How a subject is made is ``bench``'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from muniment.conformance.connections import TransportClient
from muniment.conformance.invariant import Broken, NotExercised
from muniment.conformance.seams import Barrier, CountingEmbedder, Gate, Latch, barrier
from muniment.conformance.target import (
    AgentFaultPoint,
    EmbedderTarget,
    FaultPoint,
    Refused,
    Stored,
    StoredAgents,
    TransportTarget,
)
from muniment.conformance.trail import Trail, answered, apart, brief
from muniment.models import Agent, CallContext, Principal, ProjectPolicy
from muniment.operations import Operation
from muniment.ports import Embedder, Storage

LONG_LEASE = 600
"""Seconds; longer than any check takes."""
SHORT_LEASE = 1
"""Seconds; the least that there is."""

Answer = dict[str, Any]
"""An operation's output as JSON-like data."""


class _Fields(dict[str, Any]):
    """The fields of an answer; Broken where a check reads one that is not there."""

    def __init__(self, operation: str, fields: Answer) -> None:
        super().__init__(fields)
        self._operation = operation

    def __missing__(self, name: str) -> Any:
        raise Broken(f"the answer of {self._operation}", expected=f"a field {name}", seen=sorted(self) or "no field")


class Client(Protocol):
    """One way to the subject: an engine, or a transport's client."""

    async def call(self, operation: str, payload: Mapping[str, Any], context: CallContext) -> Answer:
        """Run an operation. Raises Refused; anything else is the plugin's error."""
        ...


@dataclass(frozen=True)
class Caller:
    """A principal at one client. Calling it runs an operation: ``await alice("memory.get", id=...)``."""

    client: Client
    context: CallContext
    trail: Trail

    @property
    def user(self) -> str:
        """Who calls."""
        return self.context.principal.user

    async def __call__(self, operation: str, /, **payload: Any) -> Answer:
        """The answer of an operation. Raises Refused."""
        came_back = self.trail.calling(self.user, operation, payload)
        try:
            answer = await self.client.call(operation, payload, self.context)
        except Refused as refusal:
            came_back(f"refused, {refusal.code}")
            raise
        except Exception as error:
            came_back(f"raised {type(error).__name__}")
            raise
        came_back(answered(answer))
        return _Fields(operation, answer)

    async def refused(self, codes: str | Sequence[str], operation: str, /, **payload: Any) -> Refused:
        """The refusal of an operation that must be refused with one of ``codes``; Broken where it was not."""
        wanted = (codes,) if isinstance(codes, str) else tuple(codes)
        try:
            answer = await self(operation, **payload)
        except Refused as refusal:
            if refusal.code not in wanted:
                raise Broken(
                    f"{operation} by {self.user}", expected=f"refusal {' or '.join(wanted)}", seen=refusal
                ) from None
            return refusal
        raise Broken(f"{operation} by {self.user}", expected=f"refusal {' or '.join(wanted)}", seen=brief(answer))

    async def attempt(self, operation: str, /, **payload: Any) -> Answer | Refused:
        """The answer, or the refusal as a value: for races, where either may come."""
        try:
            return await self(operation, **payload)
        except Refused as refusal:
            return refusal

    async def fails(self, operation: str, /, **payload: Any) -> None:
        """Run an operation that must fail, in whatever way; Broken where it did not."""
        try:
            answer = await self(operation, **payload)
        except Exception:
            return
        raise Broken(f"{operation} by {self.user} during a fault", expected="a failure", seen=brief(answer))

    def at(self, client: Client) -> Caller:
        """The same principal at another client."""
        return replace(self, client=client)

    def with_context(self, **changes: Any) -> Caller:
        """The same caller with fields of its context changed."""
        return replace(self, context=self.context.model_copy(update=changes))


@dataclass(frozen=True)
class Doors:
    """The ways into one subject that a world uses, supplied by its bench.

    ``connect`` gives another client on the same data, with its gate. ``beside`` gives an engine of its own over
    another storage, or over the subject's where that is None, with or without the embedder. ``reopen`` closes every
    client (with ``crash``, by killing the backend) and gives a new one. ``transport`` is what is judged in its seat;
    every client is then one of it. ``with_embedder`` gives an engine over the subject's storage with another embedder,
    which waits for it a moment only unless it is to be patient. ``is_of`` tells whether the plugin's contract is a
    version or a later one.
    """

    first: tuple[Client, Gate]
    connect: Callable[[], Awaitable[tuple[Client, Gate]]]
    beside: Callable[[Storage | None, bool], Awaitable[Client]]
    probe: Callable[[], Awaitable[Stored]]
    fault: Callable[[FaultPoint], AbstractAsyncContextManager[None]] | None
    fault_agent: Callable[[AgentFaultPoint, Agent], AbstractAsyncContextManager[None]] | None
    age: Callable[[float], Awaitable[None]] | None
    reopen: Callable[[bool], Awaitable[tuple[Client, Gate]]]
    can_crash: bool
    transport: TransportTarget | None
    with_embedder: Callable[[Embedder, bool], Awaitable[Client]]
    layout: Callable[[], Awaitable[frozenset[str]]] | None
    is_of: Callable[[str], bool]


class World:
    """One check's subject, and everything that a check may do with it.

    ``random`` is seeded by the run and the invariant's id. ``embedder`` counts what the engine embeds.
    ``target`` is the embedder's target where an embedder is judged. ``notes`` are what a check that passes
    still has to say.
    """

    def __init__(
        self, doors: Doors, embedder: CountingEmbedder, random: Random, target: EmbedderTarget | None = None
    ) -> None:
        self.random = random
        self.embedder = embedder
        self.trail = Trail()
        self.notes: list[str] = []
        self._doors = doors
        self._first = doors.first
        self._target = target
        self._second: tuple[Client, Gate] | None = None

    @property
    def embedder_target(self) -> EmbedderTarget:
        """The target of the embedder that is judged. Raises NotExercised in another seat."""
        if self._target is None:
            raise NotExercised("no embedder is judged here")
        return self._target

    @property
    def transport(self) -> TransportClient:
        """The first client of the transport that is judged. Raises NotExercised in another seat."""
        client = self._first[0]
        if not isinstance(client, TransportClient):
            raise NotExercised("no transport is judged here")
        return client

    @property
    def can_crash(self) -> bool:
        """Whether the backend can be killed."""
        return self._doors.can_crash

    def has(self, operation: Operation) -> bool:
        """Whether the plugin that is judged is of a contract that has the operation."""
        return self.is_of(operation.since)

    def is_of(self, since: str) -> bool:
        """Whether the plugin that is judged is of this contract, or a later one."""
        return self._doors.is_of(since)

    def caller(
        self,
        user: str,
        *groups: str,
        agent: Agent | None = None,
        platform: bool = False,
        surface: str = "conformance",
        policy: ProjectPolicy = ProjectPolicy.REQUIRE_EXISTING,
        default_project: str | None = None,
    ) -> Caller:
        """A principal at the first client. A transport has a surface, and may have a policy, of its own."""
        own = self._doors.transport
        context = CallContext(
            principal=Principal(user=user, groups=frozenset(groups), agent=agent, platform=platform),
            surface=(own and own.surface) or surface,
            project_policy=(own and own.policy) or policy,
            default_project=default_project,
        )
        return Caller(self._first[0], context, self.trail)

    async def second(self, caller: Caller) -> Caller:
        """The same principal at a second client on the same data."""
        return caller.at((await self._second_door())[0])

    @property
    def storage(self) -> Storage:
        """The subject's storage itself: for rows that no operation makes, or too many of them, and for healing."""
        return self._first[1].as_storage()

    async def second_storage(self) -> Storage:
        """The storage of the second client."""
        return (await self._second_door())[1].as_storage()

    async def without_embedder(self, caller: Caller) -> Caller:
        """The same principal at an engine over the same data that has no embedder."""
        return caller.at(await self._doors.beside(None, False))

    async def over(self, storage: Storage, caller: Caller) -> Caller:
        """The same principal at an engine with the same embedder over another storage."""
        return caller.at(await self._doors.beside(storage, True))

    async def with_embedder(self, embedder: Embedder, caller: Caller, *, patient: bool = False) -> Caller:
        """The same principal at an engine over the subject's storage with ``embedder``, which it waits for a moment
        only unless it is to be ``patient``."""
        return caller.at(await self._doors.with_embedder(embedder, patient))

    async def probe(self) -> Stored:
        """What is stored, read around the plugin."""
        return await self._doors.probe()

    async def layout(self) -> frozenset[str]:
        """The tables, columns and constraints. Raises NotExercised where the target does not read them."""
        if self._doors.layout is None:
            raise NotExercised("the target reads no layout; give it a layout method")
        return await self._doors.layout()

    @asynccontextmanager
    async def unchanged(self, what: str) -> AsyncGenerator[None]:
        """Broken if anything stored differs after the block."""
        before = await self.probe()
        yield
        after = await self.probe()
        if before != after:
            raise Broken(f"what is stored after {what}", expected="as before", seen=difference(before, after))

    @asynccontextmanager
    async def race(self, parties: int, *methods: str) -> AsyncGenerator[Barrier]:
        """While entered, the first ``parties`` calls that reach one of the storage's ``methods`` go on together.

        Without one it is ``apply``.
        """
        second = (await self._second_door())[1]
        raced = methods or ("apply",)
        shown = " or ".join(raced)
        self.trail.add(f"from here on {parties} callers are held before Storage.{shown} until all are there")
        async with barrier((self._first[1], second), raced, parties) as held:
            yield held

    async def overtaken(
        self, method: str, slow: Callable[[], Awaitable[Any]], quick: Callable[[], Awaitable[Any]]
    ) -> tuple[Any, Any]:
        """Run ``slow``, held after its first answer from ``method`` until ``quick`` is through; both results.

        ``slow`` must go through the first client and ``quick`` through the second.
        """
        gate = self._first[1]
        latch = gate.latch = Latch(method)
        self.trail.add(f"the next call is held after Storage.{method} until another has overtaken it")
        running = asyncio.ensure_future(slow())
        waiting = asyncio.ensure_future(latch.reached.wait())
        try:
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not latch.reached.is_set():
                raise NotExercised(f"the call that was to be overtaken never reached Storage.{method}")
            overtook = await quick()
            latch.released.set()
            return await running, overtook
        finally:
            gate.latch = None
            latch.released.set()
            waiting.cancel()
            if not running.done():
                running.cancel()

    def fault(self, point: FaultPoint) -> AbstractAsyncContextManager[None]:
        """While entered, writes fail at ``point``. Raises NotExercised where the target injects no faults."""
        if self._doors.fault is None:
            raise NotExercised("the target injects no faults; give it a fault method")
        self.trail.add(f"from here on, storing {point} fails")
        return self._doors.fault(point)

    def fault_agent(self, point: AgentFaultPoint, agent: Agent) -> AbstractAsyncContextManager[None]:
        """While entered, changes of ``agent``'s rows fail. Raises NotExercised where the target injects no faults."""
        if self._doors.fault_agent is None:
            raise NotExercised("the target injects no faults into an agent's rows; give it a fault_agent method")
        self.trail.add(f"from here on, storing an {point} of {agent.name}/{agent.instance} fails")
        return self._doors.fault_agent(point, agent)

    @property
    def short_lease(self) -> int:
        """Seconds; the lease for a delivery that is to be lost with ``lose_leases``."""
        return LONG_LEASE if self.can_age else SHORT_LEASE

    @property
    def can_age(self) -> bool:
        """Whether leases can be made to run out without waiting."""
        return self._doors.age is not None

    async def lose_leases(self) -> None:
        """Let every lease of ``short_lease`` seconds run out."""
        self.trail.add("every lease runs out")
        if self._doors.age is None:
            await asyncio.sleep(SHORT_LEASE + 0.1)
        else:
            await self._doors.age(2 * LONG_LEASE)

    async def stored_agents(self) -> StoredAgents:
        """What is stored of agent memory. Raises NotExercised where the target's probe does not read it."""
        agents = (await self.probe()).agents
        if agents is None:
            raise NotExercised("the target's probe reads no agent memory; give its Stored the agents")
        return agents

    async def reopen(self, caller: Caller, *, crash: bool = False) -> Caller:
        """The same principal after every client was closed, or the backend killed, and opened again.

        Callers made from then on use the new client; those made before have none any more.
        """
        self.trail.add("the backend is killed and opened again" if crash else "the storage is closed and opened")
        self._first, self._second = await self._doors.reopen(crash), None
        return caller.at(self._first[0])

    async def _second_door(self) -> tuple[Client, Gate]:
        if self._second is None:
            self._second = await self._doors.connect()
        return self._second


def same(what: str, seen: object, expected: object) -> None:
    """Broken unless equal."""
    if seen != expected:
        shown, wanted = apart(seen, expected)
        raise Broken(what, expected=wanted, seen=shown)


def holds(condition: bool, what: str, *, expected: object, seen: object) -> None:
    """Broken unless ``condition``."""
    if not condition:
        raise Broken(what, expected=expected, seen=seen)


def difference(before: Stored, after: Stored) -> str:
    """Where two stored states differ, in words."""
    found: list[str] = []
    for table in sorted({*before.rows, *after.rows}):
        old, new = set(before.rows.get(table, ())), set(after.rows.get(table, ()))
        if old != new:
            found.append(f"{table}: {len(old - new)} rows gone or changed, {len(new - old)} rows new")
    for part in ("passages", "terms", "audit", "receipts", "agents"):
        if getattr(before, part) != getattr(after, part):
            found.append(f"{part} differ")
    return "; ".join(found) or "a difference"
