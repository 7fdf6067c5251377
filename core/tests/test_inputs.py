"""Refusals of inputs name the field, the limit and the remedy, in words of ours, and never repeat the value."""

from __future__ import annotations

from typing import Any

import pytest

from muniment import limits
from muniment.errors import InvalidInput
from muniment.operations import OPERATIONS

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


def test_each_pattern_is_said_in_words() -> None:
    """A regular expression is nothing to show to a person."""
    payloads: dict[str, dict[str, Any]] = {
        "memory.write": {"content": "x", "tags": ["%"]},
        "project.identify": {"project": "%"},
        "agent.register": {"agent": {"name": "%", "instance": "1"}, "pods": []},
    }
    for operation, payload in payloads.items():
        with pytest.raises(InvalidInput) as refused:
            OPERATIONS[operation].parse(payload)
        assert "^" not in refused.value.message
