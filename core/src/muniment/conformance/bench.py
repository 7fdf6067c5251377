"""How a world is set up for a target: the engine over the subject, its second clients, and its end.

Owns the lifetime of what a check uses. In the seats of the embedder and of the transport the subject is another
storage's, the reference's unless one was named, so that the same checks judge them; in the transport's every call goes
through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from operator import attrgetter
from random import Random
from typing import Any, TypeVar, cast

from muniment.conformance.connections import TransportClient
from muniment.conformance.invariant import NotExercised
from muniment.conformance.seams import CountingEmbedder, Gate, StagedEngine, passing_on
from muniment.conformance.target import (
    AgentFaultPoint,
    EmbedderTarget,
    FaultPoint,
    Refused,
    StorageTarget,
    Stored,
    StoredAgents,
    Subject,
    Target,
    TransportTarget,
)
from muniment.conformance.world import Answer, Client, Doors, World
from muniment.engine import Engine
from muniment.engine.vectors import VectorCache
from muniment.errors import MunimentError
from muniment.models import Agent, CallContext
from muniment.ports import Embedder, Storage
from muniment.reference import HashEmbedder

EMBED_TIMEOUT = 60.0
"""Seconds; a check of vectors wants them, however long a model takes to load."""
LOADING_PATIENCE = 1.0
"""Seconds that a search waits for a model that is still loading, where that is what is judged."""
CLOSE_PATIENCE = 20.0
"""Seconds that closing a subject may take."""

E = TypeVar("E", bound=Engine)


class EngineClient:
    """An engine in this process, called as a surface would."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def call(self, operation: str, payload: Mapping[str, Any], context: CallContext) -> Answer:
        """Run an operation. Raises Refused."""
        try:
            answer = await self._engine.call(operation, payload, context)
        except MunimentError as error:
            raise Refused.of(error) from error
        return answer.model_dump(mode="json")


@asynccontextmanager
async def world_of(target: Target, random: Random) -> AsyncGenerator[World]:
    """A world over a fresh subject of ``target``; closed with everything that it opened."""
    async with AsyncExitStack() as stack:
        if isinstance(target, TransportTarget):
            bench = await stack.enter_async_context(_opened(_storage_under(target), HashEmbedder(), target))
            yield World(bench.doors(), bench.embedder, random)
        elif isinstance(target, EmbedderTarget):
            embedder = await stack.enter_async_context(target.open())
            bench = await stack.enter_async_context(_opened(_storage_under(target), embedder))
            yield World(bench.doors(), bench.embedder, random, target)
        elif isinstance(target, StorageTarget):
            storages = cast("StorageTarget[Any]", target)
            bench = await stack.enter_async_context(_opened(storages, HashEmbedder()))
            yield World(bench.doors(), bench.embedder, random)
        else:
            raise TypeError(f"{type(target).__name__} is a target of no seat")


def _storage_under(target: Target) -> StorageTarget[Any]:
    from muniment.conformance.reference_target import ReferenceTarget

    return target.over or ReferenceTarget()


@asynccontextmanager
async def _opened(
    target: StorageTarget[Any], embedder: Embedder, transport: TransportTarget | None = None
) -> AsyncGenerator[_Bench]:
    async with target.open() as subject, AsyncExitStack() as clients:
        bench = _Bench(target, subject, CountingEmbedder(embedder), clients, transport)
        await bench.start()
        yield bench


class _Bench:
    """One subject with the engines over it."""

    def __init__(
        self,
        target: StorageTarget[Any],
        subject: Subject,
        embedder: CountingEmbedder,
        clients: AsyncExitStack,
        transport: TransportTarget | None,
    ) -> None:
        self.embedder = embedder
        self._target = target
        self._subject = subject
        self._clients = clients
        self._transport = transport
        self._first: tuple[Client, Gate] | None = None

    async def start(self) -> None:
        """The first engine."""
        self._first = await self._engine(self._subject.storage)

    def doors(self) -> Doors:
        """The ways in, as a world uses them."""
        assert self._first is not None
        return Doors(
            first=self._first,
            connect=self._connect,
            beside=self._beside,
            probe=self._probe,
            fault=self._fault if self._target.can_fault else None,
            fault_agent=self._fault_agent if self._target.can_fault_agent else None,
            age=self._age if self._target.can_age else None,
            reopen=self._reopen,
            can_crash=self._target.can_crash,
            transport=self._transport,
            with_embedder=self._with_embedder,
            layout=self._layout if self._target.can_layout else None,
            is_of=(self._transport or self._target).is_of,
        )

    async def _engine(self, storage: Storage, *, embeds: bool = True) -> tuple[Client, Gate]:
        gate = Gate(storage)
        return await self._client(gate.as_storage(), self.embedder if embeds else None, EMBED_TIMEOUT), gate

    async def _client(self, storage: Storage, embedder: Embedder | None, patience: float) -> Client:
        if self._transport is None:
            return EngineClient(await self._open(Engine, storage, embedder, patience))
        client = TransportClient(self._transport, await self._open(StagedEngine, storage, embedder, patience))
        self._clients.push_async_callback(client.close)
        return client

    async def _open(self, kind: type[E], storage: Storage, embedder: Embedder | None, patience: float) -> E:
        # Vectors that were remembered would hide which ones the storage lost.
        engine = kind(
            storage,
            embedder,
            embed_timeout=EMBED_TIMEOUT,
            patience=patience,
            background=False,
            cache=VectorCache(0),
        )
        await engine.open()
        self._clients.push_async_callback(engine.close)
        return engine

    async def _with_embedder(self, embedder: Embedder, patient: bool) -> Client:
        patience = EMBED_TIMEOUT if patient else LOADING_PATIENCE
        return await self._client(self._subject.storage, embedder, patience)

    async def _layout(self) -> frozenset[str]:
        return await self._target.layout(self._subject)

    async def _beside(self, storage: Storage | None, embeds: bool) -> Client:
        return (await self._engine(self._subject.storage if storage is None else storage, embeds=embeds))[0]

    async def _connect(self) -> tuple[Client, Gate]:
        return await self._engine(await self._clients.enter_async_context(self._target.second(self._subject)))

    async def _probe(self) -> Stored:
        found = await self._target.probe(self._subject)
        return Stored(
            passages=tuple(sorted(found.passages, key=attrgetter("memory_id", "space", "hash"))),
            terms=tuple(sorted(found.terms, key=attrgetter("memory_id", "term", "scope_key"))),
            audit=tuple(sorted(found.audit, key=attrgetter("id"))),
            receipts=found.receipts,
            rows={table: tuple(sorted(rows)) for table, rows in found.rows.items()},
            agents=found.agents and _in_order(found.agents),
        )

    def _fault(self, point: FaultPoint) -> AbstractAsyncContextManager[None]:
        return passing_on(self._target.fault(self._subject, point))

    def _fault_agent(self, point: AgentFaultPoint, agent: Agent) -> AbstractAsyncContextManager[None]:
        return passing_on(self._target.fault_agent(self._subject, point, agent))

    async def _age(self, seconds: float) -> None:
        await self._target.age(self._subject, seconds)

    async def _reopen(self, crash: bool) -> tuple[Client, Gate]:
        if crash:
            await self._target.crash(self._subject)
        try:
            await asyncio.wait_for(self._close_all(crash), CLOSE_PATIENCE)
        except TimeoutError:
            raise NotExercised(f"the storage did not close within {CLOSE_PATIENCE:g} s") from None
        storage = await self._clients.enter_async_context(self._target.reopen(self._subject))
        return await self._engine(storage)

    async def _close_all(self, crash: bool) -> None:
        try:
            await self._clients.aclose()
            await self._subject.storage.close()
        except Exception:
            if not crash:
                raise


def _in_order(agents: StoredAgents) -> StoredAgents:
    def key(agent: Agent) -> tuple[str, str]:
        return agent.name, agent.instance

    return StoredAgents(
        envelopes=tuple(sorted(agents.envelopes, key=lambda one: key(one.agent))),
        exchanges=tuple(sorted(agents.exchanges, key=lambda one: (key(one.agent), one.revision))),
        events=tuple(sorted(agents.events, key=lambda one: one.id)),
        dedupe_keys=tuple(sorted(agents.dedupe_keys, key=lambda one: (key(one.agent), one.key))),
    )
