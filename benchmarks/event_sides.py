"""The ways to append, claim and acknowledge that are compared with the bare driver: the storage, and the engine.

The bare driver of each storage, and what runs on its server besides, is a module of its own; what they share is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Protocol

from muniment import limits
from muniment.agent_models import AckOutcome, AckReceipt, DeliveryPage, ExchangeKind
from muniment.digests import entry_size
from muniment.engine import Engine
from muniment.models import Agent, CallContext, Principal
from muniment.ports import AgentStorage, Claim, ExchangeAppend, ExchangeDraft, Storage
from muniment.reference import HashEmbedder

CONNECTIONS = 8
"""Of each side."""
DRIVER = "driver"
PAYLOAD = '{"content":"hello","kind":"chat"}'
LEASE = timedelta(seconds=60)
POD, LABEL, PEERS, TAKEAWAY = "pod-1", "a room", ("other/1",), "Write the report → https://example.org/pr/17"
SIZE = entry_size(ExchangeKind.TASK_COMPLETED, POD, LABEL, PEERS, TAKEAWAY)
Receipt = tuple[Agent, str, str]


def draft(agent: Agent) -> ExchangeDraft:
    """The exchange that is appended, which the engine makes by itself."""
    return ExchangeDraft(agent, ExchangeKind.TASK_COMPLETED, POD, LABEL, PEERS, TAKEAWAY, SIZE)


class Side(Protocol):
    """One way of doing it."""

    name: str

    async def append(self, agent: Agent, key: str) -> None:
        """One exchange for one agent."""
        ...

    async def claim(self, agent: Agent, token: str) -> Sequence[Receipt]:
        """At most one event, with its token."""
        ...

    async def ack(self, receipt: Receipt) -> bool:
        """Whether it was the first time."""
        ...


class Ground(ABC):
    """A server of the benchmark's own: the sides on it, and what they share; ``process`` is the server's process id."""

    def __init__(self, sides: Sequence[Side], process: int, agents: Sequence[Agent]) -> None:
        self.sides = sides
        self.process = process
        self.agents = agents

    @abstractmethod
    async def revisions(self) -> int:
        """The sum of all envelopes' revisions."""
        ...

    @abstractmethod
    async def unsee(self, count: int) -> None:
        """Let each agent have seen all exchanges but the last ``count``."""
        ...

    @abstractmethod
    async def enqueue(self, events: int) -> None:
        """Events in turn for every agent."""
        ...

    @abstractmethod
    async def unfinished(self) -> int:
        """How many events are not acknowledged, or were claimed more than once."""
        ...


class Stored:
    """``AgentStorage``."""

    name = "storage"

    def __init__(self, storage: AgentStorage) -> None:
        self._storage = storage

    async def append(self, agent: Agent, key: str) -> None:
        """One exchange."""
        await self._storage.append_exchange(ExchangeAppend((draft(agent),), key, limits.EXCHANGES_KEPT))

    async def claim(self, agent: Agent, token: str) -> Sequence[Receipt]:
        """At most one event."""
        claimed = await self._storage.claim(Claim(agent, [token], LEASE, limits.ATTEMPTS_MAX))
        return [(agent, event.id, event.token) for event in claimed.events]

    async def ack(self, receipt: Receipt) -> bool:
        """Whether it was the first time."""
        return await self._storage.ack(*receipt) is AckOutcome.ACKNOWLEDGED


class Whole:
    """The operations, with their checks and their receipts."""

    name = "engine"
    _platform = CallContext(principal=Principal(user="platform", platform=True))

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def append(self, agent: Agent, key: str) -> None:
        """A task is done."""
        payload = {
            "assignee": {"name": agent.name, "instance": agent.instance},
            "title": "Write the report",
            "result": "https://example.org/pr/17",
            "surface_pod_id": POD,
            "surface_label": LABEL,
            "peers": list(PEERS),
            "dedupe_key": key,
        }
        await self._engine.call("exchange.task_completed", payload, self._platform)

    async def claim(self, agent: Agent, token: str) -> Sequence[Receipt]:
        """The engine makes the token."""
        page = await self._engine.call("event.claim", {"limit": 1}, self._own(agent))
        assert isinstance(page, DeliveryPage)
        return [(agent, one.id, one.token) for one in page.items]

    async def ack(self, receipt: Receipt) -> bool:
        """Whether it was the first time."""
        agent, event, token = receipt
        done = await self._engine.call("event.ack", {"id": event, "token": token}, self._own(agent))
        assert isinstance(done, AckReceipt)
        return done.outcome is AckOutcome.ACKNOWLEDGED

    def _own(self, agent: Agent) -> CallContext:
        return CallContext(principal=Principal(user="owner", agent=agent))


@asynccontextmanager
async def beside(driver: Side, storage: Storage) -> AsyncGenerator[Sequence[Side]]:
    """The driver, the storage and the engine over it, open."""
    async with Engine(storage, HashEmbedder(), background=False) as engine:
        yield driver, Stored(storage), Whole(engine)
