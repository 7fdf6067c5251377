"""Every storage answers as the reference does: random operations through an engine over each, side by side."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from muniment.conformance.mutants import MUTANTS
from muniment.conformance.pytest_front import not_run
from muniment.conformance.reference_target import ReferenceTarget
from muniment.conformance.target import NotRun, StorageTarget
from muniment.operations import OPERATIONS
from muniment.reference import ReferenceStorage
from muniment_storage_mongo.conformance import target as mongo
from muniment_storage_postgres.conformance import target as postgres
from muniment_storage_sqlite.conformance import target as sqlite
from tests.differential.answers import Different
from tests.differential.recipes import RECIPES
from tests.differential.sides import ANSWERED, comparison
from tests.differential.steps import REFUSED, Step, sequence

SEED = os.environ.get("MUNIMENT_DIFFERENTIAL_SEED", "20240301")
"""Another seed is other operations."""
WANTED = 2_000
"""Operations in all."""
LENGTH = 75
"""Parts of a sequence; some are several operations."""
SHRINKINGS = 100
"""Runs that may be spent on finding a shorter sequence that shows a difference; most differences take less than 50."""
CAUGHT = ("idempotency keys expired at once", "oldest first", "ranks from 0", "seen entries again")
"""Names of broken storages that the comparison must tell apart from the reference."""

Targets = Sequence[StorageTarget[Any]]


def test_every_operation_has_a_recipe() -> None:
    """The list of operations is the registry's, so that one added later is compared at once."""
    assert RECIPES.keys() == OPERATIONS.keys()


async def test_the_storages_answer_alike() -> None:
    """2,000 operations get the same receipts, refusals, pages and orders from each, scores within 1e-5."""
    try:
        outcomes = await run([reference(), postgres(), mongo(), sqlite()])
    except NotRun as missing:
        not_run(str(missing))
        return
    answered = {operation for operation, code in outcomes if code == ANSWERED}
    refused = {operation for operation, code in outcomes if code != ANSWERED}
    assert (OPERATIONS.keys() - answered, OPERATIONS.keys() - refused) == (set(), set()), "these were not compared"


@pytest.mark.parametrize("name", CAUGHT)
async def test_a_broken_storage_is_told_apart(name: str) -> None:
    """The comparison can fail: it ends at the first operation that a storage with one rule broken answers otherwise."""
    (broken,) = (mutant.plugin for mutant in MUTANTS if mutant.name == name)
    assert issubclass(broken, ReferenceStorage)
    with pytest.raises(Different) as found:
        await run([reference(), reference(broken)])
    assert found.value.length < LENGTH, "it was not shrunk"
    assert SEED in found.value.__notes__[0]


@pytest.mark.parametrize("shows", [True, False])
async def test_shrinking_is_bounded(shows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its runs and by no clock, so that a seed gives the same sequence on every machine; each run is of a part."""
    ran: list[int] = []

    async def run_once(_: Targets, steps: Sequence[Step]) -> Counter[tuple[str, str]]:
        ran.append(len(steps))
        if shows and len(steps) > 1:
            raise Different("a", [f"{step}" for step in steps], [])
        return Counter()

    monkeypatch.setattr(sys.modules[__name__], "outcomes_of", run_once)
    steps = [Step("project.list", "ann")] * 5_000
    left = await shortest([], steps, Different("a", ["a"] * len(steps), []), "seed")

    assert 0 < len(ran) <= SHRINKINGS
    assert max(ran) < len(steps)
    assert left.length == (2 if shows else len(steps))


def reference(storage: type[ReferenceStorage] = ReferenceStorage) -> ReferenceTarget:
    """The reference or a subclass of it, on this machine's clock as the others are."""
    return ReferenceTarget(storage, clock=lambda: lambda: datetime.now(UTC))


async def run(targets: Targets) -> Counter[tuple[str, str]]:
    """The outcomes of sequence after sequence, until there were enough operations. Raises Different, NotRun."""
    outcomes = await outcomes_of(targets, REFUSED)
    number = 0
    while outcomes.total() < WANTED:
        outcomes += await compared(targets, f"{SEED}:{number}")
        number += 1
    return outcomes


async def compared(targets: Targets, seed: str) -> Counter[tuple[str, str]]:
    """The outcomes of a sequence. Raises Different with the shortest sequence found that shows the difference."""
    steps = sequence(seed, LENGTH)
    try:
        return await outcomes_of(targets, steps)
    except Different as different:
        raise await shortest(targets, steps, different, seed) from None


async def outcomes_of(targets: Targets, steps: Sequence[Step]) -> Counter[tuple[str, str]]:
    """How often each operation was answered, or refused with a code. Raises Different."""
    async with comparison(targets) as sides:
        for step in steps:
            await sides.take(step)
        return sides.outcomes


async def shortest(targets: Targets, steps: Sequence[Step], found: Different, seed: str) -> Different:
    """The difference that is left after leaving out ever smaller parts of the steps (delta debugging)."""
    steps, runs = steps[: found.length], 0
    part = len(steps) // 2
    while part:
        start = 0
        while start < len(steps) and runs < SHRINKINGS:
            shorter, runs = [*steps[:start], *steps[start + part :]], runs + 1
            try:
                await outcomes_of(targets, shorter)
            except Different as still:
                steps, found = shorter[: still.length], still
            else:
                start += part
        part //= 2
    found.add_note(f"seed {seed}; MUNIMENT_DIFFERENTIAL_SEED chooses it")
    return found
