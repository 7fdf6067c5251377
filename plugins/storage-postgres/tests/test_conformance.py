"""The conformance suite on an embedded server, with the words of every scope kept in mind once it has been searched."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from muniment.conformance.pytest_front import conformance_tests
from muniment_storage_postgres import mind, search
from muniment_storage_postgres.conformance import target
from muniment_storage_postgres.readable import Part


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """One memory is worth it. Not its vectors: a cosine would change by a millionth after the first search."""

    def sizes(
        answered: Part | None, passages: Mapping[int, int], space: int | None, dimensions: int
    ) -> Mapping[mind.Key, int]:
        return mind.sizes(answered, {}, space, dimensions)

    monkeypatch.setattr(mind, "WORTH", 1)
    monkeypatch.setattr(search, "sizes", sizes)


test_conformance = conformance_tests(target)
