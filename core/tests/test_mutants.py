"""The mutants: each fails exactly the invariants that it declares, and each invariant has one that was made for it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping

import pytest

from muniment.conformance.invariant import Outcome
from muniment.conformance.mutants import MADE_FOR_ONE, MUTANTS, UNIVERSAL, Mutant
from muniment.conformance.mutants.mutant import Plugin, target_of
from muniment.conformance.mutants.reach import overridden
from muniment.conformance.mutants.rehearsal import BASES, Ended, Judged, judged, killed
from muniment.conformance.registry import BY_ID, INVARIANTS, judging

pytestmark = pytest.mark.timeout(2_400)
"""The first that asks for the whole matrix waits for all of it: minutes of every core there is."""

FULL = os.environ.get("MUNIMENT_CONFORMANCE_FULL") == "1"
"""Whether every check is run on every mutant, on as much data as a real plugin's are; the same sets take very long."""


@pytest.fixture(scope="module")
def matrix(kills: Mapping[str, Ended]) -> Judged:
    """How every invariant of its seat ends on each mutant, and on what mutants are made of."""
    return judged(kills, full=FULL)


@pytest.fixture(scope="module")
def kills() -> Mapping[str, Ended]:
    """How the invariants that each mutant declares to fail end on it."""
    return killed(full=FULL)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fails_what_it_declares(mutant: Mutant, kills: Mapping[str, Ended]) -> None:
    """All of it, and what it was made for fails by what was seen, not by a crash."""
    ended = kills[mutant.name]
    assert {name for name, outcome in ended.items() if not outcome.kept} == mutant.fails
    if mutant.made_for is not None:
        assert ended[mutant.made_for] is Outcome.FAIL


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fails_nothing_else(mutant: Mutant, matrix: Judged) -> None:
    """The failed set of all invariants of its seat is the declared one."""
    ended = matrix.mutants[mutant.name]
    assert ended.keys() == {invariant.id for invariant in judging(mutant.target)}
    assert {name for name, outcome in ended.items() if not outcome.kept} == mutant.fails


def test_who_fails_was_told_from_its_base(matrix: Judged) -> None:
    """What is not run on a mutant, since it does nothing else there than its base, would not have failed.

    All that the mutants declare to fail shows it, over a thousand pairs; a full run shows it of every pair.
    """
    assert matrix.mistaken == frozenset()


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_what_mutants_are_made_of_passes_everything(base: Plugin, matrix: Judged) -> None:
    """Without a fault nothing fails, so what a mutant fails is its fault's doing."""
    ended = matrix.bases[base.__name__]
    assert ended == {invariant.id: Outcome.PASS for invariant in judging(target_of(base))}


def test_every_invariant_has_a_mutant_made_for_it() -> None:
    """An invariant that no mutant was made for might never fail at all."""
    assert BY_ID.keys() - {mutant.made_for for mutant in MADE_FOR_ONE} == set()


@pytest.mark.parametrize("mutant", MADE_FOR_ONE, ids=lambda mutant: mutant.name)
def test_what_a_mutant_declares_is_there(mutant: Mutant) -> None:
    """Ids exist and judge its seat, the one that it was made for is among them, and the fault is put into words."""
    assert mutant.fails <= {invariant.id for invariant in judging(mutant.target)}
    assert mutant.made_for in mutant.fails
    assert mutant.breaks.endswith(".")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_replaces_what_its_base_has(mutant: Mutant) -> None:
    """Each public attribute of a mutant is one of its base's with the same parameters, so no name is mistyped."""
    assert mutant.plugin.__bases__[0] in BASES
    names = overridden(mutant.plugin)
    assert names, "it defines what no call can be noted of, or nothing"
    public = {name for name in names if not name.startswith("_")}
    assert public
    for name in public:
        base = inspect.getattr_static(mutant.plugin.__bases__[0], name)
        assert inspect.getattr_static(mutant.plugin, name) is not base
        if inspect.isfunction(base):
            parameters = inspect.signature(getattr(mutant.plugin, name)).parameters
            assert list(parameters) == list(inspect.signature(base).parameters)


def test_names_of_mutants_are_unique() -> None:
    """A name means one fault, in the documentation and in the reports."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.plugin for mutant in MUTANTS}) == len(MUTANTS)


def test_universal_mutants_fail_every_family() -> None:
    """A plugin that refuses, does or remembers nothing keeps no rule, in any family of its seat."""
    for mutant in UNIVERSAL:
        families = {BY_ID[name].family for name in mutant.fails}
        assert families == {invariant.family for invariant in judging(mutant.target)}
    seats = {seat for invariant in INVARIANTS for seat in invariant.seats}
    assert len(seats) == 3
