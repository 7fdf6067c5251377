"""What a run found: one result per invariant, as data, as JSON and as text for a terminal.

Owns which outcomes are conformant and which exit code follows. The exit codes: 0 conformant, 1 not
conformant, 2 could not run (for which there is no report).
"""

from __future__ import annotations

import json
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
    """How one invariant ended. ``detail`` is one sentence; the rest is there where it did not hold."""

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

    @property
    def conformant(self) -> bool:
        """Whether it lets its plugin be called conformant: it passed, is undeclared, or only should hold."""
        if self.outcome in (Outcome.PASS, Outcome.UNDECLARED):
            return True
        return self.level is Level.SHOULD and self.outcome is Outcome.FAIL

    def as_text(self, seed: int) -> str:
        """The failure in full, for a person."""
        lines = [f"{self.id} {self.outcome} ({self.level}, {self.seconds:.2f} s)", f"  {self.statement}"]
        if self.steps:
            lines += ["  what was done, latest last:", *(f"    {step}" for step in self.steps)]
        lines.append(f"  {self.detail}")
        if self.expected is not None:
            lines += [f"  expected: {self.expected}", f"  seen:     {self.seen}"]
        lines.append(f"  seed {seed}; see {self.docs}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run."""

    plugin: str
    real: bool
    versions: Mapping[str, str]
    configuration: Mapping[str, str]
    seed: int
    results: tuple[Result, ...]
    complete: bool = True

    @property
    def conformant(self) -> bool:
        """Whether every invariant that judges the plugin was run and lets it be called conformant."""
        return self.complete and bool(self.results) and self.holds

    @property
    def holds(self) -> bool:
        """Whether everything that was run, which may be a selection, held."""
        return all(result.conformant for result in self.results)

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
            "outcomes": dict(Counter(str(result.outcome) for result in self.results)),
            "invariants": [{**asdict(result), "seconds": round(result.seconds, 4)} for result in self.results],
        }

    def as_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.as_data(), indent=2, ensure_ascii=False) + "\n"

    def as_text(self) -> str:
        """The report for a terminal: each failure in full, then a line for each invariant, then the verdict."""
        failures = [result.as_text(self.seed) for result in self.results if result.outcome is not Outcome.PASS]
        lines = [f"{one.id:<9} {one.outcome:<21} {one.seconds:6.2f} s  {one.statement}" for one in self.results]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        settings = "".join(f", {name} {value}" for name, value in self.configuration.items())
        kind = "real" if self.real else "emulated"
        head = f"{self.plugin}: {kind} backend{settings}; {versions}; seed {self.seed}"
        return "\n\n".join([head, *failures, "\n".join(lines), self.verdict()]) + "\n"

    def verdict(self) -> str:
        """The last line."""
        counts = Counter(str(result.outcome) for result in self.results)
        summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        took = sum(result.seconds for result in self.results)
        if self.conformant:
            verdict = "conformant"
        elif self.holds and not self.complete:
            verdict = "what was selected holds; run all for conformance"
        else:
            verdict = "not conformant"
        return f"{self.plugin}: {verdict} ({summary}; {took:.1f} s)"
