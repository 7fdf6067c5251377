"""The races and the load of agent memory: the reference storage stands them, and what breaks their rule is caught."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from muniment.agent_models import AckOutcome
from muniment.conformance import agent_load, agent_races
from muniment.conformance.agent_calls import ANN, BOB, append, take
from muniment.conformance.agent_load import Load, settled
from muniment.conformance.agent_process import Process, start
from muniment.conformance.agent_races import RACES, Race, Rivals
from muniment.conformance.invariant import Broken, NotExercised
from muniment.conformance.mutants.acknowledgement import (
    AcksByReadingFirst,
    ClaimsWithoutLock,
    CountsNoAttempts,
    KeepsToken,
    LeasesForEver,
    LowersLastSeen,
    OffersNewestFirst,
    OffersRetriesLast,
    TakesAnyToken,
)
from muniment.conformance.mutants.digests import JumpsToCurrent
from muniment.conformance.mutants.exchanges import (
    AppendsByReadingFirst,
    KeepsOneTooMany,
    LooksKeysUpFirst,
    ReadsOldestFirst,
    WritesOnePeer,
    WritesPeersOneByOne,
)
from muniment.conformance.mutants.sections import WritesAnyVersion, WritesSectionsOneByOne
from muniment.conformance.reference_target import ReferenceTarget
from muniment.conformance.target import StoredAgents
from muniment.errors import StorageUnavailable
from muniment.models import Agent
from muniment.ports import Appended, ExchangeAppend
from muniment.reference import ReferenceStorage


class LocksInTheOrderGiven(ReferenceStorage):
    """Opposite pairs wait for each other's second lock, for ever."""

    locks: ClassVar[dict[Agent, asyncio.Lock]] = {}

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """One lock after the other."""
        held = [self.locks.setdefault(draft.agent, asyncio.Lock()) for draft in append.entries]
        async with held[0]:
            await self.pause()
            async with held[-1] if held[1:] else asyncio.Lock():
                return await super().append_exchange(append)


BROKEN: Sequence[tuple[Race, type[ReferenceStorage]]] = (
    (agent_races.appends, AppendsByReadingFirst),
    (agent_races.appends, KeepsOneTooMany),
    (agent_races.appends, ReadsOldestFirst),
    (agent_races.opposite_pairs, AppendsByReadingFirst),
    (agent_races.opposite_pairs, LocksInTheOrderGiven),
    (agent_races.pairs_with_one_agent, AppendsByReadingFirst),
    (agent_races.pairs_with_one_agent, WritesOnePeer),
    (agent_races.one_dedupe_key, LooksKeysUpFirst),
    (agent_races.first_writes, WritesAnyVersion),
    (agent_races.first_writes, WritesSectionsOneByOne),
    (agent_races.workers, ClaimsWithoutLock),
    (agent_races.workers, OffersNewestFirst),
    (agent_races.lapsed_events, OffersRetriesLast),
    (agent_races.lapsed_events, LeasesForEver),
    (agent_races.acknowledgement_against_claim, TakesAnyToken),
    (agent_races.acknowledgements, AcksByReadingFirst),
    (agent_races.acknowledgements, LowersLastSeen),
)


@asynccontextmanager
async def on(target: ReferenceTarget) -> AsyncGenerator[Rivals]:
    """Two clients on data of their own."""
    async with target.open() as subject, agent_races.rivals(target, subject) as both:
        yield both


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
async def test_the_reference_stands_every_race(race: Race) -> None:
    """Each race ends without a word on a storage that keeps the rules."""
    async with on(ReferenceTarget()) as both:
        await race(both)


@pytest.mark.parametrize(("race", "storage"), BROKEN, ids=lambda one: one.__name__)
async def test_a_broken_rule_is_caught(
    race: Race, storage: type[ReferenceStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each race names what a storage does that breaks its rule."""
    monkeypatch.setattr(agent_races, "PATIENCE", 0.5)
    async with on(ReferenceTarget(storage)) as both:
        with pytest.raises(Broken):
            await race(both)


def test_every_race_has_a_storage_that_loses_it() -> None:
    """None of them is without an example of what it is for."""
    assert {race for race, _ in BROKEN} == set(RACES)


async def test_a_race_that_one_side_always_wins_is_not_exercised(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acknowledgement that is always first says nothing of one that is not."""
    monkeypatch.setattr(agent_races, "STEP", 0.0)
    async with on(ReferenceTarget()) as both:
        with pytest.raises(NotExercised, match="one side was first"):
            await agent_races.acknowledgement_against_claim(both)


class Here(Process):
    """Follows the orders on a client in this process, since memory is not shared."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    async def append(self, agent: Agent, prefix: str, count: int) -> Sequence[int]:
        return await append(self.storage, agent, prefix, count)

    async def take(self, agent: Agent, *tokens: str) -> list[str]:
        return await take(self.storage, agent, *tokens)

    async def kill(self) -> None:
        pass


async def test_races_of_processes_are_those_of_clients() -> None:
    """What stands a race between clients stands it between processes."""
    async with on(ReferenceTarget()) as both:
        await agent_races.appends_of_processes(both, Here(both.storage), Here(both.other))
    async with on(ReferenceTarget()) as both:
        await agent_races.killed_before_acknowledging(both, Here(both.other))


@pytest.mark.parametrize("storage", [CountsNoAttempts, KeepsToken, LeasesForEver, TakesAnyToken])
async def test_what_a_killed_process_had_is_not_lost_and_not_its_own(storage: type[ReferenceStorage]) -> None:
    """An attempt that does not count, an old token that is good, and a lease without an end are caught."""
    async with on(ReferenceTarget(storage)) as both:
        with pytest.raises(Broken):
            await agent_races.killed_before_acknowledging(both, Here(both.other))


async def interrupted(
    storage: type[ReferenceStorage], spoil: Callable[[ReferenceStorage], None] = lambda storage: None
) -> tuple[StoredAgents, Load]:
    """A load on a storage that refuses every call's change for a while, and then has been spoilt; what is stored."""
    target = ReferenceTarget(storage, clock=lambda: lambda: datetime.now(UTC))
    async with target.open() as subject:
        client = cast("ReferenceStorage", subject.storage)
        load = Load(client)

        async def crash() -> None:
            before, client.on_agent_write = client.on_agent_write, refuse
            await load.refused.wait()
            client.on_agent_write = before
            spoil(client)

        await load.run(crash)
        stored = (await target.probe(subject)).agents
        assert stored is not None
        return stored, load


def refuse(point: str, agent: Agent) -> None:
    """As a server that is gone by the time that the second envelope of two, or an event, is written."""
    if point == "event" or agent == BOB:
        raise StorageUnavailable(f"The {point} of {agent.name} cannot be reached.")


def without_the_last_exchange(storage: ReferenceStorage) -> None:
    """What was answered last is gone."""
    for agent in (ANN, BOB):
        row = storage.envelope(agent)
        dedupe = {key: revision for key, revision in row.dedupe.items() if revision < row.revision}
        kept = replace(row, revision=row.revision - 1, exchanges=row.exchanges[1:], dedupe=dedupe)
        storage.agents.envelopes[agent] = kept


def without_a_dedupe_key(storage: ReferenceStorage) -> None:
    """An exchange is there whose key is not."""
    row = storage.envelope(BOB)
    storage.agents.envelopes[BOB] = replace(row, dedupe=dict(list(row.dedupe.items())[1:]))


def without_an_event(storage: ReferenceStorage) -> None:
    """The first event is gone, whether or not it was acknowledged."""
    events = storage.agents.events[ANN]
    del events[next(iter(events))]


def acknowledged_once_more(storage: ReferenceStorage) -> None:
    """The first event, which was acknowledged, waits again."""
    events = storage.agents.events[ANN]
    first = next(row for row in events.values() if row.acked)
    events[first.id] = replace(first, acked=False)


class EveryOther(ReferenceStorage):
    """An acknowledgement of an event with an odd number is answered, and not stored."""

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        """Half of the time the outcome only."""
        if int(event_id.partition("-")[2]) % 2:
            return self.outcome(self.delivered_event(agent, event_id), token)
        return await super().ack(agent, event_id, token)


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that are soon over."""
    monkeypatch.setattr(agent_load, "LEASE", 0.05)


@pytest.mark.usefixtures("short_lease")
async def test_a_load_on_the_reference_settles() -> None:
    """What was refused may be stored or not; what was told is."""
    settled(*await interrupted(ReferenceStorage))


@pytest.mark.usefixtures("short_lease")
@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (without_the_last_exchange, "how often revisions were told"),
        (without_a_dedupe_key, "revisions with a dedupe key of bob"),
        (without_an_event, "events that are stored"),
        (acknowledged_once_more, "how often acknowledged events were told"),
    ],
)
async def test_what_is_lost_by_a_crash_is_caught(spoil: Callable[[ReferenceStorage], None], what: str) -> None:
    """What was told and is not stored, or is to be done again, is named."""
    stored, load = await interrupted(ReferenceStorage, spoil)
    with pytest.raises(Broken, match=what):
        settled(stored, load)


@pytest.mark.usefixtures("short_lease")
async def test_a_storage_with_nothing_in_it_does_not_settle() -> None:
    """Nothing of what was told is there, though nothing has a gap."""
    _, load = await interrupted(ReferenceStorage)
    with pytest.raises(Broken, match="appended revisions that are stored for ann"):
        settled(StoredAgents((), (), (), ()), load)


@pytest.mark.usefixtures("short_lease")
@pytest.mark.parametrize(
    ("storage", "what"),
    [
        (WritesPeersOneByOne, "the revision of the second of two"),
        (JumpsToCurrent, "revisions up to last seen that were carried"),
        (EveryOther, "acknowledged events"),
    ],
)
async def test_a_storage_that_breaks_a_rule_does_not_settle(storage: type[ReferenceStorage], what: str) -> None:
    """Halves of exchanges, what is seen that nothing carried, and acknowledgements that are not kept are named."""
    with pytest.raises(Broken, match=what):
        settled(*await interrupted(storage))


@pytest.mark.usefixtures("short_lease")
async def test_a_load_that_nothing_interrupts_is_not_exercised() -> None:
    """A crash that comes too late says nothing."""

    async def nothing() -> None:
        pass

    with pytest.raises(NotExercised, match="too late"):
        await Load(ReferenceStorage()).run(nothing)


FOLLOWER = """
import asyncio
from muniment.conformance.agent_process import follow
from muniment.reference import ReferenceStorage

asyncio.run(follow(ReferenceStorage()))
"""


async def test_a_process_does_what_it_is_told_until_it_is_killed(tmp_path: Path) -> None:
    """It appends and claims on a storage of its own, answers each order, and has no answer once it is dead."""
    script = tmp_path / "follower.py"
    script.write_text(FOLLOWER)
    async with start(script) as process:
        assert await process.append(ANN, "first ", 3) == [1, 2, 3]
        assert await process.append(ANN, "second ", 1) == [4]
        assert await process.take(ANN, "token") == []
        await process.kill()
        with pytest.raises(Broken, match="seen its end"):
            await process.answer()


async def test_a_process_that_does_not_open_is_broken(tmp_path: Path) -> None:
    """It ends before its first word, or its first word is another one."""
    script = tmp_path / "follower.py"
    for text, seen in (("", "its end"), ("print('1')", "1")):
        script.write_text(text)
        with pytest.raises(Broken, match=f"seen {seen}"):
            async with start(script):
                pass
