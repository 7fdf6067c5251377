"""What a report says of stores that are broken in ways that happen: each is led to the right invariants."""

from __future__ import annotations

import asyncio
import json
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree as Xml

import pytest

from muniment import __version__
from muniment.cli import conform
from muniment.conformance import runner
from muniment.conformance.badge import badge
from muniment.conformance.capabilities import capabilities_page
from muniment.conformance.invariant import Level, Outcome
from muniment.conformance.junit import junit
from muniment.conformance.reference_target import ReferenceSubject, ReferenceTarget
from muniment.conformance.registry import judging
from muniment.conformance.report import Report, Result, again
from muniment.conformance.runner import run
from muniment.errors import NotFound
from muniment.hookspecs import CONTRACT
from muniment.ports import Applied, Audience, MemoryFacts, Mutation, ShareChange
from muniment.reference import ReferenceStorage


def red(report: Report) -> set[str]:
    """The ids that count against conformance."""
    return {result.id for result in report.results if not result.conformant}


class RefusesAll(ReferenceStorage):
    """Refuses everything."""

    async def pause(self) -> None:
        raise NotFound


async def test_a_store_that_refuses_everything_fails_everything() -> None:
    """No refusal counts as a rule that is kept, and the cause is told once, with where to begin."""
    report = await run(ReferenceTarget(RefusesAll), seed=7)
    text = report.as_text()

    assert red(report) == {invariant.id for invariant in judging(ReferenceTarget())}
    assert "Begin with MUT-01: an operation that must succeed was refused: not_found" in text
    assert text.count("There is no such thing that you may read") < 10
    assert text.endswith(f"{report.last_line()}\n")


class Sleeps(ReferenceStorage):
    """A search that never comes back."""

    async def search(self, *positional: Any, **named: Any) -> Any:
        time.sleep(1.5)


async def test_a_store_that_sleeps_is_cut_off_and_the_rest_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that did not come back is the last step, and what does not search is judged."""
    monkeypatch.setattr("muniment.conformance.isolation.GRACE", 0.1)
    report = await run(ReferenceTarget(Sleeps), only=["LEX-01", "MUT-06"], seed=7, timeout=0.5)
    by_id = {result.id: result for result in report.results}

    assert red(report) == {"LEX-01"}
    assert by_id["LEX-01"].cut_off
    assert "cut off after 0.5 s" in by_id["LEX-01"].detail
    assert "memory.search(" in by_id["LEX-01"].steps[-1]
    assert by_id["LEX-01"].steps[-1].endswith("-> no answer")


HANGING = """
import asyncio, sys, time
from muniment import cli
from muniment.cli import conform
from muniment.conformance.reference_target import ReferenceTarget
from muniment.reference import ReferenceStorage

class Hangs(ReferenceStorage):
    async def search(self, *positional, **named):
        await asyncio.to_thread(time.sleep, 120)

conform.target_of = lambda name, url: ReferenceTarget(Hangs)
sys.exit(cli.run(["conform", "reference", "--only", "LEX-01", "--only", "MUT-06", "--timeout", "0.5"]))
"""


def test_a_worker_that_hangs_holds_up_neither_the_run_nor_its_end() -> None:
    """A driver that blocks a thread for ever is cut off, the rest is judged, and the command ends."""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1, done.stderr
    assert "LEX-01 error" in done.stdout
    assert "not conformant (1 error, 1 pass" in done.stdout
    assert time.monotonic() - started < 20


async def test_a_store_that_keeps_sleeping_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some cut-offs the run is stopped, says so and what was not run, and holds nothing against the rest."""
    monkeypatch.setattr("muniment.conformance.isolation.GRACE", 0.1)
    monkeypatch.setattr(runner, "CUT_OFFS", 2)
    report = await run(ReferenceTarget(Sleeps), only=["LEX", "RANK"], seed=7, timeout=0.3)
    suite = Xml.fromstring(junit(report)).find("testsuite")

    assert [result.id for result in report.results] == ["LEX-01", "LEX-02"]
    assert report.not_run == ("LEX-03", "LEX-04", "RANK-01", "RANK-02")
    assert "The run was stopped: LEX-01, LEX-02 had to be cut off" in report.as_text()
    assert "4 not run" in report.last_line()
    assert report.exit_code == 1
    assert json.loads(report.as_json())["not_run"] == list(report.not_run)
    assert suite is not None
    assert (suite.get("tests"), suite.get("errors"), suite.get("skipped")) == ("6", "2", "4")


class Leaves(ReferenceStorage):
    """A list that ends the process of whoever asks."""

    async def list_memories(self, *positional: Any, **named: Any) -> Any:
        raise SystemExit(0)


class Cancels(ReferenceStorage):
    """A list whose driver lets its own cancellation out."""

    async def list_memories(self, *positional: Any, **named: Any) -> Any:
        raise asyncio.CancelledError("the pool was closed")


@pytest.mark.parametrize(("store", "named"), [(Leaves, "SystemExit"), (Cancels, "CancelledError")])
async def test_a_store_that_would_end_the_judge_is_judged(store: type[ReferenceStorage], named: str) -> None:
    """An exit and a cancellation are errors of their invariant, with the steps; the rest is judged."""
    report = await run(ReferenceTarget(store), only=["READ-02", "MUT-06"], seed=7)
    by_id = {result.id: result for result in report.results}

    assert red(report) == {"READ-02"}
    assert by_id["READ-02"].outcome is Outcome.ERROR
    assert f"{named} came out of the plugin" in by_id["READ-02"].detail
    assert f"{named}, raised in list_memories (test_reports.py, line " in (by_id["READ-02"].seen or "")
    assert by_id["READ-02"].steps
    assert report.exit_code == 1


@pytest.mark.parametrize("raised", ["ValueError('it is broken')", "SystemExit(0)"])
def test_a_target_that_cannot_be_made_is_no_verdict(raised: str) -> None:
    """Exit code 2, with the plugin, the target and the cause."""
    script = (
        "import sys\nfrom muniment import cli, plugins\n"
        f"def make(path, name):\n    def target(url=None):\n        raise {raised}\n    return target\n"
        "plugins.resolve = make\nsys.exit(cli.run(['conform', 'reference', '--only', 'MUT-06']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2, done.stdout
    assert "reference was not judged: its target" in done.stderr
    assert raised.partition("(")[0] in done.stderr


class RaisesDriverErrors(ReferenceStorage):
    """A search whose driver's error was not translated."""

    async def search(self, *positional: Any, **named: Any) -> Any:
        raise sqlite3.OperationalError("no such table: passage\nat postgresql://me:s3cret@host/db")


async def test_a_store_that_raises_foreign_exceptions_is_told_where() -> None:
    """The exception is named with the method that it left, on one line, and without a password."""
    report = await run(ReferenceTarget(RaisesDriverErrors), only=["MUT-06", "LEX"], seed=7)
    result = report.results[1]

    assert red(report) == {"LEX-01", "LEX-02", "LEX-03", "LEX-04"}
    assert result.outcome is Outcome.ERROR
    assert result.detail.startswith("sqlite3.OperationalError: no such table: passage at postgresql://me:***@host/db")
    assert result.expected == "an answer, or a refusal of muniment.errors"
    assert "raised in search (test_reports.py, line " in (result.seen or "")
    assert "memory.search(" in result.steps[-1]


class AnswersFromACache(ReferenceStorage):
    """Memories are cached by id, whoever asked for them."""

    CACHE: ClassVar[dict[str, MemoryFacts]] = {}

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        found = await super().load(audience, memory_id, space=space)
        if found is not None:
            self.CACHE[memory_id] = found
        return found or self.CACHE.get(memory_id)


async def test_a_store_that_answers_from_another_tenants_cache_fails_access() -> None:
    """Who was answered once too often is seen by the rules of access, and by the one rule that checks it again."""
    report = await run(ReferenceTarget(AnswersFromACache), only=["MUT", "READ", "ACC", "SCOPE"], seed=7)
    revoked = next(result for result in report.results if result.id == "ACC-05")

    assert red(report) == {"ACC-03", "ACC-05", "ACC-06", "ACC-08", "MUT-12"}
    assert revoked.detail == "memory.get by bob"
    assert revoked.expected == "refusal not_found"
    assert "bob: memory.get(" in revoked.steps[-1]


class CachesForItself(ReferenceStorage):
    """A client keeps what it read until it writes itself; it is alone in the world."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        self.cache: dict[tuple[Audience, str, str | None], MemoryFacts | None] = {}

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        key = audience, memory_id, space
        if key not in self.cache:
            self.cache[key] = await super().load(audience, memory_id, space=space)
        return self.cache[key]

    async def apply(self, mutation: Mutation) -> Applied:
        done = await super().apply(mutation)
        self.cache.clear()
        return done

    async def change_share(self, change: ShareChange) -> Applied:
        done = await super().change_share(change)
        self.cache.clear()
        return done


async def test_a_store_that_passes_alone_fails_under_two_clients() -> None:
    """What one client does is unknown to the other: the races see it, and the rules for one client do not."""
    report = await run(ReferenceTarget(CachesForItself), only=["MUT", "ACC"], seed=7)
    racing = next(result for result in report.results if result.id == "MUT-04")

    assert red(report) == {"MUT-04", "ACC-05"}
    assert any("callers are held before Storage.apply" in step for step in racing.steps)


class Swallows(ReferenceTarget):
    """A target whose subject takes every exception for the end of its work."""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ReferenceSubject]:
        async with super().open() as subject:
            try:
                yield subject
            except Exception:
                return


async def test_a_target_that_swallows_exceptions_hides_nothing() -> None:
    """What a check saw counts, whatever the target makes of the exception."""
    report = await run(Swallows(RefusesAll), only=["MUT-01", "READ-03"], seed=7)

    assert red(report) == {"MUT-01", "READ-03"}


class Talkative(ReferenceTarget):
    """A target that forgets to redact."""

    def describe(self) -> Mapping[str, str]:
        return {"storage": "postgresql://me:s3cret@host/db", "api_key": "s3cret"}


async def test_a_report_holds_no_secret_and_says_how_to_run_it_again(losing_tags: ReferenceTarget) -> None:
    """Configuration and server are redacted by the suite itself; every failure has the command for it alone."""
    report = await run(Talkative(), only=["READ-03"], seed=7, url="postgresql://me:s3cret@host/db")
    failed = await run(losing_tags, only=["READ-03"], seed=7, url="memory:")
    for text in (report.as_text(), report.as_json(), junit(report), badge(report)):
        assert "s3cret" not in text

    assert report.configuration == {"storage": "postgresql://me:***@host/db", "api_key": "***"}
    assert "again: muniment conform reference --only READ-03 --seed 7 --url memory:" in failed.as_text()


async def test_a_report_names_versions_and_the_kind_of_backend() -> None:
    """Core, contract, plugin and server; an emulated backend is never taken for a real one, not by its badge either."""
    report = await run(ReferenceTarget(), only=["SCOPE-01"], seed=7)

    assert report.versions == {
        "muniment": __version__,
        "contract": "{}.{}".format(*CONTRACT),
        "reference": __version__,
        "server": "in memory",
    }
    assert report.as_text().startswith("reference: emulated backend; muniment ")
    assert "emulated" in badge(report)


def ended(outcome: Outcome, level: Level = Level.MUST, detail: str = "said \x1b[31m <&> \ud800") -> Result:
    """A result."""
    return Result("MUT-01", outcome, 0.5, detail, "It holds.", level, "docs/invariants.md#mut-01", "a", "b", ("1. x",))


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (ended(Outcome.PASS), None),
        (ended(Outcome.FAIL), "failure"),
        (ended(Outcome.STALE_KNOWN_FAILURE), "failure"),
        (ended(Outcome.NOT_EXERCISED), "failure"),
        (ended(Outcome.ERROR), "error"),
        (ended(Outcome.UNDECLARED), "skipped"),
        (ended(Outcome.KNOWN_FAILURE), "skipped"),
        (ended(Outcome.FAIL, Level.SHOULD), "skipped"),
    ],
)
def test_junit_is_well_formed_and_maps_each_outcome(result: Result, kind: str | None) -> None:
    """What counts against conformance is red, with the whole message; no character of a plugin's breaks the text."""
    report = Report("toy", True, {"server": "1"}, {"storage": "toy:"}, 7, (result,))
    suite = Xml.fromstring(junit(report)).find("testsuite")
    assert suite is not None
    case = suite.find("testcase")
    assert case is not None

    assert (case.get("classname"), case.get("name"), case.get("time")) == ("toy.MUT", "MUT-01", "0.500")
    assert [child.tag for child in case] == ([] if kind is None else [kind])
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert suite.get(attribute) == str(int(kind == tag))
    if kind is not None:
        assert "<&>" in (case[0].get("message") or "")
    if kind in ("failure", "error"):
        assert "muniment conform toy --only MUT-01 --seed 7" in (case[0].text or "")


@pytest.mark.parametrize(
    ("outcome", "complete", "message"),
    [
        (Outcome.PASS, True, "conformant"),
        (Outcome.PASS, False, "judged in part"),
        (Outcome.FAIL, True, "not conformant"),
        (Outcome.FAIL, False, "not conformant"),
        (Outcome.KNOWN_FAILURE, True, "not conformant"),
        (Outcome.NOT_EXERCISED, True, "not conformant"),
    ],
)
def test_a_badge_says_conformant_for_a_whole_run_alone(
    outcome: Outcome, complete: bool, message: str, tmp_path: Path
) -> None:
    """An image with a text alternative, of which the words carry the verdict; the page of reports has the same."""
    report = Report("toy", True, {"toy": "1.2", "contract": "1.0"}, {}, 7, (ended(outcome),), complete)
    image = Xml.fromstring(badge(report))
    title = image.find("{http://www.w3.org/2000/svg}title")

    assert title is not None
    assert title.text == f"toy 1.2: {message}, contract 1.0"
    assert [one.text for one in image.iter("{http://www.w3.org/2000/svg}text")] == ["muniment", message]
    assert "\ud800" not in report.as_text()
    assert Report.of_data(json.loads(report.as_json())).results == report.results
    (tmp_path / "toy.json").write_text(report.as_json(), encoding="utf-8")
    assert f"| `toy` | {message} | real |" in capabilities_page(tmp_path)


@pytest.mark.parametrize("timeout", [None, 0.5, 300.0, 0.1234567891, 12345678.25])
@pytest.mark.parametrize("url", [None, "postgresql://me@host/db?options=-c a='b c'&x=$y"])
def test_the_command_to_run_again_can_be_copied(timeout: float | None, url: str | None) -> None:
    """A shell and the command read out of it what the run had, the limit of each check among it."""
    words = shlex.split(again("toy", "MUT-01", 7, url, timeout))
    read = conform.command.make_context("conform", words[2:]).params
    usual = runner.TIME_LIMIT

    assert words[:2] == ["muniment", "conform"]
    assert (read["name"], read["only"], read["seed"], read["url"]) == ("toy", ("MUT-01",), 7, url)
    assert read["timeout"] == (usual if timeout is None else timeout)


async def test_a_report_names_the_limit_that_is_not_the_usual_one(losing_tags: ReferenceTarget) -> None:
    """What was found within a limit is found within the same one again."""
    for timeout, named in ((runner.TIME_LIMIT, False), (77.0, True)):
        report = await run(losing_tags, only=["READ-03"], seed=7, timeout=timeout)
        assert report.as_text().count("--only READ-03 --seed 7 --timeout 77\n") == (2 if named else 0)
        assert ("--timeout" in report.as_text()) is named


async def test_a_report_is_read_back_from_its_data(losing_tags: ReferenceTarget) -> None:
    """What is made of committed reports is made of the same results and the same verdict."""
    report = await run(losing_tags, only=["READ-03", "MUT-06"], seed=7)
    read = Report.of_data(json.loads(report.as_json()))

    assert read.as_json() == report.as_json()
    assert (read.verdict, read.exit_code) == (report.verdict, report.exit_code)


def test_the_command_has_the_limit_of_the_runner() -> None:
    """The option's default is stated without importing the suite, so that help costs nothing."""
    (limit,) = [option.default for option in conform.command.params if option.name == "timeout"]
    assert limit == runner.TIME_LIMIT
