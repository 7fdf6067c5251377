"""What a run found: one result per invariant, as data, as JSON and as text for a terminal.

Owns which outcomes are conformant and which exit code follows. The exit codes: 0 conformant, 1 not
conformant, 2 could not run (for which there is no report).
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from muniment.conformance.invariant import Level, Outcome

CONFORMANT = 0
NOT_CONFORMANT = 1
COULD_NOT_RUN = 2


@dataclass(frozen=True, slots=True)
class Result:
    """How one invariant ended. ``detail`` is one sentence; the rest is there where it did not hold.

    ``cut_off`` says that the check did not end by itself.
    """

    id: str
    outcome: Outcome
    seconds: float
    detail: str
    statement: str
    level: Level
    docs: str
    expected: str | None = None
    seen: str | None = None
    steps: tuple[str, ...] = ()
    cut_off: bool = False

    @property
    def family(self) -> str:
        """The part of the id before the dash."""
        return self.id.partition("-")[0]

    @property
    def conformant(self) -> bool:
        """Whether it lets its plugin be called conformant: it passed, is undeclared, or only should hold."""
        if self.outcome in (Outcome.PASS, Outcome.UNDECLARED):
            return True
        return self.level is Level.SHOULD and self.outcome is Outcome.FAIL

    def as_text(self, seed: int, again: str) -> str:
        """The failure in full, for a person; ``again`` is the command line that reruns it alone."""
        lines = [f"{self.id} {self.outcome} ({self.level}, {self.seconds:.2f} s)", f"  {self.statement}"]
        if self.steps:
            lines += ["  what was done, latest last:", *(f"    {step}" for step in self.steps)]
        lines.append(f"  {self.detail}")
        if self.expected is not None:
            lines += [f"  expected: {self.expected}", f"  seen:     {self.seen}"]
        lines += [f"  seed {seed}; see {self.docs}", f"  again: {again}"]
        return "\n".join(lines)

    def same_as(self, other: Result) -> bool:
        """Whether it ended as another one did, whatever was done before."""
        return (self.outcome, self.detail, self.expected, self.seen) == (
            other.outcome,
            other.detail,
            other.expected,
            other.seen,
        )


def again(plugin: str, invariant: str, seed: int, url: str | None = None) -> str:
    """The command line that judges ``plugin`` by one invariant, with the same random choices."""
    server = [] if url is None else ["--url", url]
    return shlex.join(["muniment", "conform", plugin, "--only", invariant, "--seed", str(seed), *server])


@dataclass(frozen=True, slots=True)
class Report:
    """A run. ``complete`` says that every invariant was selected; ``not_run`` are the ids that were not come to, since
    the run was stopped. ``url`` is the server that was named, its password redacted."""

    plugin: str
    real: bool
    versions: Mapping[str, str]
    configuration: Mapping[str, str]
    seed: int
    results: tuple[Result, ...]
    complete: bool = True
    not_run: tuple[str, ...] = ()
    url: str | None = None

    @property
    def conformant(self) -> bool:
        """Whether every invariant that judges the plugin was run and lets it be called conformant."""
        return self.complete and bool(self.results) and self.holds

    @property
    def holds(self) -> bool:
        """Whether everything that was to be run, which may be a selection, was run and held."""
        return not self.not_run and all(result.conformant for result in self.results)

    @property
    def exit_code(self) -> int:
        """0 where everything that was run held, else 1."""
        return CONFORMANT if self.results and self.holds else NOT_CONFORMANT

    def as_data(self) -> dict[str, Any]:
        """The report as JSON-like data; ``invariants`` has one object each."""
        return {
            "plugin": self.plugin,
            "conformant": self.conformant,
            "complete": self.complete,
            "backend": "real" if self.real else "emulated",
            "versions": dict(self.versions),
            "configuration": dict(self.configuration),
            "seed": self.seed,
            "not_run": list(self.not_run),
            "outcomes": dict(Counter(str(result.outcome) for result in self.results)),
            "invariants": [{**asdict(result), "seconds": round(result.seconds, 4)} for result in self.results],
        }

    def as_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.as_data(), indent=2, ensure_ascii=False) + "\n"

    def as_text(self) -> str:
        """The report for a terminal: each failure in full, then a line for each invariant, then the verdict."""
        lines = [f"{one.id:<9} {one.outcome:<21} {one.seconds:6.2f} s  {one.statement}" for one in self.results]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        settings = "".join(f", {name} {value}" for name, value in self.configuration.items())
        kind = "real" if self.real else "emulated"
        head = f"{self.plugin}: {kind} backend{settings}; {versions}; seed {self.seed}"
        return "\n\n".join([head, *self._failures(), "\n".join(lines), *self._endings(), self.verdict()]) + "\n"

    def verdict(self) -> str:
        """The last line."""
        counts = Counter(str(result.outcome) for result in self.results)
        if self.not_run:
            counts["not run"] = len(self.not_run)
        summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        took = sum(result.seconds for result in self.results)
        if self.conformant:
            verdict = "conformant"
        elif self.holds and not self.complete:
            verdict = "what was selected holds; run all for conformance"
        else:
            verdict = "not conformant"
        return f"{self.plugin}: {verdict} ({summary}; {took:.1f} s)"

    def text_of(self, result: Result) -> str:
        """One result in full."""
        return result.as_text(self.seed, again(self.plugin, result.id, self.seed, self.url))

    def stopped(self) -> str:
        """Why some invariants were not run, and what to do."""
        cut_off = ", ".join(result.id for result in self.results if result.cut_off)
        return (
            f"The run was stopped: {cut_off} had to be cut off. See to those first; {len(self.not_run)} were not run, "
            f"{self.not_run[0]} to {self.not_run[-1]}."
        )

    def _failures(self) -> list[str]:
        """What did not pass: each cause in full once, with the ids of all that ended so."""
        causes: list[list[Result]] = []
        for result in self.results:
            if result.outcome is Outcome.PASS:
                continue
            same = next((cause for cause in causes if result.same_as(cause[0])), None)
            if same is None:
                causes.append([result])
            else:
                same.append(result)
        return [self._cause(*cause) for cause in causes]

    def _cause(self, first: Result, *others: Result) -> str:
        ids = ", ".join(result.id for result in others)
        return f"{self.text_of(first)}\n  the same: {ids}" if others else self.text_of(first)

    def _endings(self) -> list[str]:
        first = next((result for result in self.results if not result.conformant), None)
        endings = [self.stopped()] if self.not_run else []
        if first is not None:
            command = again(self.plugin, first.id, self.seed, self.url)
            endings.append(f"Begin with {first.id}: {first.detail}\n  {command}")
        return endings
