"""What a run found: one result per invariant, as data, as JSON and as text for a terminal.

Owns which outcomes are conformant, the verdict on a run, and which exit code follows: 0 conformant, 1 not conformant,
2 could not run (for which there is no report).
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from muniment.conformance.invariant import Level, Outcome, family_of

CONFORMANT = 0
NOT_CONFORMANT = 1
COULD_NOT_RUN = 2


class Verdict(StrEnum):
    """What a run says of its plugin; only a whole run can say that it is conformant."""

    CONFORMANT = "conformant"
    IN_PART = "judged in part"
    NOT_CONFORMANT = "not conformant"


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

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Result:
        """The result that a report's data has."""
        fields: dict[str, Any] = {**data, "steps": tuple(data["steps"])}
        fields |= {"outcome": Outcome(data["outcome"]), "level": Level(data["level"])}
        return cls(**fields)

    @property
    def family(self) -> str:
        """The family of its invariant."""
        return family_of(self.id)

    @property
    def only_should(self) -> bool:
        """Whether it failed, and only should have held."""
        return self.level is Level.SHOULD and self.outcome is Outcome.FAIL

    @property
    def conformant(self) -> bool:
        """Whether it lets its plugin be called conformant: it is kept, or only should hold."""
        return self.outcome.kept or self.only_should

    @property
    def expected_failure(self) -> bool:
        """Whether it does not hold, and tests stay green: it is known, or only should hold."""
        return self.only_should or self.outcome is Outcome.KNOWN_FAILURE

    @property
    def green(self) -> bool:
        """Whether tests stay green."""
        return self.conformant or self.expected_failure

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


def _encodable(text: str) -> str:
    """The text with lone surrogates, which a plugin may have given, written as escapes, in JSON too."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def families(results: Iterable[Result]) -> Mapping[str, tuple[int, int]]:
    """By family, how many invariants are kept, and of how many."""
    counts: dict[str, tuple[int, int]] = {}
    for result in results:
        kept, count = counts.get(result.family, (0, 0))
        counts[result.family] = kept + result.outcome.kept, count + 1
    return counts


def again(
    plugin: str,
    invariant: str,
    seed: int,
    url: str | None = None,
    timeout: float | None = None,
    over: str | None = None,
) -> str:
    """The command line that judges ``plugin`` by one invariant, with the same random choices.

    ``timeout`` is in seconds, None for the usual one; ``over`` is the storage that was named.
    """
    server = [] if url is None else ["--url", url]
    server += [] if over is None else ["--on", over]
    limit = [] if timeout is None else ["--timeout", f"{int(timeout) if timeout.is_integer() else timeout}"]
    return shlex.join(["muniment", "conform", plugin, "--only", invariant, "--seed", str(seed), *server, *limit])


@dataclass(frozen=True, slots=True)
class Report:
    """A run. ``complete`` says that every invariant was selected; ``not_run`` are the ids that were not come to, since
    the run was stopped. ``url`` is the server that was named, its password redacted; ``timeout`` the seconds for each
    invariant, None for the usual ones; ``over`` the storage that an embedder or a transport was judged over, where one
    was named."""

    plugin: str
    real: bool
    versions: Mapping[str, str]
    configuration: Mapping[str, str]
    seed: int
    results: tuple[Result, ...]
    complete: bool = True
    not_run: tuple[str, ...] = ()
    url: str | None = None
    timeout: float | None = None
    over: str | None = None

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Report:
        """The report that ``as_data`` gave."""
        judged: list[dict[str, Any]] = data["invariants"]
        return cls(
            plugin=data["plugin"],
            real=data["backend"] == "real",
            versions=data["versions"],
            configuration=data["configuration"],
            seed=data["seed"],
            results=tuple(map(Result.of_data, judged)),
            complete=data["complete"],
            not_run=tuple(data["not_run"]),
        )

    @property
    def verdict(self) -> Verdict:
        """What the run says: nothing may be wrong in what was to be run, and something must have been."""
        if not self.results or self.not_run or not all(result.conformant for result in self.results):
            return Verdict.NOT_CONFORMANT
        return Verdict.CONFORMANT if self.complete else Verdict.IN_PART

    @property
    def conformant(self) -> bool:
        """Whether every invariant that judges the plugin was run and lets it be called conformant."""
        return self.verdict is Verdict.CONFORMANT

    @property
    def exit_code(self) -> int:
        """0 where everything that was run held, else 1."""
        return NOT_CONFORMANT if self.verdict is Verdict.NOT_CONFORMANT else CONFORMANT

    @property
    def backend(self) -> str:
        """Whether it is a real one."""
        return "real" if self.real else "emulated"

    def as_data(self) -> dict[str, Any]:
        """The report as JSON-like data; ``invariants`` has one object each."""
        return {
            "plugin": self.plugin,
            "conformant": self.conformant,
            "complete": self.complete,
            "backend": self.backend,
            "versions": dict(self.versions),
            "configuration": dict(self.configuration),
            "seed": self.seed,
            "not_run": list(self.not_run),
            "outcomes": dict(Counter(str(result.outcome) for result in self.results)),
            "invariants": [{**asdict(result), "seconds": round(result.seconds, 4)} for result in self.results],
        }

    def as_json(self) -> str:
        """The report as JSON text."""
        return _encodable(json.dumps(self.as_data(), indent=2, ensure_ascii=False) + "\n")

    def as_text(self) -> str:
        """The report for a terminal: each failure in full, then a line for each invariant, then the verdict."""
        lines = [f"{one.id:<9} {one.outcome:<21} {one.seconds:6.2f} s  {one.statement}" for one in self.results]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        settings = "".join(f", {name} {value}" for name, value in self.configuration.items())
        head = f"{self.plugin}: {self.backend} backend{settings}; {versions}; seed {self.seed}"
        parts = [head, *self._failures(), "\n".join(lines), *self._endings(), self.last_line()]
        return _encodable("\n\n".join(parts) + "\n")

    def last_line(self) -> str:
        """The verdict, with how many ended how."""
        counts = Counter(str(result.outcome) for result in self.results)
        if self.not_run:
            counts["not run"] = len(self.not_run)
        summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        took = sum(result.seconds for result in self.results)
        in_part = self.verdict is Verdict.IN_PART
        verdict = "what was selected holds; run all for conformance" if in_part else self.verdict
        return f"{self.plugin}: {verdict} ({summary}; {took:.1f} s)"

    def text_of(self, result: Result) -> str:
        """One result in full."""
        return result.as_text(self.seed, self._again(result))

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
            endings.append(f"Begin with {first.id}: {first.detail}\n  {self._again(first)}")
        return endings

    def _again(self, result: Result) -> str:
        return again(self.plugin, result.id, self.seed, self.url, self.timeout, self.over)
