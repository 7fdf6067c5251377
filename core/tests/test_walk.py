"""The random sequences of the suite: what differs is found, made short, and named with its seed."""

from __future__ import annotations

import re
from random import Random

import pytest

from muniment.conformance import walk
from muniment.conformance.agent_model import Step, steps
from muniment.conformance.bench import world_of
from muniment.conformance.invariant import Broken
from muniment.conformance.mutants.acknowledgement import LowersLastSeen
from muniment.conformance.mutants.digests import JumpsToCurrent
from muniment.conformance.reference_target import ReferenceTarget
from muniment.reference import ReferenceStorage


async def found(storage: type[ReferenceStorage]) -> str:
    """What the walk says of a storage."""
    async with world_of(ReferenceTarget(storage), Random(3)) as world:
        with pytest.raises(Broken) as caught:
            await walk.agree(world, {})
    return str(caught.value)


@pytest.mark.parametrize(("storage", "at_most"), [(JumpsToCurrent, 5), (LowersLastSeen, 8)])
async def test_what_differs_is_made_short(storage: type[ReferenceStorage], at_most: int) -> None:
    """A sequence that differs is shrunk to the few steps that it takes, and the same again for the same seed."""
    message = await found(storage)
    counted = re.search(r"after (\d+) steps of sequence \d+ of seed \d+: (.*):", message)
    assert counted, message
    assert 0 < int(counted[1]) <= at_most
    assert len(re.findall(r"\w+\(\d+,\d+\)", counted[2])) == int(counted[1])
    assert await found(storage) == message


def test_sequences_are_those_of_their_seed() -> None:
    """The same seed gives the same steps, and another one others."""
    first = steps(Random("1:2"), 20, {"read": 2})
    assert first == steps(Random("1:2"), 20, {"read": 2})
    assert first != steps(Random("1:3"), 20, {"read": 2})
    assert all(isinstance(step, Step) for step in first)


async def test_the_budget_is_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow backend there are fewer sequences, never none, and the report says how many."""
    monkeypatch.setattr(walk, "SECONDS", 0.0)
    monkeypatch.setattr(walk, "LEAST", 2)
    async with world_of(ReferenceTarget(), Random(3)) as world:
        await walk.agree(world, {})
    assert world.notes == [f"2 of {walk.SEQUENCES} sequences in 0 s"]
