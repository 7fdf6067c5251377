"""The self-test: an author's target is relied on only where it shows what a broken plugin does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from muniment.conformance.invariant import Outcome
from muniment.conformance.reference_target import HashTarget, ReferenceSubject, ReferenceTarget
from muniment.conformance.reference_transport import ReferenceTransportTarget
from muniment.conformance.registry import judging
from muniment.conformance.self_test import SelfTest, self_test
from muniment.conformance.target import FaultPoint, Stored, Target
from muniment.ports import Storage
from muniment.reference import ReferenceData


async def tried(target: Target, *only: str) -> SelfTest:
    """What is found of a target."""
    return await self_test(target, only=only or ("MUT-01",), seed=36)


def complaints(found: SelfTest) -> set[str]:
    """The first words of what the target does not do."""
    return {result.statement.partition(" ")[0] for result in found.plumbing if result.outcome is not Outcome.PASS}


@pytest.mark.parametrize("target", [ReferenceTarget(), HashTarget(), ReferenceTransportTarget()])
async def test_a_good_target_shows_every_universal_mutant(target: Target) -> None:
    """Each turns the suite red in every family of its seat, and the target itself is well."""
    found = await self_test(target, seed=36)
    families = {invariant.family for invariant in judging(target)}

    assert complaints(found) == set()
    assert len(found.rehearsals) == 3
    for rehearsal in found.rehearsals:
        assert rehearsal.shown, rehearsal.as_text()
        assert rehearsal.families.keys() == families
        assert all(red == count > 0 for red, count in rehearsal.families.values())
    assert found.exit_code == 0
    assert found.as_text().endswith("its target shows faults\n")


class RemembersItsProbe(ReferenceTarget):
    """A probe that tells what it told first."""

    first: Stored | None = None

    async def probe(self, subject: ReferenceSubject) -> Stored:
        self.first = self.first or await super().probe(subject)
        return self.first


class ProbesThroughThePlugin(ReferenceTarget):
    """A probe that asks the storage, which could tell it anything."""

    async def probe(self, subject: ReferenceSubject) -> Stored:
        await subject.storage.describe()
        return await super().probe(subject)


class SecondIsTheFirst(ReferenceTarget):
    """A second client that is the first one, so that no race is one."""

    @asynccontextmanager
    async def second(self, subject: ReferenceSubject) -> AsyncGenerator[Storage]:
        yield subject.storage


class SecondIsElsewhere(ReferenceTarget):
    """A second client on data of its own."""

    @asynccontextmanager
    async def second(self, subject: ReferenceSubject) -> AsyncGenerator[Storage]:
        yield self._client(ReferenceData(), subject.clock, set())


class SharesItsSubjects(ReferenceTarget):
    """Every subject is the same place."""

    def __init__(self) -> None:
        super().__init__()
        self._data = ReferenceData()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ReferenceSubject]:
        async with super().open() as subject:
            client = self._client(self._data, subject.clock, subject.failing)
            yield replace(subject, storage=client, data=self._data)


class FaultsNothing(ReferenceTarget):
    """A fault that has no effect."""

    @asynccontextmanager
    async def fault(self, subject: ReferenceSubject, point: FaultPoint) -> AsyncGenerator[None]:
        yield


class SwallowsInFaults(ReferenceTarget):
    """A fault that takes every exception for its own."""

    @asynccontextmanager
    async def fault(self, subject: ReferenceSubject, point: FaultPoint) -> AsyncGenerator[None]:
        async with super().fault(subject, point):
            try:
                yield
            except Exception:
                return


class AgesNothing(ReferenceTarget):
    """An age that moves no lease."""

    async def age(self, subject: ReferenceSubject, seconds: float) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (RemembersItsProbe, {"probe"}),
        (ProbesThroughThePlugin, {"probe"}),
        (SecondIsTheFirst, {"second"}),
        (SecondIsElsewhere, {"second", "reopen"}),
        (SharesItsSubjects, {"open"}),
        (FaultsNothing, {"fault"}),
        (SwallowsInFaults, {"exceptions"}),
        (AgesNothing, {"age"}),
    ],
)
async def test_a_target_that_lies_is_told_what_about(make: Callable[[], Target], named: set[str]) -> None:
    """The part that hides something is named, with what was expected of it and what was seen."""
    found = await tried(make())

    assert named <= complaints(found) <= named | {"probe"}
    assert found.exit_code == 1
    assert "expected: " in found.as_text()
    assert "cannot be relied on" in found.as_text()


class BreaksEveryCheck(ReferenceTarget):
    """A target on which every check crashes, whatever the plugin does."""

    async def probe(self, subject: ReferenceSubject) -> Stored:
        raise AttributeError("rows")

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Any]:
        raise AttributeError("rows")
        yield


async def test_a_suite_that_is_red_by_crashes_alone_shows_nothing() -> None:
    """A check that never came to a judgement is no proof that it can fail."""
    found = await tried(BreaksEveryCheck(), "MUT")

    assert all(rehearsal.unjudged == ("MUT",) for rehearsal in found.rehearsals)
    assert found.exit_code == 1
    assert "Every check of MUT crashed, which shows nothing: AttributeError: rows" in found.as_text()
