"""The pure rules of sections."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from muniment import limits, sections
from muniment.agent_models import SectionName, Visibility
from muniment.errors import InvalidInput, SectionAppendOnly, SectionReadOnly

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)


def draft(name: SectionName, value: Any, visibility: str | None = None) -> sections.SectionDraft:
    return sections.draft(name, value, visibility, field="value")


def test_nobody_replaces_the_platforms_section_or_the_cycles() -> None:
    """With the reason that programs compare; any other section is accepted."""
    with pytest.raises(SectionReadOnly) as refused:
        draft(SectionName.SYSTEM_EXCHANGES, [])
    assert refused.value.details == {"reason": "system_exchanges_is_read_only"}
    with pytest.raises(SectionAppendOnly):
        draft(SectionName.CYCLES, [])
    assert draft(SectionName.SOUL, "curious").visibility is Visibility.PRIVATE


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        (SectionName.LONG_TERM, 5, "value"),
        (SectionName.LONG_TERM, "a\x00b", "value"),
        (SectionName.DEDUP_STATE, [], "value"),
        (SectionName.DEDUP_STATE, {"a": float("inf")}, "value"),
        (SectionName.RUNTIME_META, {"a": ["\ud800"]}, "value"),
        (SectionName.RUNTIME_META, {"a": 10**5_000}, "value"),
        (SectionName.DAILY, "text", "value"),
        (SectionName.DAILY, [{"date": "2026-02-30", "content": "x"}], "value.0.date"),
        (SectionName.DAILY, [{"date": "20260203", "content": "x"}], "value.0.date"),
        (SectionName.DAILY, [{"date": "2026-02-03"}], "value.0.content"),
        (SectionName.DAILY, [{"date": "2026-02-03", "content": "x", "mood": 1}], "value.0.mood"),
        (SectionName.DAILY, [{"date": "2026-02-03", "content": "x", "visibility": "all"}], "value.0.visibility"),
        (SectionName.DAILY, [{"date": "2026-02-03", "content": "x"}] * 2, "value"),
        (SectionName.RELATIONSHIPS, [{"other": "", "content": "x"}], "value.0.other"),
        (SectionName.SHARED, "x" * (limits.SECTION_BYTES_MAX + 1), "value"),
    ],
)
def test_a_value_of_another_shape_is_refused_by_its_field(name: SectionName, value: Any, field: str) -> None:
    """Each section has its shape; the refusal names the field, never the value."""
    with pytest.raises(InvalidInput) as refused:
        draft(name, value)
    assert refused.value.details["field"] == field


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    """A thousand levels are more than a parser takes; a few are fine."""
    deep: Any = "x"
    for _ in range(1_000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nested"):
        draft(SectionName.DEDUP_STATE, {"a": deep})
    assert draft(SectionName.DEDUP_STATE, {"a": [[["x"]]]}).value == {"a": [[["x"]]]}


def test_fields_of_the_server_are_dropped() -> None:
    """Wherever a client sends them."""
    entry = {"date": "2026-02-03", "content": "x", "byte_size": 1, "updated_at": "now", "schema_version": 9}
    assert draft(SectionName.DAILY, [entry]).value == [{"content": "x", "date": "2026-02-03"}]
    assert sections.without_server_fields({"value": 1, "byte_size": 2}) == {"value": 1}


def test_size_is_that_of_compact_json_in_utf8() -> None:
    """In bytes, not in characters."""
    assert draft(SectionName.SOUL, "é").byte_size == 4
    big = draft(SectionName.SOUL, "x" * limits.SECTION_BYTES_WARNED)
    assert len(sections.warnings([big, draft(SectionName.SOUL, "x")])) == 1


def test_a_patch_merges_by_key_and_replaces_the_rest() -> None:
    """Entries with the same key are replaced, the others stay; a text is replaced."""
    current = draft(SectionName.DAILY, [{"date": "2026-02-01", "content": "a"}, {"date": "2026-02-03", "content": "c"}])
    sent = draft(SectionName.DAILY, [{"date": "2026-02-03", "content": "C"}, {"date": "2026-02-02", "content": "b"}])
    merged = sections.merged(current.value, sent).value
    assert [(entry["date"], entry["content"]) for entry in merged] == [
        ("2026-02-01", "a"),
        ("2026-02-02", "b"),
        ("2026-02-03", "C"),
    ]
    assert sections.merged("old", draft(SectionName.SOUL, "new")).value == "new"


def test_a_patch_makes_no_section_that_could_not_be_saved() -> None:
    """What two of them made together has a limit of entries, too."""
    halves = [
        draft(SectionName.DAILY, [{"date": f"{year}-01-01", "content": ""} for year in range(first, first + 600)])
        for first in (1000, 2000)
    ]
    merged = sections.merged(halves[0].value, halves[1])
    with pytest.raises(InvalidInput, match="1,200 entries; at most 1,000"):
        sections.check_size(merged, "sections.daily.value")


def test_a_sync_is_known_by_its_meaning() -> None:
    """Whatever the order of keys and entries; another value, visibility, runtime, mode or day is another sync."""
    one = draft(SectionName.DEDUP_STATE, {"a": 1, "b": [1, 2]})
    same = draft(SectionName.DEDUP_STATE, {"b": [1, 2], "a": 1})
    days = [{"date": "2026-02-01", "content": "a"}, {"date": "2026-02-03", "content": "c"}]
    key = sections.sync_key("patch", "r", [one, draft(SectionName.DAILY, days)], NOON)
    assert key == sections.sync_key("patch", "r", [draft(SectionName.DAILY, days[::-1]), same], NOON.replace(hour=23))
    others = [
        sections.sync_key("full", "r", [one, draft(SectionName.DAILY, days)], NOON),
        sections.sync_key("patch", "s", [one, draft(SectionName.DAILY, days)], NOON),
        sections.sync_key("patch", "r", [one, draft(SectionName.DAILY, days)], NOON.replace(day=4)),
        sections.sync_key("patch", "r", [one, draft(SectionName.DAILY, days, "pod")], NOON),
        sections.sync_key("patch", "r", [draft(SectionName.DAILY, days)], NOON),
    ]
    assert len({key, *others}) == 6


def test_others_see_what_was_opened_element_by_element() -> None:
    """An element's own visibility counts before its section's; pods open to pods only; two sections never."""
    value = [
        {"date": "2026-02-01", "content": "a"},
        {"date": "2026-02-02", "content": "b", "visibility": "public"},
        {"date": "2026-02-03", "content": "c", "visibility": "private"},
    ]

    def seen(visibility: Visibility, common_pod: bool) -> list[str]:
        _, part = sections.visible(SectionName.DAILY, value, visibility, common_pod=common_pod)
        return [entry["content"] for entry in part]

    assert seen(Visibility.PRIVATE, True) == ["b"]
    assert seen(Visibility.POD, True) == ["a", "b"]
    assert seen(Visibility.POD, False) == ["b"]
    assert seen(Visibility.PUBLIC, False) == ["a", "b"]
    assert sections.visible(SectionName.SOUL, "x", Visibility.POD, common_pod=True) == (True, "x")
    assert sections.visible(SectionName.SOUL, "x", Visibility.POD, common_pod=False) == (False, "")
    for name in sections.ALWAYS_PRIVATE:
        assert sections.visible(name, [{"content": "x"}], Visibility.PUBLIC, common_pod=True) == (False, [])


def test_a_cycle_is_cut_at_its_limit() -> None:
    """And it says by how much."""
    assert sections.cycle("short") == ("short", 0)
    text, cut = sections.cycle("x" * (limits.CYCLE_MAX + 7))
    assert (len(text), cut) == (limits.CYCLE_MAX, 7)
