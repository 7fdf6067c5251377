"""Races of agent memory that a real storage can lose: between two clients, between processes, and with one killed.

Each raises Broken where the storage does not keep the port's promise, and begins on data that holds nothing. ``RACES``
are those that two clients are enough for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from muniment import limits
from muniment.agent_models import AckOutcome, SectionName, Visibility
from muniment.conformance.agent_calls import ANN, BOB, HOUR, append, exchange, take
from muniment.conformance.agent_process import Process
from muniment.conformance.invariant import Broken, NotExercised
from muniment.conformance.target import StorageTarget, StoredAgents, Subject
from muniment.conformance.world import holds, same
from muniment.errors import VersionConflict
from muniment.models import Agent
from muniment.ports import AgentStorage, Appended, Claim, NewEvent, SectionChange, SectionsWrite

EACH = 100
"""What each of two appends at once."""
PATIENCE = 20.0
"""Seconds after which appends that wait for each other are said to do so for ever."""
TURNS = 60
"""Of an acknowledgement against a claim."""
STEP = 0.0005
"""Seconds by which the winner of a turn begins later in the next one."""


@dataclass(frozen=True, slots=True)
class Rivals:
    """Two clients on the same data; ``probe`` reads it around them, ``age`` moves all leases so many seconds back."""

    storage: AgentStorage
    other: AgentStorage
    probe: Callable[[], Awaitable[StoredAgents]]
    age: Callable[[float], Awaitable[None]]

    async def check_exchanges(self, agent: Agent, last: int) -> None:
        """Broken unless an agent has the newest revisions up to ``last``, read in their order and stored once each."""
        kept = range(last, max(last - limits.EXCHANGES_KEPT, 0), -1)
        facts = await self.storage.load_envelope(agent, exchanges=True)
        same("the revision", facts.revision, last)
        same("the exchanges that are read", [one.exchange.revision for one in facts.exchanges], list(kept))
        stored = [one.revision for one in (await self.probe()).exchanges if one.agent == agent]
        same("the exchanges that are stored", sorted(stored, reverse=True), list(kept))

    async def last_seen(self) -> int:
        """What ann has seen."""
        return (await self.storage.load_envelope(ANN)).last_seen_revision


Race = Callable[[Rivals], Awaitable[None]]


@asynccontextmanager
async def rivals(target: StorageTarget[Any], subject: Subject) -> AsyncGenerator[Rivals]:
    """The client of a target's subject, and a second one."""
    async with target.second(subject) as other:

        async def probe() -> StoredAgents:
            agents = (await target.probe(subject)).agents
            if agents is None:
                raise NotExercised("the target's probe does not read agent memory")
            return agents

        yield Rivals(subject.storage, other, probe, partial(target.age, subject))


async def appends(rivals: Rivals) -> None:
    """200 appends to one agent, half of them by each client: revisions without a gap, and exactly the newest 50."""
    clients = enumerate((rivals.storage, rivals.other))
    await _lose_nothing(rivals, [append(client, ANN, f"c{number}-", EACH) for number, client in clients])


async def appends_of_processes(rivals: Rivals, *processes: Process) -> None:
    """The same of two processes."""
    await _lose_nothing(rivals, [one.append(ANN, f"p{number}-", EACH) for number, one in enumerate(processes)])


async def _lose_nothing(rivals: Rivals, both: Sequence[Awaitable[Sequence[int]]]) -> None:
    told = [revision for answer in await asyncio.gather(*both) for revision in answer]
    same("the revisions that were told", sorted(told), list(range(1, 2 * EACH + 1)))
    await rivals.check_exchanges(ANN, 2 * EACH)


async def opposite_pairs(rivals: Rivals) -> None:
    """Two agents that are new, and then known, written in opposite orders by two clients: never a deadlock."""
    for turn in range(40):
        pair = [Agent(name=f"{name}{turn}", instance="1") for name in "xy"]
        for again in range(2):
            appended = await _in_time(
                PATIENCE,
                (
                    client.append_exchange(exchange(*order, key=f"{client_number}-{again}-{one}"))
                    for one in range(3)
                    for client_number, (client, order) in enumerate(
                        ((rivals.storage, pair), (rivals.other, pair[::-1]))
                    )
                ),
            )
            for one in appended:
                same("how many revisions a pair has that was only written together", len(set(one.revisions)), 1)
        revisions = [(await rivals.storage.load_envelope(agent)).revision for agent in pair]
        same("the revisions of a pair", revisions, [12, 12])


async def pairs_with_one_agent(rivals: Rivals) -> None:
    """60 agents each end a conversation with the same one at the same moment: all are written, to both sides."""
    peers = [Agent(name=f"peer{number}", instance="a/b") for number in range(60)]
    clients = [rivals.storage, rivals.other] * 30
    appended = await _in_time(
        3 * PATIENCE,
        (
            client.append_exchange(exchange(peer, ANN, key=peer.name))
            for client, peer in zip(clients, peers, strict=True)
        ),
    )
    same("the revisions of the one", sorted(one.revisions[1] or 0 for one in appended), list(range(1, 61)))
    same("the revisions of the others", {one.revisions[0] for one in appended}, {1})
    same("how many dedupe keys are stored", len((await rivals.probe()).dedupe_keys), 120)


async def _in_time(seconds: float, calls: Iterable[Awaitable[Appended]]) -> list[Appended]:
    """The answers to appends at once."""
    ending = asyncio.timeout(seconds)
    try:
        async with ending:
            return await asyncio.gather(*calls)
    except TimeoutError:
        if not ending.expired():
            raise
        raise Broken("appends at once to two agents each", expected="an end", seen=f"none in {seconds} s") from None


async def one_dedupe_key(rivals: Rivals) -> None:
    """Of 16 appends with one key, one counts; all answer with its revision."""
    for turn in range(10):
        clients = [rivals.storage, rivals.other] * 8
        answers = await asyncio.gather(
            *(client.append_exchange(exchange(ANN, BOB, key=f"k{turn}")) for client in clients)
        )
        same("how many appends with one key counted", [one.deduped for one in answers].count(False), 1)
        same("the revisions that were told", {one.revisions for one in answers}, {(turn + 1, turn + 1)})
    for agent in (ANN, BOB):
        await rivals.check_exchanges(agent, 10)


async def first_writes(rivals: Rivals) -> None:
    """Both write a section for the first time, or the same version of it: one is refused with all of its changes."""
    names = [SectionName.SOUL, SectionName.LONG_TERM, SectionName.DAILY, SectionName.CYCLES]
    for turn in range(30):
        agent = Agent(name=f"agent{turn}", instance="1")
        for version in range(2):
            both = zip((rivals.storage, rivals.other), names[2 * version :], strict=False)
            refused = await asyncio.gather(*(_write(client, agent, own, version) for client, own in both))
            same("the versions that one was refused with", [one for one in refused if one is not None], [version + 1])
        sections = (await rivals.storage.load_envelope(agent)).sections
        same("how many sections are written", len(sections), 3)
        same("the version of the section that both wrote", sections[SectionName.SHARED].version, 2)


async def _write(client: AgentStorage, agent: Agent, own: SectionName, version: int) -> int | None:
    """Write a section of one's own and then the shared one; the current version where that is refused."""
    changes = tuple(
        SectionChange(name, own, Visibility.PRIVATE, 5, expected)
        for name, expected in ((own, 0), (SectionName.SHARED, version))
    )
    try:
        await client.write_sections(SectionsWrite(agent, changes))
    except VersionConflict as conflict:
        return conflict.current_version
    return None


async def workers(rivals: Rivals) -> None:
    """100 events of one agent: each of 32 workers claims until nothing is left, and each event is claimed once."""
    await _enqueue(rivals, 100)
    got: list[str] = []

    async def work(client: AgentStorage, worker: int) -> None:
        turn = 0
        while taken := await take(client, ANN, f"{worker}-{turn}a", f"{worker}-{turn}b"):
            same("the order of two events", taken, sorted(taken, key=lambda event: int(event[1:])))
            got.extend(taken)
            turn += 1

    await asyncio.gather(*(work(client, worker) for worker, client in enumerate([rivals.storage, rivals.other] * 16)))
    same("the events that were claimed", sorted(got), sorted(f"e{number}" for number in range(100)))


async def lapsed_events(rivals: Rivals) -> None:
    """The order is that of enqueueing, whatever happened to an event; 8 claims at once leave none of them out."""
    await _enqueue(rivals, 9)
    same("the first claim", await take(rivals.storage, ANN, "a", "b", "c"), ["e0", "e1", "e2"])
    same("an acknowledgement", await rivals.storage.ack(ANN, "e1", "b"), AckOutcome.ACKNOWLEDGED)
    await rivals.age(HOUR.total_seconds())
    same("a claim after a lapse", await take(rivals.storage, ANN, "d", "e", "f"), ["e0", "e2", "e3"])
    await rivals.age(HOUR.total_seconds())
    taken = await asyncio.gather(*(take(rivals.storage, ANN, f"t{number}") for number in range(8)))
    left = ["e0", *(f"e{number}" for number in range(2, 9))]
    same("what 8 claims at once got", sorted(event for one in taken for event in one), left)


async def _enqueue(rivals: Rivals, count: int) -> None:
    for number in range(count):
        await rivals.storage.enqueue(NewEvent(f"e{number}", ANN, {}))


async def acknowledgement_against_claim(rivals: Rivals) -> None:
    """A lapsed event is acknowledged and not claimed, or claimed and the old token is stale; so it is with extending.

    Whoever was first begins later in the next turn, so that the two meet; NotExercised where one is first in all.
    """
    outcomes: set[AckOutcome] = set()
    late = 0
    for turn in range(TURNS):
        event, old, new = f"e{turn}", f"old{turn}", f"new{turn}"
        await rivals.storage.enqueue(NewEvent(event, ANN, {}))
        await rivals.storage.append_exchange(exchange(ANN, key=event))
        before = await rivals.last_seen()
        same("a claim of what waits", await take(rivals.storage, ANN, old), [event])
        await rivals.age(HOUR.total_seconds())
        racing: list[Any] = [
            _after(late * STEP, rivals.storage.ack(ANN, event, old)),
            _after(-late * STEP, take(rivals.other, ANN, new)),
        ]
        outcome, taken = await asyncio.gather(*racing)
        outcomes.add(outcome)
        won = outcome is AckOutcome.ACKNOWLEDGED
        if not won:
            same("an acknowledgement that a claim came before", outcome, AckOutcome.STALE_RECEIPT)
        same("a claim beside an acknowledgement", taken, [] if won else [event])
        same("what is seen after them", await rivals.last_seen(), turn + 1 if won else before)
        # The steps grow until the other side is first too, and are small from then on.
        late += (1 if len(outcomes) == 2 else turn + 1) * (1 if won else -1)
        if taken:
            await _extend_against_acknowledgement(rivals, event, new)
    if len(outcomes) < 2:
        raise NotExercised(f"one side was first in all of {TURNS} turns: {outcomes}")


async def _extend_against_acknowledgement(rivals: Rivals, event: str, token: str) -> None:
    (extended, _), acked = await asyncio.gather(
        rivals.storage.extend(ANN, event, token, HOUR), rivals.other.ack(ANN, event, token)
    )
    same("an acknowledgement beside an extension", acked, AckOutcome.ACKNOWLEDGED)
    either = {AckOutcome.ACKNOWLEDGED, AckOutcome.ALREADY_ACKED}
    holds(extended in either, "an extension beside an acknowledgement", expected=either, seen=extended)


async def _after(seconds: float, call: Awaitable[Any]) -> Any:
    """What a call answers that begins so much later, at once where that is not positive."""
    await asyncio.sleep(seconds)
    return await call


async def acknowledgements(rivals: Rivals) -> None:
    """20 deliveries with growing digests, acknowledged all at once and twice: one of two counts, the highest stays."""
    for number in range(20):
        await rivals.storage.enqueue(NewEvent(f"e{number}", ANN, {}))
        await rivals.storage.append_exchange(exchange(ANN, key=f"k{number}"))
        await take(rivals.storage, ANN, f"t{number}")
    clients = (rivals.storage, rivals.other)
    # The highest is neither the first nor the last.
    order = [*range(0, 20, 2), *range(19, 0, -2)]
    outcomes = await asyncio.gather(
        *(client.ack(ANN, f"e{number}", f"t{number}") for number in order for client in clients)
    )
    for both in zip(outcomes[::2], outcomes[1::2], strict=True):
        same("the outcomes of two", sorted(both), [AckOutcome.ACKNOWLEDGED, AckOutcome.ALREADY_ACKED])
    same("what is seen", await rivals.last_seen(), 20)


async def killed_before_acknowledging(rivals: Rivals, process: Process) -> None:
    """A killed process's event is offered when its lease is over, with one more attempt; its old token is stale."""
    storage = rivals.storage
    await storage.enqueue(NewEvent("e1", ANN, {}))
    await storage.append_exchange(exchange(ANN, key="k"))
    same("what the process claimed", await process.take(ANN, "lost"), ["e1"])
    await process.kill()
    same("a claim under the lease", await take(storage, ANN, "early"), [])
    await rivals.age(HOUR.total_seconds())
    claimed = await storage.claim(Claim(ANN, ["again"], HOUR, 5))
    same("a claim after the lease", [(event.id, event.attempts) for event in claimed.events], [("e1", 2)])
    same("its digest", [entry.revision for entry in claimed.digest.entries], [1])
    same("the token of the killed process", await storage.ack(ANN, "e1", "lost"), AckOutcome.STALE_RECEIPT)
    same("what is seen before an acknowledgement", await rivals.last_seen(), 0)
    same("the token of the later claim", await storage.ack(ANN, "e1", "again"), AckOutcome.ACKNOWLEDGED)
    same("what is seen after it", await rivals.last_seen(), 1)


RACES: tuple[Race, ...] = (
    appends,
    opposite_pairs,
    pairs_with_one_agent,
    one_dedupe_key,
    first_writes,
    workers,
    lapsed_events,
    acknowledgement_against_claim,
    acknowledgements,
)
