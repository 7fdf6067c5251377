"""Twins: which mutants a check need not be run on, since they did nothing else there than their base."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from muniment.conformance.mutants.reach import Differences, noting
from muniment.conformance.reference_target import CoarseClock
from muniment.models import Agent
from muniment.ports import Audience, ProjectFacts
from muniment.reference import ReferenceData, ReferenceStorage
from muniment.reference.rows import ProjectRow

ALICE = Audience("alice", frozenset({"team"}))
ADA = Agent(name="ada", instance="1")
Use = Callable[[ReferenceStorage], Awaitable[object]]


async def found(mutant: type[ReferenceStorage], *uses: Use) -> bool:
    """Whether a mutant was told from the reference storage by these calls at once."""
    differences = Differences({"it": mutant})
    storage: ReferenceStorage = noting(ReferenceStorage, differences)(ReferenceData(), clock=CoarseClock())
    at = CoarseClock.START
    storage.data.projects["p"] = ProjectRow("p", "key", "alice", 1, at, at, {})
    await asyncio.gather(*(use(storage) for use in uses))
    return "it" in differences.found


async def by_key(storage: ReferenceStorage) -> object:
    return await storage.find_projects(ALICE, "key")


async def by_another_key(storage: ReferenceStorage) -> object:
    return await storage.find_projects(ALICE, "another")


async def registers(storage: ReferenceStorage) -> object:
    return await storage.register_agent(ADA, frozenset({"pod"}))


class InAnyCase(ReferenceStorage):
    """Differs for a key in capitals only."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        return super().is_called(row, name.casefold())


class InReverse(ReferenceStorage):
    """Differs by the order of more than one."""

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        return [*reversed(await super().find_projects(audience, name))]


class AsTuple(ReferenceStorage):
    """Differs by a type."""

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        return tuple(await super().find_projects(audience, name))


class Refuses(ReferenceStorage):
    """Raises where something is found."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        if super().is_called(row, name):
            raise LookupError(name)
        return False


class CountsToTwo(ReferenceStorage):
    """Answers the same, keeps something for itself, and answers by that in the end."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        calls = vars(self)["calls"] = vars(self).get("calls", 0) + 1
        return calls <= 2 and super().is_called(row, name)


class AnotherWay(ReferenceStorage):
    """Takes another step, which makes no difference to who calls."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        if super().is_called(row, name):
            raise LookupError(name)
        return False

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        await self.pause()
        rows = self.readable_projects(audience)
        return [self.project_facts(row, audience) for row in rows if super(AnotherWay, self).is_called(row, name)]


class LooksBefore(ReferenceStorage):
    """Does the same, by what was there before others ran."""

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        before = self.envelope(agent)
        await self.pause()
        self.store({agent: replace(before, pods=pods)})


class MemoriesInAnotherPlace(ReferenceStorage):
    """Puts other rows in the place of those that are there, and answers the same."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        self.data.projects = {}
        return super().is_called(row, name)


class ReadsTheClock(ReferenceStorage):
    """Answers the same, and makes the time go on."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        self.clock()
        return super().is_called(row, name)


class TouchesTheRow(ReferenceStorage):
    """Answers the same, and stores something."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        self.data.projects[row.id] = replace(row, version=row.version + 1)
        return super().is_called(row, name)


class WaitsTwice(ReferenceStorage):
    """Answers the same, and lets others run once more."""

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        await self.pause()
        return await super().find_projects(audience, name)


class DropsPods(ReferenceStorage):
    """Stores something else."""

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        await super().register_agent(agent, frozenset())


class SameByHand(ReferenceStorage):
    """Does the same in other words, and stores the same."""

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        return list(await super().find_projects(audience, name))

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        await self.pause()
        self.store({agent: replace(self.envelope(agent), pods=pods)})


@pytest.mark.parametrize("mutant", [AsTuple, Refuses, ReadsTheClock, TouchesTheRow, WaitsTwice, MemoriesInAnotherPlace])
async def test_what_differs_in_a_call_is_found(mutant: type[ReferenceStorage]) -> None:
    """By its answer, what it raises, keeps or stores, by the clock, and by when others run."""
    assert await found(mutant, by_key)


async def test_what_is_stored_otherwise_is_found() -> None:
    """Though the answer is the same."""
    assert await found(DropsPods, registers)


@pytest.mark.parametrize("mutant", [InAnyCase, InReverse, SameByHand, AnotherWay])
async def test_what_does_the_same_is_not_found(mutant: type[ReferenceStorage]) -> None:
    """For these arguments and these rows it is as its base."""
    assert not await found(mutant, by_key)
    assert not await found(mutant, by_another_key)
    assert not await found(mutant, registers)


async def test_what_only_differs_elsewhere_is_not_found() -> None:
    """A refusal of what is found does not show where nothing is."""
    assert not await found(Refuses, by_another_key)


async def test_what_a_mutant_keeps_for_itself_counts_where_it_shows() -> None:
    """Its twin keeps it from one call to the next."""
    assert not await found(CountsToTwo, by_key)
    assert not await found(CountsToTwo, by_key, by_key)
    assert await found(CountsToTwo, by_key, by_key, by_key)


async def by_key_between_others(storage: ReferenceStorage) -> object:
    """A search that was begun before another call changed something, and looks at it afterwards."""
    return await asyncio.gather(storage.find_projects(ALICE, "key"), storage.register_agent(ADA, frozenset()))


async def test_a_call_before_which_others_ran_is_judged_by_what_they_left() -> None:
    """As long as nothing was done or looked at before; otherwise the check is run on the mutant itself."""
    assert not await found(SameByHand, by_key_between_others)
    assert await found(DropsPods, by_key_between_others, registers)
    assert not await found(SameByHand, registers, by_key, registers)
    assert not await found(LooksBefore, registers)
    assert await found(LooksBefore, by_key_between_others, registers)


async def test_the_base_stays_as_it_is() -> None:
    """What a twin does has no effect on what is judged beside it."""
    differences = Differences({"it": TouchesTheRow, "other": ReadsTheClock, "third": Refuses})
    clock = CoarseClock()
    storage: ReferenceStorage = noting(ReferenceStorage, differences)(ReferenceData(), clock=clock)
    storage.data.projects["p"] = row = ProjectRow("p", "key", "alice", 1, CoarseClock.START, CoarseClock.START, {})

    assert [one.id for one in await storage.find_projects(ALICE, "key")] == ["p"]
    assert storage.data.projects == {"p": row}
    assert vars(clock) == vars(CoarseClock())
    assert differences.found == {"it", "other", "third"}


async def test_what_the_base_has_stored_stays() -> None:
    """Though twins stored something else after it."""
    differences = Differences({"it": DropsPods, "other": SameByHand})
    storage: ReferenceStorage = noting(ReferenceStorage, differences)(ReferenceData(), clock=CoarseClock())

    await registers(storage)
    assert (await storage.load_envelope(ADA)).pods == {"pod"}
    assert differences.found == {"it"}
