"""The suite under pytest: what passes, fails, is expected to fail, and is skipped."""

from __future__ import annotations

import pytest

from muniment.conformance.pytest_front import conformance_tests
from muniment.conformance.reference_target import ReferenceTarget


def test_the_pytest_front_skips_loudly_or_fails(missing: ReferenceTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not run is skipped with its reason, and is a failure where everything is required."""
    test = conformance_tests(missing)
    monkeypatch.delenv("MUNIMENT_CONFORMANCE_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="not run: the server is not installed"):
        test("READ-03")
    monkeypatch.setenv("MUNIMENT_CONFORMANCE_REQUIRE", "1")
    with pytest.raises(pytest.fail.Exception, match="not run: the server is not installed"):
        test("READ-03")


def test_the_pytest_front_fails_with_the_whole_story(
    losing_tags: ReferenceTarget, without_faults: ReferenceTarget
) -> None:
    """A failing invariant is one failing test, with what was done."""
    with pytest.raises(pytest.fail.Exception, match=r"(?s)READ-03.*memory\.write.*expected:.*seen:"):
        conformance_tests(losing_tags)("READ-03")
    with pytest.raises(pytest.fail.Exception, match="not-exercised"):
        conformance_tests(without_faults)("MUT-13")


def test_the_pytest_front_expects_known_failures(losing_tags: ReferenceTarget) -> None:
    """A known failure keeps the tests green; a stale one does not."""
    losing_tags.known_failures = {"READ-03": "tracker/1", "MUT-06": "tracker/2"}
    with pytest.raises(pytest.xfail.Exception, match="tracker/1"):
        conformance_tests(losing_tags)("READ-03")
    with pytest.raises(pytest.fail.Exception, match="stale-known-failure"):
        conformance_tests(losing_tags)("MUT-06")
