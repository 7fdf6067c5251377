"""Twins: which mutants a check need not be run on, since they did nothing else there than their base."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from muniment.conformance.mutants.likeness import Copies, alike
from muniment.conformance.mutants.reach import Differences, noting
from muniment.conformance.mutants.watched import Touched, journal_of
from muniment.conformance.reference_target import CoarseClock
from muniment.conformance.reference_transport import ReferenceTransport
from muniment.engine import Engine
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Audience, AuditDraft, ProjectFacts
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


class Counts(ReferenceStorage):
    """Answers the same, and keeps something for itself."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        vars(self)["calls"] = vars(self).get("calls", 0) + 1
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


@pytest.mark.parametrize("mutant", [AsTuple, Refuses, Counts, ReadsTheClock, TouchesTheRow, WaitsTwice])
async def test_what_differs_in_a_call_is_found(mutant: type[ReferenceStorage]) -> None:
    """By its answer, what it raises, keeps or stores, by the clock, and by when others run."""
    assert await found(mutant, by_key)


async def test_what_is_stored_otherwise_is_found() -> None:
    """Though the answer is the same."""
    assert await found(DropsPods, registers)


@pytest.mark.parametrize("mutant", [InAnyCase, InReverse, SameByHand])
async def test_what_does_the_same_is_not_found(mutant: type[ReferenceStorage]) -> None:
    """For these arguments and these rows it is as its base."""
    assert not await found(mutant, by_key)
    assert not await found(mutant, by_another_key)
    assert not await found(mutant, registers)


async def test_what_only_differs_elsewhere_is_not_found() -> None:
    """A refusal of what is found does not show where nothing is."""
    assert not await found(Refuses, by_another_key)


async def test_a_call_that_others_disturb_decides_nothing() -> None:
    """Then it counts when exactly each of its steps was taken, so the check is run on the mutant itself."""
    assert await found(SameByHand, registers, by_key)


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


class AsksTwice(ReferenceTransport):
    """Calls the engine once more."""

    async def called(self, operation: str, sent: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        await super().called(operation, {})
        return await super().called(operation, {})


class PassesOn(ReferenceTransport):
    """Hands the call on as it is."""

    async def called(self, operation: str, sent: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        return await super().called(operation, {})


class KnowsBetter(ReferenceTransport):
    """Looks at the engine by itself."""

    async def called(self, operation: str, sent: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert self.engine.operations
        return await super().called(operation, {})


@pytest.mark.parametrize(("mutant", "differs"), [(PassesOn, False), (AsksTwice, True), (KnowsBetter, True)])
async def test_a_call_is_handed_on_once(mutant: type[ReferenceTransport], differs: bool) -> None:
    """A transport's twin gets what the engine answered its base, and has no engine of its own."""
    differences = Differences({"it": mutant})
    context = CallContext(principal=Principal(user="alice"), surface="test")
    async with Engine(ReferenceStorage(), None, background=False) as engine:
        await noting(ReferenceTransport, differences)(engine, context).called("project.list", {})
    assert ("it" in differences.found) is differs


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0.0, -0.0),
        ([1], (1,)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.zeros(2, np.float32), np.zeros(2)),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, fold=1, tzinfo=UTC)),
        (ValueError("one"), ValueError("other")),
        (None, ALICE),
        (AuditDraft, ALICE),
    ],
)
def test_what_could_be_told_apart_is_not_alike(one: object, other: object) -> None:
    """Equal is not enough."""
    assert alike(one, one)
    assert not alike(one, other)
    assert not alike(other, one)


def test_what_is_stored_can_be_closed() -> None:
    """Each way of changing it is refused, and told of before, also in what a row of it holds."""
    data, told = ReferenceData(), list[str]()
    data.agents.events[ADA] = {}
    journal = journal_of(data)
    journal.waiting.append(lambda: told.append("changed"))
    data.spaces.pop("none", None)
    assert told == ["changed"]
    journal.closed = True
    for change in (
        lambda: data.memories.clear(),
        lambda: data.agents.events[ADA].update(),
        lambda: data.agents.events.setdefault(ADA, {}),
        lambda: data.columns.add("another"),
    ):
        with pytest.raises(Touched):
            change()


def test_copies_are_alike_and_apart() -> None:
    """What is one object in the original is one in the copy, and none of the original's."""
    data = ReferenceData()
    journal_of(data)
    copied, again, agents = Copies().of((data, data, data.agents))
    assert copied is again
    assert copied.agents is agents
    assert alike(copied, data)
    copied.columns.add("another")
    assert not alike(copied, data)
