"""Whether the suite can fail through an author's own target: ``muniment conform NAME --self-test``.

The target's parts are checked (``plumbing``), then the universal mutants stand in for the plugin (``stand_ins``). Each
keeps no rule at all, so an invariant that passes on one is a fault that this target would hide.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muniment.conformance.invariant import Invariant, Outcome, features_of
from muniment.conformance.mutants.mutant import GREEN
from muniment.conformance.plumbing import plumbing
from muniment.conformance.registry import select
from muniment.conformance.report import CONFORMANT, NOT_CONFORMANT, Result
from muniment.conformance.runner import CUT_OFFS, TIME_LIMIT, Progress, run_one
from muniment.conformance.stand_ins import stand_ins
from muniment.conformance.target import Target


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How the invariants ended on one universal mutant. ``cut_short`` says that it hung too often to go on."""

    mutant: str
    breaks: str
    results: tuple[Result, ...]
    cut_short: bool

    @property
    def hidden(self) -> tuple[str, ...]:
        """The invariants that passed, although none is kept."""
        return tuple(result.id for result in self.results if result.outcome in GREEN)

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The families in which nothing was judged: every check of them crashed, which shows nothing."""
        crashed = {result.family for result in self.results if result.outcome is Outcome.ERROR}
        judged = {result.family for result in self.results if result.outcome is not Outcome.ERROR}
        return tuple(sorted(crashed - judged))

    @property
    def shown(self) -> bool:
        """Whether nothing passed, and every family was judged."""
        return not (self.hidden or self.unjudged or self.cut_short)

    @property
    def families(self) -> Mapping[str, tuple[int, int]]:
        """By family, how many invariants did not pass, and of how many."""
        counts: dict[str, tuple[int, int]] = {}
        for result in self.results:
            red, count = counts.get(result.family, (0, 0))
            counts[result.family] = red + (result.outcome not in GREEN), count + 1
        return counts

    def as_text(self) -> str:
        """A line with the families, and what passed."""
        red = ", ".join(f"{family} {red} of {count}" for family, (red, count) in self.families.items())
        text = f"{'ok  ' if self.shown else 'FAIL'}  {self.mutant}: {red} red"
        if self.hidden:
            text += f"\n      {self.breaks} Through this target these passed all the same: {', '.join(self.hidden)}."
        if self.unjudged:
            crash = next(result for result in self.results if result.family == self.unjudged[0])
            text += f"\n      Every check of {', '.join(self.unjudged)} crashed, which shows nothing: {crash.detail}"
        if self.cut_short:
            text += f"\n      It was stopped, since {CUT_OFFS} checks had to be cut off."
        return text


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What was found: the checks of the target, and one rehearsal for each universal mutant."""

    plugin: str
    seed: int
    plumbing: tuple[Result, ...]
    rehearsals: tuple[Rehearsal, ...]

    @property
    def reliable(self) -> bool:
        """Whether the target shows every fault that it was tried with."""
        tried = all(result.outcome is Outcome.PASS for result in self.plumbing)
        return tried and all(one.shown for one in self.rehearsals)

    @property
    def cut_off(self) -> bool:
        """Whether a check had to be cut off."""
        results = [*self.plumbing, *(result for one in self.rehearsals for result in one.results)]
        return any(result.cut_off for result in results)

    @property
    def exit_code(self) -> int:
        """0 where the target can be relied on, else 1."""
        return CONFORMANT if self.reliable else NOT_CONFORMANT

    def as_text(self) -> str:
        """What was found, for a terminal."""
        parts = [
            f"{self.plugin}: whether its target would show a broken plugin; seed {self.seed}",
            "The target itself\n" + "\n".join(map(_plumbing_text, self.plumbing)),
            "Broken plugins through it, on which nothing may pass\n"
            + "\n".join(one.as_text() for one in self.rehearsals),
        ]
        verdict = "its target shows faults" if self.reliable else "its target cannot be relied on; see above"
        return "\n\n".join([*parts, f"{self.plugin}: {verdict}"]) + "\n"


async def self_test(
    target: Target,
    *,
    only: Sequence[str] | None = None,
    seed: int | None = None,
    timeout: float = TIME_LIMIT,  # noqa: ASYNC109
    progress: Progress | None = None,
) -> SelfTest:
    """Try a target; arguments and errors are those of ``runner.run``."""
    seed = time.time_ns() % 2**31 if seed is None else seed
    tried, _ = await _run(target, plumbing(target), seed, timeout, progress)
    rehearsals: list[Rehearsal] = []
    for mutant, stand_in in stand_ins(target).items():
        features = features_of(stand_in)
        judged = [one for one in select(stand_in, only) if one.features <= features]
        results, cut_short = await _run(stand_in, judged, seed, timeout, progress)
        rehearsals.append(Rehearsal(mutant.name, mutant.breaks, results, cut_short))
    return SelfTest(target.name, seed, tried, tuple(rehearsals))


async def _run(
    target: Target, invariants: Sequence[Invariant], seed: int, seconds: float, progress: Progress | None
) -> tuple[tuple[Result, ...], bool]:
    """The results, and whether there are fewer since too many checks hung."""
    results: list[Result] = []
    for invariant in invariants:
        result = await run_one(target, invariant, seed=seed, seconds=seconds)
        results.append(result)
        if progress is not None:
            progress(result)
        if sum(one.cut_off for one in results) == CUT_OFFS:
            break
    return tuple(results), len(results) < len(invariants)


def _plumbing_text(result: Result) -> str:
    if result.outcome is Outcome.PASS:
        return f"ok    {result.statement}"
    lines = [f"FAIL  {result.statement}", f"      {result.detail}"]
    if result.expected is not None:
        lines += [f"      expected: {result.expected}", f"      seen:     {result.seen}"]
    return "\n".join([*lines, *(f"      {step}" for step in result.steps)])
