"""Refusals of inputs name the field, the limit and the remedy, in words of ours, and never repeat the value."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from pydantic import ValidationError

from muniment import limits, sections
from muniment.agent_models import SectionName
from muniment.errors import InvalidInput
from muniment.inputs import refusal
from muniment.operations import OPERATIONS, operation

SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    ("operation", "payload", "field", "words"),
    [
        ("memory.write", {}, "content", "missing"),
        ("memory.write", {"content": ""}, "content", "empty"),
        ("memory.write", {"content": 5}, "content", "not a text"),
        ("memory.write", {"content": f"{SECRET}\x00"}, "content", "NUL"),
        ("memory.write", {"content": f"{SECRET}\ud800"}, "content", "lone surrogate"),
        ("memory.write", {"content": "x", "contents": SECRET}, "contents", "no such field"),
        ("memory.write", {"content": "x", "tags": SECRET}, "tags", "JSON array"),
        ("memory.write", {"content": "x", "tags": [f"{SECRET} "]}, "tags.0", "1 to 64 of A-Z, a-z, 0-9 and . _ -"),
        ("memory.write", {"content": "x", "tags": ["a"] * 33}, "tags", "more than 32 entries"),
        ("memory.write", {"content": "x", "scope": SECRET}, "scope", "'user' or 'project'"),
        ("memory.write", {"content": "x", "project": f"{SECRET}\n"}, "project", "1 to 200"),
        ("project.share", {"project": "p", "group": " \n", "access": "ro"}, "group", "blank"),
        ("project.share", {"project": "p", "group": "a\nb", "access": "ro"}, "group", "control character"),
        ("project.unshare", {"project": "p", "group": f"{SECRET}\u2028"}, "group", "line break"),
        ("project.unshare", {"project": "p", "group": f"{SECRET}\ud800"}, "group", "lone surrogate"),
        ("memory.list", {"limit": "5"}, "limit", "whole number"),
        ("memory.list", {"limit": 0}, "limit", "1 or more"),
        ("memory.list", {"limit": limits.LIST_LIMIT_MAX + 1}, "limit", "200 or less"),
        ("memory.list", {"deleted": "yes"}, "deleted", "true or false"),
        ("memory.search", {"query": "x" * 2_001}, "query", "more than 2000 characters"),
        ("memory.search", {"query": "x", "min_score": SECRET}, "min_score", "not a number"),
        ("event.enqueue", {"agent": SECRET, "payload": {}}, "agent", "JSON object"),
        ("event.claim", {"lease_seconds": 31_536_000}, "lease_seconds", "3600 or less"),
    ],
)
def test_a_refusal_names_field_limit_and_remedy(
    operation: str, payload: dict[str, Any], field: str, words: str
) -> None:
    """Whatever is wrong; the value is in neither message nor details."""
    with pytest.raises(InvalidInput) as refused:
        OPERATIONS[operation].parse(payload)
    body = refused.value.body()
    assert refused.value.details["field"] == field
    assert words in refused.value.message
    assert SECRET not in str(body)


def test_fields_too_many_are_refused_without_a_look_at_each() -> None:
    """The first one is named; a problem of the library's for every one of millions would hold a server up."""
    with pytest.raises(InvalidInput, match="k0: no such field"):
        OPERATIONS["memory.write"].parse({f"k{number}": SECRET for number in range(1_000)})


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_wide_makes_few_errors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever field, and whether an object or a list: the library makes an error of each part that is wrong, and
    there may be millions."""
    counts: list[int] = []

    def counted(error: ValidationError) -> InvalidInput:
        counts.append(error.error_count())
        return refusal(error)

    monkeypatch.setattr(operation, "refusal", counted)
    wide = ({f"k{number}": SECRET for number in range(1_000)}, [{"k": SECRET}] * 1_000, [SECRET] * 1_000)
    for field in OPERATIONS[name].input.model_fields:
        for value in wide:
            for sent in (value, [value], {"name": value}, {"daily": value}, {"soul": {"value": "x", "version": value}}):
                with suppress(InvalidInput):
                    OPERATIONS[name].parse({field: sent})
    assert max(counts, default=0) < 100


@pytest.mark.parametrize("path", ["sections.daily", "sections", "agent"])
def test_the_first_unknown_field_is_named_at_any_depth(path: str) -> None:
    """With the way to it."""
    sent: dict[str, Any] = {f"k{number}": SECRET for number in range(1_000)}
    for part in reversed(path.split(".")):
        sent = {part: sent}
    name = "section.sync" if "sections" in sent else "agent.register"
    with pytest.raises(InvalidInput, match=rf"^{re.escape(path)}\.k0: no such field"):
        OPERATIONS[name].parse({"mode": "patch", "runtime": "r", **sent} if "sections" in sent else sent)


def test_a_value_of_too_many_parts_is_refused_without_a_look_at_each() -> None:
    """What holds as many cannot be small enough."""
    for sent in ({"items": [1] * 600_000}, {str(number): 1 for number in range(600_000)}):
        with pytest.raises(InvalidInput, match=r"payload: holds more than 500,000 values"):
            OPERATIONS["event.enqueue"].parse({"agent": {"name": "a", "instance": "1"}, "payload": sent})
        with pytest.raises(InvalidInput, match=r"value: holds more than 500,000 values"):
            sections.draft(SectionName.RUNTIME_META, sent, None, field="value")


def test_each_pattern_is_said_in_words() -> None:
    """A regular expression is nothing to show to a person."""
    payloads: dict[str, dict[str, Any]] = {
        "memory.write": {"content": "x", "tags": ["%"]},
        "project.identify": {"project": "%"},
        "agent.register": {"agent": {"name": "%", "instance": "1"}, "pods": []},
    }
    for name, payload in payloads.items():
        with pytest.raises(InvalidInput) as refused:
            OPERATIONS[name].parse(payload)
        assert "^" not in refused.value.message
