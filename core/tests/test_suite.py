"""The suite can fail: the universal mutants, its prerequisites, and the checks that need a backend of their own."""

from __future__ import annotations

import asyncio
import copy
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import pytest

from muniment.conformance import seams
from muniment.conformance.invariant import Broken, NotExercised, Outcome
from muniment.conformance.mutants import UNIVERSAL, Mutant, killed_by
from muniment.conformance.reference_target import HashTarget, ReferenceSubject, ReferenceTarget
from muniment.conformance.registry import BY_ID, FAMILIES, INVARIANTS, judging
from muniment.conformance.report import Result
from muniment.conformance.runner import run
from muniment.conformance.target import FailingEmbedder, FailureKind, FaultPoint, Stored, Target
from muniment.errors import ConfigurationError, EmbedderUnavailable
from muniment.inputs import Input
from muniment.operations import OPERATIONS, Operation
from muniment.ports import Applied, Mutation, Vectors
from muniment.reference import HashEmbedder, ReferenceData, ReferenceStorage
from muniment.reference.agent_rows import AgentData


async def one(target: Target, invariant: str, **options: Any) -> Result:
    """The result of one invariant."""
    return (await run(target, only=[invariant], seed=7, **options)).results[0]


@pytest.mark.parametrize("mutant", UNIVERSAL, ids=lambda mutant: mutant.name)
async def test_a_universal_mutant_fails_every_invariant_that_judges_it(mutant: Mutant) -> None:
    """A plugin that refuses, does or remembers nothing keeps no rule, in any family."""
    killed = await killed_by(mutant)
    assert killed == mutant.fails
    assert {name.partition("-")[0] for name in killed} == {one.family for one in judging(mutant.target)}


def test_ids_are_unique_and_of_a_known_family() -> None:
    """An id names one invariant, and the families are those of the documentation."""
    assert len(BY_ID) == len(INVARIANTS)
    assert {invariant.family for invariant in INVARIANTS} == set(FAMILIES)


def test_the_families_are_whole() -> None:
    """Every id of the families that the suite has is there."""
    sizes = {"MUT": 16, "READ": 6, "ACC": 12, "SCOPE": 5, "VEC": 11, "LEX": 4, "RANK": 2}
    sizes |= {"SEC": 16, "DIG": 6, "ACK": 10, "AUTH": 5, "OPS": 3, "EMB": 7, "TRA": 9}
    wanted = {f"{family}-{number:02}" for family, size in sizes.items() for number in range(1, size + 1)}
    # What an approximate search finds shows only at sizes that no check stores.
    assert set(BY_ID) == wanted - {"VEC-09"}


class OfAnEarlierContract(ReferenceStorage):
    """What a plugin of contract 1.1 has not."""

    @property
    def trail(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise AttributeError("trail")

    @property
    def agents_waiting(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise AttributeError("agents_waiting")

    @property
    def list_spaces(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise AttributeError("list_spaces")


@pytest.mark.parametrize(
    "invariant", ["ACC-01", "ACC-02", "ACC-04", "ACC-09", "ACC-11", "READ-05", "SEC-15", "SCOPE-02", "MUT-16"]
)
async def test_an_older_plugin_is_judged_by_the_operations_of_its_contract(invariant: str) -> None:
    """Those that came with a later one it may not be able to serve."""
    target = ReferenceTarget(OfAnEarlierContract)
    target.contract = "1.1"

    assert (await one(target, invariant)).outcome is Outcome.PASS
    assert not {"ACC-12", "AUTH-05", "OPS-03", "READ-06"} & {found.id for found in judging(target)}


async def test_a_race_that_did_not_happen_is_not_exercised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier that one racer never reaches says so."""
    monkeypatch.setattr(seams, "RACE_PATIENCE", 0.05)
    gate = seams.Gate(ReferenceStorage())
    with pytest.raises(NotExercised, match="1 of 2"):
        async with seams.barrier([gate], ["unembedded"], 2):
            await gate.as_storage().unembedded("space", limit=1)
    async with seams.barrier([gate], ["unembedded"], 2):
        await asyncio.gather(*(gate.as_storage().unembedded("space", limit=1) for _ in range(2)))


async def test_an_operation_that_nobody_judges_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that is added to the registry must be given a recipe, or access to it counts as broken."""
    added = Operation(
        name="memory.shred", title="", description="", input=Input, output=OPERATIONS["memory.get"].output
    )
    monkeypatch.setitem(OPERATIONS, added.name, added)  # type: ignore[arg-type]
    for invariant in ("ACC-01", "ACC-02", "ACC-04", "ACC-07", "ACC-09", "READ-05", "MUT-03", "MUT-14"):
        result = await one(ReferenceTarget(), invariant)
        assert result.outcome is Outcome.FAIL
        assert "memory.shred" in result.detail


@pytest.mark.parametrize("audience", ["agent", "platform"])
async def test_an_operation_of_agents_that_nobody_judges_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, audience: Literal["agent", "platform"]
) -> None:
    """An operation that is an agent's or the platform's must be given a recipe too."""
    added = Operation(
        name="section.shred",
        title="",
        description="",
        input=Input,
        output=OPERATIONS["section.save"].output,
        audience=audience,
    )
    monkeypatch.setitem(OPERATIONS, added.name, added)  # type: ignore[arg-type]
    for invariant in ("SEC-02", "SEC-15", "SEC-16", "READ-05", "ACC-07", "MUT-12"):
        result = await one(ReferenceTarget(), invariant)
        assert result.outcome is Outcome.FAIL
        assert "section.shred" in result.detail


class WithoutAgents(ReferenceTarget):
    """A target of before there was agent memory: it reads nothing of it, and can neither break nor age it."""

    @property
    def can_fault_agent(self) -> bool:
        return False

    @property
    def can_age(self) -> bool:
        return False

    async def probe(self, subject: ReferenceSubject) -> Stored:
        return replace(await super().probe(subject), agents=None)


@pytest.mark.parametrize("invariant", ["SEC-04", "SEC-06", "SEC-12", "DIG-04", "ACK-08"])
async def test_a_target_that_cannot_show_agent_memory_is_not_conformant(invariant: str) -> None:
    """What a target does not give is not exercised, and never passes."""
    assert (await one(WithoutAgents(), invariant)).outcome is Outcome.NOT_EXERCISED


Lose = Callable[[ReferenceData], object]


class Crashing(ReferenceTarget):
    """A server that is killed, and comes back with all that was stored but for what ``lose`` takes away."""

    def __init__(self, lose: Lose = lambda data: None) -> None:
        super().__init__()
        self._lose = lose

    async def crash(self, subject: ReferenceSubject) -> None:
        survived = ReferenceData(
            **{one.name: copy.copy(getattr(subject.data, one.name)) for one in fields(ReferenceData)}
        )
        self._lose(survived)
        subject.failing.add(FaultPoint.MEMORY)
        subject.data, subject.failing = survived, set[object]()


def last_of(rows: dict[Any, Any], count: int = 9) -> None:
    """Lose what was stored last."""
    for key in list(rows)[-count:]:
        del rows[key]


def envelopes_without(**lost: Any) -> Lose:
    """Lose a part of every envelope."""

    def lose(data: ReferenceData) -> None:
        kept = {agent: replace(row, **lost) for agent, row in data.agents.envelopes.items()}
        data.agents = AgentData(kept, data.agents.events)

    return lose


def lose_revocations(data: ReferenceData) -> None:
    """Tokens are good again."""
    data.tokens = {key: replace(row, token=replace(row.token, revoked_at=None)) for key, row in data.tokens.items()}


def lose_terms_of_the_first(data: ReferenceData) -> None:
    """The oldest memory is found by no word."""
    first = next(iter(data.memories))
    data.memories[first] = replace(data.memories[first], terms=None)


LOST_BY_A_CRASH: dict[str, Lose] = {
    "the last memories": lambda data: last_of(data.memories),
    "the trail": lambda data: data.audit.clear(),
    "the last audit entries": lambda data: last_of(data.audit),
    "the receipts": lambda data: data.receipts.clear(),
    "the last receipts": lambda data: last_of(data.receipts),
    "the projects": lambda data: data.projects.clear(),
    "the tokens": lambda data: data.tokens.clear(),
    "the revocations": lose_revocations,
    "the spaces": lambda data: data.spaces.clear(),
    "the terms of a memory": lose_terms_of_the_first,
    "the sections": envelopes_without(sections={}),
    "the pods": envelopes_without(pods=frozenset()),
    "the dedupe keys": envelopes_without(dedupe={}),
    "the queue": lambda data: setattr(data, "agents", AgentData(data.agents.envelopes)),
}


@pytest.mark.parametrize("what", LOST_BY_A_CRASH)
async def test_a_crash_that_loses_what_was_acknowledged_is_seen(what: str) -> None:
    """MUT-16 kills the backend where the target can, and asks for everything that was there."""
    assert (await one(Crashing(LOST_BY_A_CRASH[what]), "MUT-16")).outcome is Outcome.FAIL


async def test_a_crash_that_loses_nothing_passes() -> None:
    """Without one it is said that nothing was killed."""
    result = await one(Crashing(), "MUT-16")
    assert result.outcome is Outcome.PASS
    assert "no crash" not in (result.detail or "")
    assert "no crash" in (await one(ReferenceTarget(), "MUT-16")).detail


async def test_a_crash_that_loses_what_agents_were_told_is_seen() -> None:
    """ACK-08 kills the backend under claims and acknowledgements where the target can."""
    assert (await one(Crashing(), "ACK-08")).outcome is Outcome.PASS
    forgetful = Crashing(lambda data: setattr(data, "agents", AgentData()))
    assert (await one(forgetful, "ACK-08")).outcome is Outcome.FAIL
    assert "no crash" in (await one(ReferenceTarget(), "ACK-08")).detail


class Provider(HashEmbedder):
    """An embedder whose provider answers with an error."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self._error = error

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if self._error is not None:
            raise self._error
        return await super().embed_passages(texts)


class Remote(HashTarget):
    """A target of an embedder with a provider, which fails in the ways given."""

    remote = True

    def __init__(self, **errors: Exception | None) -> None:
        super().__init__()
        self._errors = errors

    def fail(self) -> Sequence[FailingEmbedder]:
        return [
            *super().fail(),
            *(
                FailingEmbedder(FailureKind[kind], make=lambda error=error: Provider(error), within=1)
                for kind, error in self._errors.items()
            ),
        ]


UNREACHABLE = EmbedderUnavailable("The provider cannot be reached.")
BAD_KEY = ConfigurationError("The provider refused the API key; correct it.")


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ({"UNREACHABLE": UNREACHABLE, "BAD_KEY": BAD_KEY}, Outcome.PASS),
        ({"UNREACHABLE": UNREACHABLE}, Outcome.NOT_EXERCISED),
        ({"UNREACHABLE": UNREACHABLE, "BAD_KEY": UNREACHABLE}, Outcome.FAIL),
        ({"UNREACHABLE": None, "BAD_KEY": BAD_KEY}, Outcome.FAIL),
        ({"UNREACHABLE": OSError("refused"), "BAD_KEY": BAD_KEY}, Outcome.ERROR),
    ],
)
async def test_providers_that_fail(errors: dict[str, Exception | None], outcome: Outcome) -> None:
    """EMB-06 passes for typed failures that are told apart, and only for those."""
    assert (await one(Remote(**errors), "EMB-06")).outcome is outcome


async def test_an_embedder_without_a_provider_declares_none() -> None:
    """EMB-06 asks nothing of an embedder that calls nobody."""
    result = await one(HashTarget(), "EMB-06")
    assert result.outcome is Outcome.UNDECLARED
    assert result.conformant


def test_the_suite_needs_no_test_framework() -> None:
    """The runner, and with it the command line, imports no pytest."""
    code = "import sys, muniment.conformance.runner; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


async def test_every_fault_point_is_reached() -> None:
    """The target's faults are real: a storage that swallows one is seen."""

    class Swallows(ReferenceStorage):
        async def apply(self, mutation: Mutation) -> Applied:
            self.on_write = lambda point: None
            return await super().apply(mutation)

    result = await one(ReferenceTarget(Swallows), "MUT-13")
    assert result.outcome is Outcome.FAIL
    assert "fault" in result.detail
    assert set(FaultPoint) == {FaultPoint(point) for point in ReferenceStorage.WRITE_POINTS}


def test_broken_says_what() -> None:
    """The message of a broken rule has both values."""
    assert str(Broken("the version", expected=2, seen=1)) == "the version: expected 2, seen 1"
