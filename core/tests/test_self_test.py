"""The self-test: an author's target is relied on only where it shows what a broken plugin does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from muniment.conformance.invariant import Level, Outcome
from muniment.conformance.reference_target import HashTarget, ReferenceSubject, ReferenceTarget
from muniment.conformance.reference_transport import ReferenceTransportTarget
from muniment.conformance.registry import judging
from muniment.conformance.report import Result
from muniment.conformance.self_test import Rehearsal, SelfTest, self_test
from muniment.conformance.target import AgentFaultPoint, FaultPoint, RemoteClient, Stored, StoredPassage, Target
from muniment.engine import Engine
from muniment.models import Agent, CallContext
from muniment.ports import Embedder, Storage, Vectors
from muniment.reference import HashEmbedder, ReferenceData, ReferenceStorage


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


class ProbesNothing(ReferenceTarget):
    """A probe that finds every subject empty."""

    async def probe(self, subject: ReferenceSubject) -> Stored:
        return Stored()


class ProbesWhatIsDeleted(ReferenceTarget):
    """A probe that goes on telling of the passages of a memory that was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[int, str], StoredPassage] = {}

    async def probe(self, subject: ReferenceSubject) -> Stored:
        found = await super().probe(subject)
        self._seen |= {(id(subject.data), one.hash): one for one in found.passages}
        seen = tuple(one for (data, _), one in self._seen.items() if data == id(subject.data))
        return replace(found, passages=seen)


class ProbesNoVersions(ReferenceTarget):
    """A probe that leaves out of an envelope what was written to its sections."""

    async def probe(self, subject: ReferenceSubject) -> Stored:
        found = await super().probe(subject)
        assert found.agents is not None
        envelopes = tuple(replace(one, versions={}) for one in found.agents.envelopes)
        return replace(found, agents=replace(found.agents, envelopes=envelopes))


class ProbesNoTokens(ReferenceTarget):
    """A probe that leaves out of an event how it was delivered."""

    async def probe(self, subject: ReferenceSubject) -> Stored:
        found = await super().probe(subject)
        assert found.agents is not None
        events = tuple(replace(one, token=None) for one in found.agents.events)
        return replace(found, agents=replace(found.agents, events=events))


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


class FaultsAppendsOnly(ReferenceTarget):
    """A fault of an envelope that lets writes of its sections through."""

    @asynccontextmanager
    async def fault_agent(
        self, subject: ReferenceSubject, point: AgentFaultPoint, agent: Agent
    ) -> AsyncGenerator[None]:
        storage = subject.storage
        assert isinstance(storage, ReferenceStorage)
        write = storage.write_sections

        async def written(*positional: Any) -> Any:
            held = set(subject.failing)
            subject.failing.clear()
            try:
                return await write(*positional)
            finally:
                subject.failing |= held

        storage.write_sections = written  # pyright: ignore[reportAttributeAccessIssue]
        try:
            async with super().fault_agent(subject, point, agent):
                yield
        finally:
            del storage.write_sections


class FaultsForEver(ReferenceTarget):
    """A fault of an agent that is not taken back."""

    @asynccontextmanager
    async def fault_agent(
        self, subject: ReferenceSubject, point: AgentFaultPoint, agent: Agent
    ) -> AsyncGenerator[None]:
        subject.failing.add((point, agent))
        yield


class Crashes(ReferenceTarget):
    """A server that is killed: what its clients write fails from then on, and it comes back with what was stored."""

    async def crash(self, subject: ReferenceSubject) -> None:
        subject.failing.add(FaultPoint.MEMORY)
        subject.failing = set[object]()


class CrashesNothing(ReferenceTarget):
    """A crash that kills nobody."""

    async def crash(self, subject: ReferenceSubject) -> None:
        await asyncio.sleep(0)


class ComesBackEmpty(Crashes):
    """A crash after which there is another server."""

    async def crash(self, subject: ReferenceSubject) -> None:
        await super().crash(subject)
        subject.data = ReferenceData()


class OneForAll(HashTarget):
    """An open that gives everybody the same embedder, which the first one closes."""

    def __init__(self) -> None:
        super().__init__()
        self._only = Closable()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Embedder]:
        try:
            yield self._only
        finally:
            self._only.closed = True


class Closable(HashEmbedder):
    """An embedder that knows whether it is open."""

    closed = False

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        assert not self.closed
        return await super().embed_passages(texts)


class AnswersItself(ReferenceTransportTarget):
    """A client that asks an engine of its own, whatever it is to be connected to."""

    @asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[RemoteClient]:
        async with (
            Engine(ReferenceStorage(), HashEmbedder(), background=False) as own,
            super().connect(own, context) as client,
        ):
            yield client


class IsAlwaysAlice(ReferenceTransportTarget):
    """Connections that all are of one principal."""

    @asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[RemoteClient]:
        alice = context.principal.model_copy(update={"user": "alice"})
        async with super().connect(engine, context.model_copy(update={"principal": alice})) as client:
            yield client


class LayoutOfRows(ReferenceTarget):
    """A layout that tells how many rows there are."""

    async def layout(self, subject: ReferenceSubject) -> frozenset[str]:
        return await super().layout(subject) | {f"{len(subject.data.memories)} memories"}


class AgesEventsOnly(ReferenceTarget):
    """An age that forgets the leases of memories that are embedded."""

    async def age(self, subject: ReferenceSubject, seconds: float) -> None:
        leases = dict(subject.data.leases)
        await super().age(subject, seconds)
        subject.data.leases |= leases


class AgesNothing(ReferenceTarget):
    """An age that moves no lease."""

    async def age(self, subject: ReferenceSubject, seconds: float) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (RemembersItsProbe, {"probe"}),
        (ProbesNothing, {"probe"}),
        (ProbesWhatIsDeleted, {"probe"}),
        (ProbesNoVersions, {"probe"}),
        (ProbesNoTokens, {"probe"}),
        (ProbesThroughThePlugin, {"probe"}),
        (SecondIsTheFirst, {"second"}),
        (SecondIsElsewhere, {"second", "reopen"}),
        (SharesItsSubjects, {"open"}),
        (FaultsNothing, {"fault"}),
        (SwallowsInFaults, {"exceptions"}),
        (FaultsAppendsOnly, {"fault_agent"}),
        (FaultsForEver, {"fault_agent"}),
        (LayoutOfRows, {"layout"}),
        (AgesEventsOnly, {"age"}),
        (AgesNothing, {"age"}),
        (CrashesNothing, {"crash"}),
        (ComesBackEmpty, {"crash"}),
        (OneForAll, {"open"}),
        (AnswersItself, {"connect"}),
        (IsAlwaysAlice, {"connect"}),
    ],
)
async def test_a_target_that_lies_is_told_what_about(make: Callable[[], Target], named: set[str]) -> None:
    """The part that hides something is named, with what was expected of it and what was seen."""
    target = make()
    found = await tried(target, judging(target)[0].id)

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
    assert "No check of MUT came to a judgement, which shows nothing: AttributeError: rows" in found.as_text()


def ended(invariant: str, outcome: Outcome) -> Result:
    """A result."""
    return Result(invariant, outcome, 0, "said", "It holds.", Level.MUST, "docs")


@pytest.mark.parametrize(
    ("outcomes", "unjudged", "shown"),
    [
        ({}, (), False),
        ({"MUT-01": Outcome.FAIL}, (), True),
        ({"MUT-01": Outcome.NOT_EXERCISED}, ("MUT",), False),
        ({"MUT-01": Outcome.NOT_EXERCISED, "MUT-02": Outcome.ERROR}, ("MUT",), False),
        ({"MUT-01": Outcome.FAIL, "MUT-02": Outcome.NOT_EXERCISED}, (), True),
        ({"MUT-01": Outcome.FAIL, "ACC-01": Outcome.NOT_EXERCISED}, ("ACC",), False),
        ({"MUT-01": Outcome.FAIL, "MUT-02": Outcome.PASS}, (), False),
    ],
)
def test_a_rehearsal_without_a_judgement_shows_nothing(
    outcomes: Mapping[str, Outcome], unjudged: tuple[str, ...], shown: bool
) -> None:
    """Something must have been judged, in each family; what was not exercised was not."""
    results = tuple(ended(invariant, outcome) for invariant, outcome in outcomes.items())
    rehearsal = Rehearsal("do nothing", "Nothing is stored.", results, False)

    assert (rehearsal.unjudged, rehearsal.shown) == (unjudged, shown)
    assert rehearsal.as_text().startswith("ok" if shown else "FAIL")


def test_a_self_test_of_nothing_is_no_proof() -> None:
    """Neither without a check of the target, nor without a mutant."""
    good = Rehearsal("do nothing", "Nothing is stored.", (ended("MUT-01", Outcome.FAIL),), False)
    checked = ended("TARGET-01", Outcome.PASS)

    assert SelfTest("toy", 7, (checked,), (good,)).exit_code == 0
    for nothing in (SelfTest("toy", 7, (), ()), SelfTest("toy", 7, (checked,), ()), SelfTest("toy", 7, (), (good,))):
        assert nothing.exit_code == 1


class WithoutAge(ReferenceTarget):
    """A target that ages no lease."""

    @property
    def can_age(self) -> bool:
        return False


@pytest.mark.parametrize(("make", "absent"), [(WithoutAge, {"age", "crash"}), (Crashes, set[str]())])
async def test_what_is_optional_is_tried_where_it_is_there(make: Callable[[], Target], absent: set[str]) -> None:
    """A target without ``age`` or ``crash`` can be relied on, and the report says that it has none."""
    found = await tried(make())
    statements = {result.statement.partition(" ")[0] for result in found.plumbing}

    assert found.exit_code == 0, found.as_text()
    assert statements.isdisjoint(absent)
    assert {"age", "crash"} - absent <= statements
    for name in ("age", "crash"):
        assert (f"none  {name}: " in found.as_text()) is (name in absent)


async def test_the_connection_of_the_author_carries_what_a_broken_engine_says() -> None:
    """A client that invents its answers passes on engines that keep no rule, which is what it hides."""
    found = await tried(AnswersItself(), "MUT-06", "READ")

    for rehearsal in found.rehearsals:
        assert "MUT-06" in rehearsal.hidden


class Asked(HashTarget):
    """The hash embedder, which notes what it is asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        super().__init__(self.noting)

    def noting(self) -> Embedder:
        """An embedder that notes."""
        asked = self.texts

        class Noting(HashEmbedder):
            async def embed_passages(self, texts: Sequence[str]) -> Vectors:
                asked.extend(texts)
                return await super().embed_passages(texts)

        return Noting(96)


async def test_the_embedder_of_the_author_is_what_is_broken() -> None:
    """It is asked, and only what it gives is spoilt: the shape of a vector of zeros is its own."""
    target = Asked()
    found = await tried(target, "EMB-01")
    zeros = next(one for one in found.rehearsals if one.mutant == "vectors of zeros").results[0]

    assert "Our database is PostgreSQL." in target.texts
    assert zeros.detail.startswith("the length of the vector")
    assert found.exit_code == 0
