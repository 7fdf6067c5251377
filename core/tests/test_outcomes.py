"""How an invariant ends, what the report says of it, and that no plugin can hang the run."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from muniment.conformance.invariant import Feature, Outcome
from muniment.conformance.reference_target import HashTarget, ReferenceTarget
from muniment.conformance.registry import BY_ID, NotJudged, UnknownInvariant
from muniment.conformance.report import Report, Result
from muniment.conformance.runner import run
from muniment.conformance.target import NotRun, Target
from muniment.reference import ReferenceStorage


async def one(target: Target, invariant: str, **options: Any) -> Result:
    """The result of one invariant."""
    return (await run(target, only=[invariant], seed=7, **options)).results[0]


async def test_a_failure_says_what_was_done_expected_and_seen(losing_tags: ReferenceTarget) -> None:
    """A failure names the invariant, its statement, the steps, both values, the seed and the page."""
    report = await run(losing_tags, only=["READ-03"], seed=7)
    result = report.results[0]
    assert result.outcome is Outcome.FAIL
    text = report.as_text()
    for part in (
        "READ-03",
        BY_ID["READ-03"].statement,
        "alice: memory.write(",
        "expected:",
        "seen:",
        "seed 7",
        "docs/invariants.md#read-03",
        "not conformant",
    ):
        assert part in text
    assert report.exit_code == 1
    assert not report.conformant


async def test_the_json_has_one_object_for_each_invariant() -> None:
    """Each has id, outcome, seconds and detail; the rest says what was judged."""
    report = await run(ReferenceTarget(), only=["SCOPE-01", "SCOPE-03"], seed=7)
    data = json.loads(report.as_json())
    assert [entry["id"] for entry in data["invariants"]] == ["SCOPE-01", "SCOPE-03"]
    for entry in data["invariants"]:
        assert {"id", "outcome", "seconds", "detail"} <= set(entry)
        assert entry["outcome"] == "pass"
    assert data["backend"] == "emulated"
    assert {"muniment", "contract", "reference", "server"} <= set(data["versions"])
    assert data["seed"] == 7


async def test_a_selection_that_holds_is_not_called_conformant() -> None:
    """Only a whole run shows conformance; a selection that holds still ends with exit code 0."""
    report = await run(ReferenceTarget(), only=["READ-03"], seed=7)
    assert report.exit_code == 0
    assert not report.conformant
    whole = await run(HashTarget(), seed=7)
    assert whole.conformant
    assert whole.exit_code == 0


async def test_a_known_failure_is_reported_and_not_conformant(losing_tags: ReferenceTarget) -> None:
    """It is told apart from a failure, with its link, and never makes a plugin conformant."""
    losing_tags.known_failures = {"READ-03": "tracker/1"}
    result = await one(losing_tags, "READ-03")
    assert result.outcome is Outcome.KNOWN_FAILURE
    assert "tracker/1" in result.detail
    assert not result.conformant


async def test_a_known_failure_that_holds_is_stale() -> None:
    """An entry that is no longer true is red."""
    target = ReferenceTarget()
    target.known_failures = {"READ-03": "tracker/1"}
    result = await one(target, "READ-03")
    assert result.outcome is Outcome.STALE_KNOWN_FAILURE
    assert not result.conformant


@pytest.mark.parametrize("name", ["MUT-99", "mut-01", "EMB-01", "NOPE"])
async def test_an_unknown_id_is_an_error(name: str) -> None:
    """An id that judges nothing here is refused, never skipped."""
    with pytest.raises(UnknownInvariant, match=name):
        await run(ReferenceTarget(), only=[name])


async def test_an_unknown_known_failure_is_an_error() -> None:
    """A known failure must name an invariant."""
    target = ReferenceTarget()
    target.known_failures = {"MUT-77": "tracker/1"}
    with pytest.raises(UnknownInvariant, match="MUT-77"):
        await run(target, only=["READ-03"])


@pytest.mark.parametrize("link", ["", " "])
async def test_a_known_failure_without_a_link_is_an_error(link: str) -> None:
    """Whoever reads of a known failure must find where it is being worked on."""
    target = ReferenceTarget()
    target.known_failures = {"MUT-06": link}
    with pytest.raises(NotJudged, match="MUT-06 has no link; give the address"):
        await run(target, only=["READ-03"])


class Hangs(ReferenceStorage):
    """A search that waits for ever and ignores being cancelled."""

    async def search(self, *positional: Any, **named: Any) -> Any:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue


class Waits(ReferenceStorage):
    """A search that waits for ever."""

    async def search(self, *positional: Any, **named: Any) -> Any:
        await asyncio.sleep(3_600)


class Blocks(ReferenceStorage):
    """A search that blocks the event loop."""

    async def search(self, *positional: Any, **named: Any) -> Any:
        time.sleep(5)
        return []


@pytest.mark.parametrize("storage", [Waits, Hangs, Blocks])
async def test_a_hung_plugin_is_cut_off(storage: type[ReferenceStorage], monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that does not end is reported within its limit, and the next one runs."""
    monkeypatch.setattr("muniment.conformance.isolation.GRACE", 0.2)
    started = time.monotonic()
    report = await run(ReferenceTarget(storage), only=["READ-01", "MUT-06"], seed=7, timeout=0.5)
    assert time.monotonic() - started < 4
    outcomes = {result.id: result for result in report.results}
    assert outcomes["MUT-06"].outcome is Outcome.PASS
    assert outcomes["READ-01"].outcome is Outcome.ERROR
    assert "cut off" in outcomes["READ-01"].detail


class Raises(ReferenceStorage):
    """A driver's error that was not translated."""

    async def search(self, *positional: Any, **named: Any) -> Any:
        raise RuntimeError("connection reset")


async def test_an_untranslated_error_is_an_error() -> None:
    """What is no refusal is told apart from a rule that does not hold."""
    result = await one(ReferenceTarget(Raises), "READ-01")
    assert result.outcome is Outcome.ERROR
    assert "RuntimeError: connection reset" in result.detail


async def test_a_missing_prerequisite_is_not_green(without_faults: ReferenceTarget) -> None:
    """What could not be brought about is not-exercised, and not conformant."""
    result = await one(without_faults, "MUT-13")
    assert result.outcome is Outcome.NOT_EXERCISED
    assert not result.conformant


async def test_a_component_that_is_not_there_stops_the_run(missing: ReferenceTarget) -> None:
    """Nothing is reported of a plugin that could not be run."""
    with pytest.raises(NotRun, match="not installed"):
        await run(missing, only=["READ-03"])


def test_outcomes_and_levels_decide_conformance() -> None:
    """Only a pass, an undeclared capability, and a SHOULD that does not hold leave a plugin conformant."""
    must, should = BY_ID["EMB-01"], BY_ID["EMB-05"]
    for outcome in Outcome:
        for invariant in (must, should):
            result = Result(
                invariant.id, outcome, 0, "", invariant.statement, invariant.level_for(frozenset()), invariant.docs
            )
            good = outcome in (Outcome.PASS, Outcome.UNDECLARED)
            assert result.conformant is (good or (invariant is should and outcome is Outcome.FAIL))
    assert should.level_for(frozenset({Feature.SEMANTIC})) == "MUST"
    assert not Report("none", True, {}, {}, 0, ()).conformant
