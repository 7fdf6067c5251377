"""An author's target with a universal mutant in the place of what it opens.

Everything is opened, probed, broken and closed by the author's target as ever; only the calls go to the mutant. So what
the suite says of it is what it would say through this target of a plugin that is broken in that way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from muniment.conformance.mutants import UNIVERSAL, Mutant
from muniment.conformance.mutants.provider import ProvidedEmbedder
from muniment.conformance.reference_transport import ReferenceTransport, ReferenceTransportTarget
from muniment.conformance.target import (
    AgentFaultPoint,
    EmbedderTarget,
    FailingEmbedder,
    FaultPoint,
    RemoteClient,
    StorageTarget,
    Stored,
    Subject,
    Target,
    TransportTarget,
)
from muniment.engine import Engine
from muniment.models import Agent, CallContext
from muniment.ports import Embedder, Storage
from muniment.reference import ReferenceData, ReferenceStorage


@dataclass
class StandIn(Subject):
    """The author's subject, and the data of the mutant that stands in for its storage."""

    real: Subject
    data: ReferenceData = field(default_factory=ReferenceData)


class StandInStorage(StorageTarget[StandIn]):
    """``target``, with ``mutant`` in the place of its storage."""

    def __init__(self, target: StorageTarget[Any], mutant: type[ReferenceStorage]) -> None:
        _resemble(self, target)
        self._target = target
        self._mutant = mutant

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[StandIn]:
        """The author's subject, and a mutant with no data."""
        async with self._target.open() as real:
            data = ReferenceData()
            yield StandIn(self._mutant(data), real, data)

    @asynccontextmanager
    async def second(self, subject: StandIn) -> AsyncGenerator[Storage]:
        """The author's second client, and another mutant on the same data."""
        async with self._target.second(subject.real):
            yield self._mutant(subject.data)

    async def probe(self, subject: StandIn) -> Stored:
        """The author's."""
        return await self._target.probe(subject.real)

    def fault(self, subject: StandIn, point: FaultPoint) -> AbstractAsyncContextManager[None]:
        """The author's."""
        return self._target.fault(subject.real, point)

    def fault_agent(self, subject: StandIn, point: AgentFaultPoint, agent: Agent) -> AbstractAsyncContextManager[None]:
        """The author's."""
        return self._target.fault_agent(subject.real, point, agent)

    async def age(self, subject: StandIn, seconds: float) -> None:
        """The author's."""
        await self._target.age(subject.real, seconds)

    async def crash(self, subject: StandIn) -> None:
        """The author's."""
        await self._target.crash(subject.real)

    @asynccontextmanager
    async def reopen(self, subject: StandIn) -> AsyncGenerator[Storage]:
        """The author's, after its storage was closed, and another mutant on the same data."""
        await subject.real.storage.close()
        async with self._target.reopen(subject.real):
            yield self._mutant(subject.data)

    @property
    def can_fault(self) -> bool:
        """The author's."""
        return self._target.can_fault

    @property
    def can_fault_agent(self) -> bool:
        """The author's."""
        return self._target.can_fault_agent

    @property
    def can_age(self) -> bool:
        """The author's."""
        return self._target.can_age

    @property
    def can_crash(self) -> bool:
        """The author's."""
        return self._target.can_crash


class StandInEmbedder(EmbedderTarget):
    """``target``, with ``mutant`` in the place of its embedder."""

    def __init__(self, target: EmbedderTarget, mutant: type[ProvidedEmbedder]) -> None:
        _resemble(self, target)
        self.semantic = target.semantic
        self.remote = target.remote
        self._target = target
        self._mutant = mutant

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Embedder]:
        """The author's embedder, and a mutant."""
        async with self._target.open():
            yield self._mutant()

    def fail(self) -> Sequence[FailingEmbedder]:
        """The author's."""
        return self._target.fail()


class StandInTransport(ReferenceTransportTarget):
    """``target``, with ``mutant`` in the place of its transport."""

    def __init__(self, target: TransportTarget, mutant: type[ReferenceTransport]) -> None:
        super().__init__(mutant)
        _resemble(self, target)
        self.surface = target.surface
        self.policy = target.policy
        self.body_limit = target.body_limit
        self._target = target

    @asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[RemoteClient]:
        """The author's connection, and a mutant's."""
        async with self._target.connect(engine, context), super().connect(engine, context) as client:
            yield client


def stand_ins(target: Target) -> Mapping[Mutant, Target]:
    """The universal mutants of the target's seat, each with the target that it stands in through."""
    found: dict[Mutant, Target] = {}
    for mutant in UNIVERSAL:
        if isinstance(target, StorageTarget) and issubclass(mutant.plugin, ReferenceStorage):
            found[mutant] = StandInStorage(cast("StorageTarget[Any]", target), mutant.plugin)
        if isinstance(target, EmbedderTarget) and issubclass(mutant.plugin, ProvidedEmbedder):
            found[mutant] = StandInEmbedder(target, mutant.plugin)
        if isinstance(target, TransportTarget) and issubclass(mutant.plugin, ReferenceTransport):
            found[mutant] = StandInTransport(target, mutant.plugin)
    return found


def _resemble(stand_in: Target, target: Target) -> None:
    stand_in.name = target.name
    stand_in.distribution = target.distribution
    stand_in.real = target.real
    stand_in.contract = target.contract
    stand_in.capabilities = target.capabilities
