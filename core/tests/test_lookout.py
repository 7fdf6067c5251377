"""Whoever stands by is told of what other processes made claimable: engines of their own on one storage's data."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muniment.engine import Engine, lookout
from muniment.engine.arrivals import Arrivals
from muniment.engine.lookout import PAUSE_SECONDS, PAUSE_SECONDS_MAX, Lookout
from muniment.errors import StorageUnavailable
from muniment.models import Agent, CallContext, Principal
from muniment.reference import ReferenceData, ReferenceStorage

ADA, BEA = (Agent(name=name, instance="1") for name in ("ada", "bea"))
PLATFORM = CallContext(principal=Principal(user="platform", platform=True))
KEEPER = CallContext(principal=Principal(user="keeper", agent=ADA))


class Shared(ReferenceStorage):
    """A client of shared data that counts its looks, and fails them while it is told to."""

    def __init__(self, data: ReferenceData, **more: Any) -> None:
        super().__init__(data, **more)
        self.looks: list[Sequence[Agent]] = []
        self.looked = asyncio.Event()
        self.away = False

    async def agents_waiting(self, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
        self.looks.append(agents)
        self.looked.set()
        if self.away:
            raise StorageUnavailable("It is at /var/lib/private.")
        return await super().agents_waiting(agents, attempts_max=attempts_max)


class Time:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Here:
    """This process: an engine's parts that are judged; and another process's engine on the same data."""

    def __init__(self) -> None:
        self.data = ReferenceData()
        self.behind = timedelta(0)
        self.storage = Shared(self.data)
        self.arrivals = Arrivals()
        self.time = Time()
        self.lookout = Lookout(self.storage, self.arrivals, clock=self.time)
        self.elsewhere = Engine(ReferenceStorage(self.data, clock=self.clock), None, background=False)
        self.storage.clock = self.clock

    def clock(self) -> datetime:
        """The storage's."""
        return datetime.now(UTC) + self.behind

    async def enqueue(self, agent: Agent = ADA) -> None:
        """Through the other process."""
        ref = {"name": agent.name, "instance": agent.instance}
        await self.elsewhere.call("event.enqueue", {"agent": ref, "payload": {}}, PLATFORM)

    async def claim(self) -> int:
        """Through the other process; how many were had."""
        claimed = await self.elsewhere.call("event.claim", {"limit": 5, "lease_seconds": 60}, KEEPER)
        return len(claimed.model_dump()["items"])

    async def told(self, agent: Agent = ADA) -> bool:
        """Whether a look tells an agent."""
        before = self.arrivals.place(agent)
        await self.lookout.look()
        return self.arrivals.place(agent) > before


@pytest.fixture
async def here() -> Here:
    """Nobody is looked for by itself."""
    return Here()


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look but those that a test takes."""

    def nothing(self: Lookout) -> None:
        return

    monkeypatch.setattr(Lookout, "_begin", nothing)


@pytest.mark.usefixtures("still")
async def test_what_another_process_enqueues_is_told(here: Here) -> None:
    """To the agent that it is for, at the next look, and not again at the one after."""
    with here.lookout.standing_by(ADA), here.lookout.standing_by(BEA):
        assert not await here.told()
        await here.enqueue()
        assert await here.told()
        assert here.arrivals.place(BEA) == 0
        assert not await here.told()
        await here.enqueue(BEA)
        assert await here.told(BEA)


@pytest.mark.usefixtures("still")
async def test_a_lease_that_ran_out_is_told(here: Here) -> None:
    """Whoever took the event and died."""
    await here.enqueue()
    assert await here.claim() == 1
    with here.lookout.standing_by(ADA):
        assert not await here.told()
        here.behind = timedelta(seconds=61)
        assert await here.told()


@pytest.mark.usefixtures("still")
async def test_who_comes_is_told_at_once_of_what_waits(here: Here) -> None:
    """Also where another stream of the same agent stands by, and was told."""
    await here.enqueue()
    with here.lookout.standing_by(ADA):
        assert await here.told()
        assert not await here.told()
        with here.lookout.standing_by(ADA):
            assert await here.told()


@pytest.mark.usefixtures("still")
async def test_what_goes_on_waiting_is_told_again(here: Here) -> None:
    """After pauses that double up to the longest: all may have been claimed elsewhere, and more have come since."""
    await here.enqueue()
    began, told = here.time.seconds, list[float]()
    with here.lookout.standing_by(ADA):
        while here.time.seconds < began + 100:
            if await here.told():
                told.append(here.time.seconds - began)
            here.time.seconds += PAUSE_SECONDS

    assert told == [0, 1, 3, 7, 15, 31, 61, 91]
    assert max(later - earlier for earlier, later in itertools.pairwise(told)) == PAUSE_SECONDS_MAX


@pytest.mark.usefixtures("still")
async def test_what_comes_after_all_was_claimed_is_told_at_once(here: Here) -> None:
    """A look that saw nothing wait, or a claim through this process, ends the pause."""
    with here.lookout.standing_by(ADA):
        await here.enqueue()
        assert await here.told()
        assert await here.claim() == 1
        assert not await here.told()
        await here.enqueue()
        assert await here.told()
        await here.claim()
        here.lookout.claimed(ADA)
        await here.enqueue()
        assert await here.told()


@pytest.mark.usefixtures("still")
async def test_what_this_process_saw_arrive_is_told_once(here: Here) -> None:
    """Its own word came before the look."""
    with here.lookout.standing_by(ADA):
        await here.enqueue()
        here.arrivals.note(ADA)
        assert not await here.told()
        here.time.seconds += PAUSE_SECONDS
        assert await here.told()


async def test_a_claim_ends_the_pause_of_who_claims() -> None:
    """Through the engine that the agent stands by at."""
    here = Here()
    async with Engine(ReferenceStorage(here.data), None, background=False) as engine:
        with engine.lookout.standing_by(ADA):
            await here.enqueue()
            await engine.lookout.look()
            await engine.call("event.claim", {}, KEEPER)
            await here.enqueue()
            before = engine.arrivals.place(ADA)
            await engine.lookout.look()
            assert engine.arrivals.place(ADA) > before


async def test_one_question_is_asked_for_all(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as somebody stands by: whoever comes is looked for at once, and nobody is asked about once all left."""
    monkeypatch.setattr(lookout, "LOOK_SECONDS", 30)
    await here.enqueue(BEA)
    with here.lookout.standing_by(ADA), here.lookout.standing_by(ADA):
        await here.storage.looked.wait()
        here.storage.looked.clear()
        with here.lookout.standing_by(BEA):
            await asyncio.wait_for(here.arrivals.wait(BEA, 0), 20)
    assert [set(asked) for asked in here.storage.looks] == [{ADA}, {ADA, BEA}]
    monkeypatch.setattr(lookout, "LOOK_SECONDS", 0)
    await here.lookout.stop()
    with here.lookout.standing_by(ADA):
        await asyncio.wait_for(here.storage.looked.wait(), 20)
    await asyncio.wait_for(here.lookout.ended(), 20)
    looks = len(here.storage.looks)
    await here.lookout.look()
    assert len(here.storage.looks) == looks


async def test_a_storage_that_is_away_is_asked_again(
    here: Here, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once and by its code, and what came meanwhile is told when it is back."""
    monkeypatch.setattr(lookout, "LOOK_SECONDS", 0)
    here.storage.away = True
    with caplog.at_level(logging.WARNING), here.lookout.standing_by(ADA):
        while len(here.storage.looks) < 3:
            here.storage.looked.clear()
            await asyncio.wait_for(here.storage.looked.wait(), 20)
        await here.enqueue()
        assert here.arrivals.place(ADA) == 0
        here.storage.away = False
        await asyncio.wait_for(here.arrivals.wait(ADA, 0), 20)
    await here.lookout.stop()
    (record,) = caplog.records
    assert "storage_unavailable" in record.getMessage()
    assert "private" not in record.getMessage()


async def test_an_older_storage_is_not_asked() -> None:
    """A plugin of contract 1.1 cannot tell: nothing is looked for, and whoever stands by is told so."""

    class Older:
        pass

    of_older = Lookout(Older(), Arrivals())
    assert not of_older.exact
    with of_older.standing_by(ADA):
        await of_older.look()
    await of_older.stop()


async def test_an_engine_that_is_closed_looks_no_more() -> None:
    """Also with somebody standing by."""
    storage = Shared(ReferenceData())
    async with Engine(storage, None, background=False) as engine:
        standing = engine.lookout.standing_by(ADA)
        with standing:
            await asyncio.wait_for(storage.looked.wait(), 20)
            await engine.lookout.stop()
    await asyncio.wait_for(engine.lookout.ended(), 1)
