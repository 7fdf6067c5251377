"""What tells values apart, and changes of what is stored that are taken back and made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from muniment.conformance.mutants.likeness import Copies, alike
from muniment.conformance.mutants.twins import same_effects
from muniment.conformance.mutants.watched import Effects, journal_of
from muniment.conformance.reference_target import CoarseClock
from muniment.models import Agent
from muniment.ports import Audience, AuditDraft
from muniment.reference import ReferenceData
from muniment.reference.agent_rows import EventRow
from muniment.reference.rows import ProjectRow

ALICE = Audience("alice", frozenset({"team"}))
ADA = Agent(name="ada", instance="1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0.0, -0.0),
        ([1], (1,)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.zeros(2, np.float32), np.zeros(2)),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, fold=1, tzinfo=UTC)),
        (ValueError("one"), ValueError("other")),
        (None, ALICE),
        (AuditDraft, ALICE),
    ],
)
def test_what_could_be_told_apart_is_not_alike(one: object, other: object) -> None:
    """Equal is not enough."""
    assert alike(one, one)
    assert not alike(one, other)
    assert not alike(other, one)


def everything(data: ReferenceData) -> object:
    """What is stored, in its order."""
    agents = data.agents
    return (
        list(data.projects.items()),
        [(of, list(queue.items())) for of, queue in agents.events.items()],
        set(data.columns),
    )


def test_changes_can_be_taken_back_and_made_again() -> None:
    """Each way of changing what is stored, also in what a row of it holds; the order is part of it."""
    data, at = ReferenceData(), CoarseClock.START
    row = ProjectRow("p", "key", "alice", 1, at, at, {})
    event = EventRow("e", 1, ADA, {}, at)
    data.projects.update(p=row, q=row)
    data.agents.events[ADA] = {}
    journal = journal_of(data)
    place = journal.begin()
    before = everything(data)
    for change in (
        lambda: data.projects.update(p=replace(row, version=2), r=row),
        lambda: data.projects.pop("p"),
        lambda: data.projects.__setitem__("p", row),
        lambda: data.agents.events[ADA].setdefault("e", event),
        lambda: data.agents.events.setdefault(Agent(name="ada", instance="2"), {}).update(e=event),
        lambda: data.columns.add("another"),
        lambda: data.projects.clear(),
        lambda: data.projects.__ior__({"s": row}),
    ):
        change()
    after = everything(data)
    undone = journal.take_back(place)
    assert everything(data) == before
    journal.make_again(undone)
    assert everything(data) == after
    journal.take_back(place)
    assert everything(data) == before


@pytest.mark.parametrize(
    ("some", "others", "same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a", "b"], ["b", "a"], False),
        (["a"], ["a", "b"], False),
        (["a", "-"], ["a"], False),
        (["a", "-"], ["b", "-"], True),
    ],
)
def test_effects_are_told_apart(some: Sequence[str], others: Sequence[str], same: bool) -> None:
    """By what is there in the end, and its order; a dash takes everything away."""

    def effects(names: Sequence[str]) -> Effects:
        place, count = journal.begin(), journal.count
        for name in names:
            if name == "-":
                data.projects.clear()
            else:
                data.projects[name] = ProjectRow(name, "key", "alice", 1, CoarseClock.START, CoarseClock.START, {})
        found = journal.effects(place, count)
        journal.take_back(place)
        journal.count = count
        return found

    data = ReferenceData()
    journal = journal_of(data)
    journal.begin()
    assert same_effects(effects(some), effects(others)) is same
    assert same_effects(effects(others), effects(some)) is same


def test_copies_are_alike_and_apart() -> None:
    """What is one object in the original is one in the copy, and none of the original's."""
    clock, listed = CoarseClock(), [1]
    copied, again, copied_clock = Copies().of((listed, listed, clock))
    assert copied is again
    assert copied is not listed
    assert alike((copied, copied_clock), (listed, clock))
    clock()
    assert not alike(copied_clock, clock)
