"""The generated pages of the conformance suite are those of the present invariants and mutants."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from muniment.conformance.capabilities import capabilities_page
from muniment.conformance.docs import PAGES
from muniment.conformance.invariant import Seat
from muniment.conformance.registry import INVARIANTS
from muniment.hookspecs import Descriptor, Kind
from muniment.plugins import Plugins

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    """Whoever changes an invariant or a mutant runs `nox -s docs`."""
    stored = (DOCS / name).read_text(encoding="utf-8")
    assert stored == PAGES[name](), f"docs/{name} is stale; run `nox -s docs`"


def test_every_invariant_has_the_anchor_that_reports_link_to() -> None:
    """A report links to `docs/invariants.md#mut-01`; a heading of that name makes the anchor."""
    anchors = {heading.lower() for heading in re.findall(r"^### (\S+)$", PAGES["invariants.md"](), re.MULTILINE)}
    assert anchors
    assert {invariant.docs for invariant in INVARIANTS} == {f"docs/invariants.md#{anchor}" for anchor in anchors}


REPORTS = sorted((DOCS / "reports").glob("*.json"))
SEATS: Mapping[Kind, Seat] = {"storage": Seat.STORAGE, "embedder": Seat.EMBEDDER, "transport": Seat.TRANSPORT}
OURS = {path.parent.name for path in (DOCS.parent / "plugins").glob("*/pyproject.toml")}
JUDGED = {
    one.name: one for one in Plugins.load().descriptors if one.name in OURS or one.factory.startswith("muniment.")
}
"""The descriptors of this repository's plugins, by name."""


def test_every_plugin_has_a_report() -> None:
    """None is forgotten, and no report is of a plugin that is gone."""
    assert OURS
    assert JUDGED.keys() > OURS
    assert {path.stem for path in REPORTS} == JUDGED.keys()


def test_the_capabilities_are_those_of_the_reports() -> None:
    """Whoever commits a report runs `nox -s docs`; neither a seed nor a time is on the page."""
    stored = (DOCS / "capabilities.md").read_text(encoding="utf-8")
    assert stored == capabilities_page(DOCS / "reports"), "docs/capabilities.md is stale; run `nox -s docs`"


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_report_is_whole_and_of_this_suite(path: Path) -> None:
    """It is named after its plugin, is of a whole run by the invariants of its seat, and holds no path of a machine."""
    text = path.read_text(encoding="utf-8")
    report = json.loads(text)

    assert report["plugin"] == path.stem
    assert report["complete"]
    assert not report["not_run"]
    assert [one["id"] for one in report["invariants"]] == judging(JUDGED[path.stem])
    said = json.dumps(report["configuration"] | report["versions"])
    assert not re.search(r"/(?:home|root|tmp|Users|var|work)/", said)


def judging(plugin: Descriptor) -> list[str]:
    """The ids of the invariants of a plugin's seat and contract, in the order of the documentation."""
    seat, contract = SEATS[plugin.kind], version(plugin.contract)
    return [one.id for one in INVARIANTS if seat in one.seats and version(one.since) <= contract]


def version(text: str) -> tuple[int, ...]:
    """A contract version as numbers."""
    return tuple(map(int, text.split(".")))
