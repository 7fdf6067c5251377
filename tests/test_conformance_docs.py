"""The generated pages of the conformance suite are those of the present invariants and mutants."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from muniment.conformance.docs import PAGES
from muniment.conformance.registry import INVARIANTS

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    """Whoever changes an invariant or a mutant runs `nox -s docs`."""
    stored = (DOCS / name).read_text(encoding="utf-8")
    assert stored == PAGES[name](), f"docs/{name} is stale; run `nox -s docs`"


def test_every_invariant_has_the_anchor_that_reports_link_to() -> None:
    """A report links to `docs/invariants.md#mut-01`; a heading of that name makes the anchor."""
    anchors = {heading.lower() for heading in re.findall(r"^### (\S+)$", PAGES["invariants.md"](), re.MULTILINE)}
    assert {invariant.docs for invariant in INVARIANTS} == {f"docs/invariants.md#{anchor}" for anchor in anchors}
