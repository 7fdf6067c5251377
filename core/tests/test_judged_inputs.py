"""The suite judges an operation by its input model, so one that is added or loosened later cannot slip through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muniment.conformance.estate import RECIPES
from muniment.conformance.invariant import Outcome
from muniment.conformance.reference_target import ReferenceTarget
from muniment.conformance.report import Result
from muniment.conformance.runner import run
from muniment.inputs import Input, Text
from muniment.operations import OPERATIONS
from muniment.operations.memories import MemoryList, MemorySearch


async def bulk() -> Result:
    """How ACC-09 ends on the reference storage."""
    return (await run(ReferenceTarget(), only=["ACC-09"], seed=7)).results[0]


async def test_a_change_that_need_not_name_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that empties a project, or everything when none is named, is refused by the suite."""

    class Purge(Input):
        project: str | None = None

    purge = replace(OPERATIONS["memory.delete"], name="memory.purge", input=Purge)
    monkeypatch.setitem(OPERATIONS, purge.name, purge)  # type: ignore[arg-type]
    monkeypatch.setitem(RECIPES, purge.name, lambda on: {"project": on.key})  # type: ignore[arg-type]
    result = await bulk()
    assert result.outcome is Outcome.FAIL
    assert "memory.purge requires" in result.detail


class LooseList(MemoryList):
    project: Text | None = None


class ManySearch(MemorySearch):
    ids: list[str] = []  # noqa: RUF012


@pytest.mark.parametrize(("name", "loose"), [("memory.list", LooseList), ("memory.search", ManySearch)])
async def test_an_input_that_takes_an_empty_selector(
    monkeypatch: pytest.MonkeyPatch, name: str, loose: type[Any]
) -> None:
    """A field that names something and may be empty, of one name or of a list of them, is seen."""
    monkeypatch.setitem(OPERATIONS, name, replace(OPERATIONS[name], input=loose))  # type: ignore[arg-type]
    result = await bulk()
    assert result.outcome is Outcome.FAIL
    assert name in result.detail
