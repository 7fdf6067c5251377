"""An author's target with the fault of a universal mutant behind it.

Everything is opened, probed, broken and closed by the author's target as ever. A storage mutant answers in the place of
the author's storage, whose backend stays empty; an embedder mutant asks the author's embedder and breaks what it gives;
a transport mutant breaks the engine behind the author's connection. So what the suite says is what it would say through
this target of a plugin that is broken in that way, and what a target invents is seen.
"""

from __future__ import annotations

import types
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from muniment.conformance.mutants import UNIVERSAL, Mutant
from muniment.conformance.mutants.provider import ProvidedEmbedder
from muniment.conformance.reference_transport import ReferenceTransport
from muniment.conformance.target import (
    AgentFaultPoint,
    EmbedderTarget,
    FailingEmbedder,
    FaultPoint,
    RemoteClient,
    Reply,
    Server,
    StorageTarget,
    Stored,
    Subject,
    Target,
    TransportTarget,
)
from muniment.engine import Engine
from muniment.models import Agent, CallContext
from muniment.ports import Callers, Embedder, Space, Storage, Vector, Vectors
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

    async def layout(self, subject: StandIn) -> frozenset[str]:
        """The author's."""
        return await self._target.layout(subject.real)

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
    def can_layout(self) -> bool:
        """The author's."""
        return self._target.can_layout

    @property
    def can_age(self) -> bool:
        """The author's."""
        return self._target.can_age

    @property
    def can_crash(self) -> bool:
        """The author's."""
        return self._target.can_crash


class _Passing(ProvidedEmbedder):
    """What a mutant of an embedder calls as its base, where that is the author's ``inner``."""

    inner: ClassVar[Embedder]

    @property
    def name(self) -> str:
        """The author's."""
        return self.inner.name

    @property
    def ready(self) -> bool:
        """The author's."""
        return self.inner.ready

    async def space(self) -> Space:
        """The author's."""
        return await self.inner.space()

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The author's."""
        return await self.inner.count_tokens(texts)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The author's."""
        return await self.inner.embed_passages(texts)

    async def embed_query(self, text: str) -> Vector:
        """The author's."""
        return await self.inner.embed_query(text)


def _in_front_of(inner: Embedder, mutant: type[ProvidedEmbedder]) -> Embedder:
    """The mutant, whose base is the author's embedder."""
    kind = types.new_class(mutant.__name__, (mutant, _Passing), exec_body=lambda names: names.update(inner=inner))
    return cast("Embedder", kind())


class StandInEmbedder(EmbedderTarget):
    """``target``, with ``mutant`` in front of its embedder."""

    def __init__(self, target: EmbedderTarget, mutant: type[ProvidedEmbedder]) -> None:
        _resemble(self, target)
        self.semantic = target.semantic
        self.remote = target.remote
        self._target = target
        self._mutant = mutant

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Embedder]:
        """The author's embedder, behind a mutant."""
        async with self._target.open() as inner:
            yield _in_front_of(inner, self._mutant)

    def fail(self) -> Sequence[FailingEmbedder]:
        """The author's."""
        return self._target.fail()


class _BrokenEngine:
    """An engine whose calls go through a mutant of a transport."""

    def __init__(self, engine: Engine, mutant: type[ReferenceTransport]) -> None:
        self._engine = engine
        self._mutant = mutant

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def call(self, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        """What the mutant makes of the call."""
        return await self._mutant(self._engine, context).called(name, payload)


class StandInTransport(TransportTarget):
    """``target``, with ``mutant`` between its transport and the engine."""

    def __init__(self, target: TransportTarget, mutant: type[ReferenceTransport]) -> None:
        _resemble(self, target)
        self.surface = target.surface
        self.policy = target.policy
        self.network = target.network
        self.network = target.network
        self.body_limit = target.body_limit
        self._target = target
        self._mutant = mutant

    def connect(self, engine: Engine, context: CallContext) -> AbstractAsyncContextManager[RemoteClient]:
        """The author's connection, to the broken engine."""
        return self._target.connect(self._broken(engine), context)

    def spelled(self, operation: str) -> str:
        """The author's."""
        return self._target.spelled(operation)

    def encoded(self, operation: str, payload: Mapping[str, Any]) -> bytes:
        """The author's."""
        return self._target.encoded(operation, payload)

    async def send(
        self,
        engine: Engine,
        context: CallContext,
        operation: str,
        pieces: AsyncIterator[bytes],
        announced: int | None,
    ) -> Reply:
        """The author's request, to the broken engine."""
        return await self._target.send(self._broken(engine), context, operation, pieces, announced)

    def server(self, engine: Engine, callers: Callers) -> AbstractAsyncContextManager[Server]:
        """The author's, in front of the broken engine."""
        return self._target.server(self._broken(engine), callers)

    @property
    def can_ask(self) -> bool:
        """The author's."""
        return self._target.can_ask

    @property
    def can_send(self) -> bool:
        """The author's."""
        return self._target.can_send

    def _broken(self, engine: Engine) -> Engine:
        return cast("Engine", _BrokenEngine(engine, self._mutant))


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
