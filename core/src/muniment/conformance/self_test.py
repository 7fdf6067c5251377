"""Whether the suite can fail through an author's own target: ``muniment conform NAME --self-test``.

The target's parts are checked (``plumbing``), then the universal mutants stand in for the plugin (``stand_ins``). Each
keeps no rule at all, so an invariant that passes on one is a fault that this target would hide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muniment.conformance.invariant import Outcome, features_of
from muniment.conformance.plumbing import not_given, plumbing
from muniment.conformance.registry import select
from muniment.conformance.report import CONFORMANT, NOT_CONFORMANT, Result, families
from muniment.conformance.runner import CUT_OFFS, TIME_LIMIT, Progress, new_seed, run_all
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
        return tuple(result.id for result in self.results if result.outcome.kept)

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The families in which nothing was judged: every check of them crashed, or could not bring its case about."""
        judged = {result.family for result in self.results if result.outcome.judged}
        return tuple(sorted({result.family for result in self.results} - judged))

    @property
    def shown(self) -> bool:
        """Whether something was judged, nothing passed, and no family was left out."""
        return bool(self.results) and not (self.hidden or self.unjudged or self.cut_short)

    @property
    def families(self) -> Mapping[str, tuple[int, int]]:
        """By family, how many invariants did not pass, and of how many."""
        return {family: (count - kept, count) for family, (kept, count) in families(self.results).items()}

    def as_text(self) -> str:
        """A line with the families, and what passed."""
        counts = ", ".join(f"{family} {red} of {count}" for family, (red, count) in self.families.items())
        red = f"{counts} red" if counts else "nothing was judged"
        text = f"{'ok  ' if self.shown else 'FAIL'}  {self.mutant}: {red}"
        if self.hidden:
            text += f"\n      {self.breaks} Through this target these passed all the same: {', '.join(self.hidden)}."
        if self.unjudged:
            first = next(result for result in self.results if result.family == self.unjudged[0])
            named = ", ".join(self.unjudged)
            text += f"\n      No check of {named} came to a judgement, which shows nothing: {first.detail}"
        if self.cut_short:
            text += f"\n      It was stopped, since {CUT_OFFS} checks had to be cut off."
        return text


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What was found: the checks of the target, and one rehearsal for each universal mutant.

    ``not_given`` are the optional methods that the target does without.
    """

    plugin: str
    seed: int
    plumbing: tuple[Result, ...]
    rehearsals: tuple[Rehearsal, ...]
    not_given: tuple[str, ...] = ()

    @property
    def reliable(self) -> bool:
        """Whether the target was tried, and shows every fault that it was tried with."""
        tried = bool(self.plumbing) and all(result.outcome is Outcome.PASS for result in self.plumbing)
        return tried and bool(self.rehearsals) and all(one.shown for one in self.rehearsals)

    @property
    def exit_code(self) -> int:
        """0 where the target can be relied on, else 1."""
        return CONFORMANT if self.reliable else NOT_CONFORMANT

    def as_text(self) -> str:
        """What was found, for a terminal."""
        absent = [f"none  {name}: it is optional, and the suite tries less without it" for name in self.not_given]
        parts = [
            f"{self.plugin}: whether its target would show a broken plugin; seed {self.seed}",
            "\n".join(["The target itself", *map(_plumbing_text, self.plumbing), *absent]),
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
    seed = new_seed() if seed is None else seed
    tried = await run_all(target, plumbing(target), seed=seed, seconds=timeout, progress=progress)
    rehearsals: list[Rehearsal] = []
    for mutant, stand_in in stand_ins(target).items():
        features = features_of(stand_in)
        judged = [one for one in select(stand_in, only) if one.features <= features]
        results = await run_all(stand_in, judged, seed=seed, seconds=timeout, progress=progress)
        rehearsals.append(Rehearsal(mutant.name, mutant.breaks, results, len(results) < len(judged)))
    return SelfTest(target.name, seed, tried, tuple(rehearsals), not_given(target))


def _plumbing_text(result: Result) -> str:
    if result.outcome is Outcome.PASS:
        return f"ok    {result.statement}"
    lines = [f"FAIL  {result.statement}", f"      {result.detail}"]
    if result.expected is not None:
        lines += [f"      expected: {result.expected}", f"      seen:     {result.seen}"]
    return "\n".join([*lines, *(f"      {step}" for step in result.steps)])
