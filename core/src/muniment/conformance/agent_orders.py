"""Random orders of agent memory for a storage and for the reference, which is the oracle: both must answer alike.

They go to the port itself, with caps, sizes and values that no operation sends.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from muniment.agent_models import ExchangeKind, SectionName, Visibility
from muniment.conformance.invariant import Broken
from muniment.errors import MunimentError, VersionConflict
from muniment.models import Agent
from muniment.ports import (
    AgentStorage,
    Claim,
    Claimed,
    EnvelopeFacts,
    ExchangeAppend,
    ExchangeDraft,
    NewEvent,
    ReceiptClaim,
    ReceiptTaken,
    SectionChange,
    SectionsWrite,
)
from muniment.reference.storage import ReferenceStorage

ATTEMPTS = 3
LEASE = timedelta(seconds=1000)
VALUES: tuple[Any, ...] = (
    "text",
    {"b": [1, 1.0, -0.0, 2**70, 1e23, 1e308, 5e-324, None, True], "a": {"ü": "\\u0000 \\"}},
    [],
    "",
)
Method = Callable[[AgentStorage], Awaitable[Any]]


class Orders:
    """What is done to both; ``age`` moves the leases of the one that is judged so many seconds back."""

    def __init__(self, judged: AgentStorage, age: Callable[[float], Awaitable[None]], seed: int) -> None:
        self._aged = timedelta()
        self._age = age
        self._judged = judged
        self._oracle = ReferenceStorage(clock=lambda: datetime.now(UTC) + self._aged)
        self._dice = random.Random(seed)
        self._agents = [Agent(name="a", instance="1"), Agent(name="a", instance="2")]
        self._events: list[str] = []
        self._tokens: dict[str, str] = {}
        self._count = 0

    async def run(self, steps: int) -> None:
        """Do so many random things, one after the other. Raises Broken at the first answer that differs."""
        orders = (
            self.append,
            self.append,
            self.append_pair,
            self.enqueue,
            self.enqueue,
            self.claim,
            self.claim,
            self.ack,
            self.ack,
            self.extend,
            self.read,
            self.write,
            self.load,
            self.age,
            self.revive,
        )
        await self.read_first()
        for _ in range(steps):
            self._count += 1
            await self._dice.choice(orders)(self._dice.choice(self._agents))

    async def append(self, agent: Agent) -> None:
        """One recipient; now and then an old dedupe key, an old idempotency key, another cap."""
        peers = tuple("pqr"[: self._dice.randint(0, 3)])
        await self._append(self._draft(agent, peers))

    async def append_pair(self, agent: Agent) -> None:
        """Both agents."""
        drafts = [self._draft(one, (one.instance,)) for one in self._agents]
        await self._append(*(drafts if agent == self._agents[0] else reversed(drafts)))

    async def _append(self, *drafts: ExchangeDraft) -> None:
        number = self._dice.randint(1, self._count) if self._dice.random() < 0.2 else self._count
        claim = ReceiptClaim("ann", f"k{number % 50}", "body", "id", {}) if self._dice.random() < 0.2 else None
        append = ExchangeAppend(tuple(drafts), f"d{number}", self._dice.choice([5, 5, 5, 3, 7]), claim)
        await self._both(lambda storage: storage.append_exchange(append), lambda done: (done.revisions, done.deduped))

    async def enqueue(self, agent: Agent) -> None:
        """A new event."""
        self._events.append(f"e{self._count}")
        event = NewEvent(self._events[-1], agent, {"value": self._dice.choice(VALUES)})
        await self._both(lambda storage: storage.enqueue(event), lambda done: None)

    async def claim(self, agent: Agent) -> None:
        """Up to three events."""
        claim = Claim(agent, [f"t{self._count}-{turn}" for turn in range(self._dice.randint(1, 3))], LEASE, ATTEMPTS)
        claimed = await self._both(lambda storage: storage.claim(claim), delivered)
        self._tokens.update(dict(claimed[0]))

    async def ack(self, agent: Agent) -> None:
        """Mostly with the latest token."""
        event, token = self._receipt()
        await self._both(lambda storage: storage.ack(agent, event, token), lambda done: done)

    async def extend(self, agent: Agent) -> None:
        """Mostly with the latest token."""
        event, token = self._receipt()
        await self._both(lambda storage: storage.extend(agent, event, token, LEASE), lambda done: done[0])

    async def read(self, agent: Agent) -> None:
        """Seen by reading."""
        await self._raise(agent, self._dice.randint(0, self._count // 8))

    async def read_first(self) -> None:
        """Seen by an agent that has no envelope yet, and then by the one that it has."""
        stranger = Agent(name="b", instance="1")
        for revision in (0, 3, 2):
            await self._raise(stranger, revision)
        await self._both(lambda storage: storage.load_envelope(stranger), facts)

    async def _raise(self, agent: Agent, revision: int) -> None:
        await self._both(lambda storage: storage.raise_last_seen(agent, revision), lambda done: done)

    async def write(self, agent: Agent) -> None:
        """Two sections, now and then at a wrong version; or pods."""
        pods = frozenset(self._dice.sample("pqr", 2))
        await self._both(lambda storage: storage.register_agent(agent, pods), lambda done: done)
        stored = (await self._oracle.load_envelope(agent)).sections
        changes = [
            SectionChange(
                name,
                self._dice.choice(VALUES),
                Visibility.POD,
                7,
                (stored[name].version if name in stored else 0) + (self._dice.random() < 0.1),
            )
            for name in self._dice.sample(list(SectionName), 2)
        ]
        write = SectionsWrite(agent, tuple(changes), f"s{self._count}", self._dice.random() < 0.5)
        await self._both(lambda storage: storage.write_sections(write), lambda done: None)

    async def load(self, agent: Agent) -> None:
        """All or a part of the envelope."""
        names = self._dice.choice([None, [], [SectionName.SOUL, SectionName.DAILY]])
        exchanges = self._dice.random() < 0.7
        await self._both(lambda storage: storage.load_envelope(agent, sections=names, exchanges=exchanges), facts)

    async def age(self, agent: Agent) -> None:
        """Time passes."""
        seconds = LEASE.total_seconds() * 0.6
        self._aged += timedelta(seconds=seconds)
        await self._age(seconds)

    async def revive(self, agent: Agent) -> None:
        """List what is dead, and requeue some."""
        await self._both(
            lambda storage: storage.dead_events(agent, attempts_max=ATTEMPTS, after=None, limit=3),
            lambda done: [(event.id, event.attempts, event.payload) for event in done],
        )
        some = self._dice.sample(self._events, len(self._events) // 2)
        await self._both(lambda storage: storage.requeue(agent, some, attempts_max=ATTEMPTS), list)

    def _draft(self, agent: Agent, peers: tuple[str, ...]) -> ExchangeDraft:
        size = self._dice.randint(100, 2400)
        return ExchangeDraft(agent, ExchangeKind.DM_CONCLUSION, "p", "ü", peers, f"takeaway {self._count}", size)

    def _receipt(self) -> tuple[str, str]:
        event = self._dice.choice(self._events or ["none"])
        return event, self._tokens.get(event, "none") if self._dice.random() < 0.8 else "stale"

    async def _both(self, method: Method, shown: Callable[[Any], Any]) -> Any:
        seen, expected = [await answer(storage, method, shown) for storage in (self._judged, self._oracle)]
        if seen != expected:
            raise Broken(f"the answer to order {self._count}", expected=expected, seen=seen)
        return seen


async def answer(storage: AgentStorage, method: Method, shown: Callable[[Any], Any]) -> Any:
    """What can be compared of an answer or a refusal."""
    try:
        return shown(await method(storage))
    except VersionConflict as error:
        return type(error), error.current_version
    except (MunimentError, ReceiptTaken) as error:
        return type(error)


def delivered(claimed: Claimed) -> Any:
    """A claim without its times; tokens by event first."""
    events = [(event.id, event.attempts, event.payload) for event in claimed.events]
    entries = [entry.model_dump(exclude={"ts"}) for entry in claimed.digest.entries]
    digest = (claimed.digest.revision, entries, claimed.digest.pending, claimed.digest.evicted)
    return [(event.id, event.token) for event in claimed.events], events, digest


def facts(envelope: EnvelopeFacts) -> Any:
    """An envelope without its times."""
    sections = {
        name: (repr(one.value), one.visibility, one.version, one.byte_size) for name, one in envelope.sections.items()
    }
    exchanges = [(one.exchange.model_dump(exclude={"ts"}), one.size) for one in envelope.exchanges]
    numbers = (envelope.revision, envelope.last_seen_revision, envelope.sync_key, envelope.pods)
    return numbers, sections, exchanges
