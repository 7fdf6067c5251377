"""The suite under pytest: one test for each invariant. A plugin's ``tests/test_conformance.py`` is three
lines:

    from muniment.conformance.pytest_front import conformance_tests
    from muniment_storage_example.conformance import target

    test_conformance = conformance_tests(target)

A known failure is an expected failure; one that holds, and an invariant that was not exercised, fail. Where
the target says NotRun, the tests are skipped with its reason, or fail if ``MUNIMENT_CONFORMANCE_REQUIRE=1``.
The seed is taken from ``MUNIMENT_CONFORMANCE_SEED``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

import pytest

from muniment.conformance.invariant import Invariant, Outcome
from muniment.conformance.registry import BY_ID, INVARIANTS, judging, select
from muniment.conformance.report import again
from muniment.conformance.runner import TIME_LIMIT, new_seed, run_one, unusual
from muniment.conformance.target import NotRun, Target

SEED = int(os.environ.get("MUNIMENT_CONFORMANCE_SEED") or new_seed())
REQUIRE = "MUNIMENT_CONFORMANCE_REQUIRE"


def conformance_tests(
    target: Target | Callable[[], Target], *, only: Sequence[str] | None = None, timeout: float = TIME_LIMIT
) -> Callable[[str], None]:
    """A test function, parametrised by the invariants that judge ``target``.

    ``target`` may be a callable that makes one, as a descriptor's ``conformance`` names it; what it raises as
    NotRun skips the tests. ``timeout`` is in seconds for each invariant. Raises UnknownInvariant.
    """
    made, reason = _made(target)
    judged = INVARIANTS if made is None else select(made, only)

    @pytest.mark.parametrize("invariant", [one.id for one in judged])
    def test_conformance(invariant: str) -> None:
        if made is None:
            not_run(reason)
            return
        judge(made, BY_ID[invariant], timeout)

    return test_conformance


def judge(target: Target, invariant: Invariant, timeout: float = TIME_LIMIT) -> None:
    """Run one invariant and turn its outcome into pytest's."""
    assert invariant in judging(target)
    try:
        result = asyncio.run(run_one(target, invariant, seed=SEED, seconds=timeout))
    except NotRun as error:
        not_run(str(error))
        return
    if not result.green:
        command = again(target.name, invariant.id, SEED, timeout=unusual(timeout))
        pytest.fail(result.as_text(SEED, command), pytrace=False)
    if result.expected_failure:
        pytest.xfail(f"{result.level}: {result.detail}")
    if result.outcome is Outcome.UNDECLARED:
        pytest.skip(result.detail)


def not_run(reason: str) -> None:
    """Skip with the reason, or fail where everything is required to run."""
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"not run: {reason}", pytrace=False)
    pytest.skip(f"not run: {reason}")


def _made(target: Target | Callable[[], Target]) -> tuple[Target | None, str]:
    if isinstance(target, Target):
        return target, ""
    try:
        return target(), ""
    except NotRun as error:
        return None, str(error)
