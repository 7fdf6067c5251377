"""A load of agent memory that is interrupted, and whether what is stored afterwards is what its callers were told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

from muniment.agent_models import AckOutcome
from muniment.conformance.agent_calls import ANN, BOB, HOUR, exchange
from muniment.conformance.invariant import Broken, NotExercised
from muniment.conformance.target import StoredAgents
from muniment.conformance.world import holds, same
from muniment.errors import StorageUnavailable
from muniment.ports import AgentStorage, Claim, NewEvent

WRITERS, WORKERS = 4, 4
ROUNDS = 80
"""Of each writer."""
LEASE = 1.0
"""Seconds."""
KEPT = 100_000
"""So that the cap takes nothing, and what is seen must have been carried."""
ATTEMPTS = 1_000
"""So that no event is dead."""


class Load:
    """Appends, events, claims and acknowledgements of two agents, with what each of their callers was told.

    ``storage`` may be replaced meanwhile; ``refused`` is set once a call has been.
    """

    def __init__(self, storage: AgentStorage) -> None:
        self.storage = storage
        self.appended: list[int] = []
        self.enqueued: set[str] = set()
        self.carried: dict[str, set[int]] = {}
        """The revisions in the digest of each delivery, by its token."""
        self.acknowledged: list[str] = []
        self.refused = asyncio.Event()
        self._writing = WRITERS
        self._due = asyncio.Event()

    async def run(self, crash: Callable[[], Awaitable[None]]) -> None:
        """All callers at once, with a crash when a quarter is written; then what is left is claimed and acknowledged.

        Raises NotExercised where the crash came too late to interrupt anything.
        """

        async def crash_when_due() -> None:
            await self._due.wait()
            await crash()

        workers = (self._work(worker) for worker in range(WORKERS))
        await asyncio.gather(crash_when_due(), *(self._write(writer) for writer in range(WRITERS)), *workers)
        if not self.refused.is_set():
            raise NotExercised("the crash came too late to interrupt anything")
        await asyncio.sleep(LEASE + 0.1)
        for turn in range(WRITERS * ROUNDS + 1):
            if not await self._take_one(f"last-{turn}", HOUR):
                return
        raise Broken("how many events are left to claim", expected="no more than were sent", seen="more")

    async def _write(self, writer: int) -> None:
        """Exchanges of both agents, and events for one of them."""
        for turn in range(ROUNDS):
            key = f"{writer}-{turn}"
            try:
                done = await self.storage.append_exchange(exchange(ANN, BOB, key=key, kept=KEPT))
                first, second = done.revisions
                same("the revision of the second of two that were only written together", second, first)
                self.appended.append(first or 0)
                await self.storage.enqueue(NewEvent(key, ANN, {}))
                self.enqueued.add(key)
            except StorageUnavailable:
                self.refused.set()
        self._writing -= 1

    async def _work(self, worker: int) -> None:
        """Claim and acknowledge until everything is written."""
        turn = 0
        while self._writing:
            turn += 1
            try:
                await self._take_one(f"{worker}-{turn}", timedelta(seconds=LEASE))
            except StorageUnavailable:
                self.refused.set()
            if len(self.appended) > ROUNDS and len(self.acknowledged) > ROUNDS // 8:
                self._due.set()
        self._due.set()

    async def _take_one(self, token: str, lease: timedelta) -> bool:
        """Claim and acknowledge one event; whether there was one."""
        claimed = await self.storage.claim(Claim(ANN, [token], lease, ATTEMPTS))
        for event in claimed.events:
            self.carried[event.token] = {entry.revision for entry in claimed.digest.entries}
            if await self.storage.ack(ANN, event.id, event.token) is AckOutcome.ACKNOWLEDGED:
                self.acknowledged.append(event.id)
        return bool(claimed.events)


def settled(stored: StoredAgents, load: Load) -> None:
    """Broken unless what was told is stored, once, without a gap, and nothing is seen that was not carried.

    Every event is acknowledged, in the end; what was not told may be stored or not.
    """
    _once("revisions", load.appended)
    envelopes = {envelope.agent: envelope for envelope in stored.envelopes}
    for agent in (ANN, BOB):
        revisions = [entry.revision for entry in stored.exchanges if entry.agent == agent]
        last = envelopes[agent].revision if agent in envelopes else 0
        same(f"the exchanges of {agent.name}", sorted(revisions), list(range(1, last + 1)))
        _among(f"the appended revisions that are stored for {agent.name}", load.appended, revisions)
        keys = [key.revision for key in stored.dedupe_keys if key.agent == agent]
        same(f"the revisions with a dedupe key of {agent.name}", sorted(keys), sorted(revisions))
    events = {event.id: event for event in stored.events}
    _once("acknowledged events", load.acknowledged)
    _among("the enqueued events that are stored", load.enqueued, events)
    _among("the acknowledged events that are stored", load.acknowledged, events)
    same("the events that are not acknowledged", [event.id for event in events.values() if not event.acked], [])
    tokens = {event.token or "" for event in events.values()}
    _among("the latest deliveries that somebody was told of", tokens, load.carried)
    last_seen = envelopes[ANN].last_seen_revision
    holds(last_seen > 0, "the last revision that was seen", expected="more than 0", seen=last_seen)
    carried = set[int]().union(*(load.carried[token] for token in tokens))
    _among("the revisions up to last seen that were carried", range(1, last_seen + 1), carried)


def _once(what: str, told: Collection[object]) -> None:
    same(f"how often {what} were told, beside how many there are", len(told), len(set(told)))


def _among(what: str, some: Collection[object], others: Collection[object]) -> None:
    missing = sorted(set(some) - set(others), key=str)
    holds(not missing, what, expected="all of them", seen=f"all but {missing}")
