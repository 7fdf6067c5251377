"""The part of READ-05 that is about agents: for each of their operations the values that no surface takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muniment import limits
from muniment.operations import Operation

_TEXTS = ("a\x00b", "\ud800", "x\udfff")
_AGENTS: Sequence[Any] = (
    {},
    {"name": "ada"},
    {"name": "ada", "instance": ""},
    {"name": "a b", "instance": "1"},
    {"name": "ada\n", "instance": "1"},
    {"name": "a" * 65, "instance": "1"},
    {"name": "ada", "instance": "1", "user": "keeper"},
    {"name": "ädä", "instance": "1"},
    {"name": "a\x00", "instance": "1"},
    ["ada", "1"],
)
_DAYS = ("", "today", "2026-02-30", "2026-1-1", "20260101", "2026-W01-1", "2026-01-01T00:00:00", "0000-01-01")
_FIELDS: Mapping[str, Sequence[Any]] = {
    "agent": _AGENTS,
    "assignee": _AGENTS,
    "limit": (0, -1, limits.LIST_LIMIT_MAX + 1, "1", 1.0),
    "lease_seconds": (0, -1, 60 * 60 * 24 * 365, limits.LEASE_SECONDS_MAX + 1, "60", 1.5),
    "version": (-1, 2**31, "1", 1.0),
    "exchanges": (0, limits.EXCHANGES_KEPT + 1, "1"),
    "id": ("", "a" * 65),
    "token": ("", "a" * 65),
    "ids": ([], ["a" * 65], [""], ["a"] * 201, "a"),
    "pods": (["a b"], [""], ["a" * 65], ["a"] * (limits.PODS_MAX + 1), "a"),
    "section": ("", "system", "LONG_TERM", "long_term ", "cycles2", "sync_key"),
    "mode": ("", "merge", "FULL"),
    "visibility": ("", "Public", "world"),
    "runtime": ("", "a b", "a" * 65),
    "text": ("",),
    "peers": ([{"name": "ada", "instance": "1"}], "ada/1"),
    "messages": (["a"] * 21, "bye", [1], ["x\x00"], ["y" * 64_001]),
    "turns": (0, -8, 10_001, "8"),
    "minutes": (0, 100_001, 30.5),
    "title": ("", "t" * 2_001),
    "result": ("", "r" * 201),
    "surface_pod_id": ("", "a b", "p" * 65),
    "surface_label": ("l" * 81,),
    "dedupe_key": ("", "k" * 201),
    "idempotency_key": ("", "k" * 201),
    "cursor": ("", "nonsense", "c" * 1_001),
    "payload": ({"a": float("nan")}, {"a\x00": 1}, {"a": ["\ud800"]}, {"big": "x" * 64_001}, [], "text"),
    "kind": ("cross-pod-mention", "agent-dm-conclusion"),
}
_VALUES: Mapping[str, Sequence[Any]] = {
    "long_term": (1, None, ["a"], {"a": 1}, "a\x00", "x" * (limits.SECTION_BYTES_MAX + 1), "語" * 350_000),
    "shared": (True, "\udfff"),
    "dedup_state": ("text", [], {"a": float("inf")}, {"a\x00": 1}, {"big": "x" * limits.SECTION_BYTES_MAX}),
    "runtime_meta": (7, {"a": {"b": ["\ud800"]}}),
    "daily": (
        *([{"date": day, "content": "c"}] for day in _DAYS),
        [{"date": "2026-01-01"}],
        [{"date": "2026-01-01", "content": 1}],
        [{"date": "2026-01-01", "content": "c", "visibility": "world"}],
        [{"date": "2026-01-01", "content": "c", "unknown": 1}],
        [{"date": "2026-01-01", "content": "c"}, {"date": "2026-01-01", "content": "d"}],
        [{"date": f"{year}-01-01", "content": ""} for year in range(1000, 1000 + limits.SECTION_ENTRIES_MAX + 1)],
        {"date": "2026-01-01", "content": "c"},
        "2026-01-01",
    ),
    "relationships": (
        [{"other": "", "content": "c"}],
        [{"other": "bea/1", "content": "c"}, {"other": "bea/1", "content": "d"}],
        [{"other": "o" * 130, "content": "c"}],
        [{"other": "bea\x00", "content": "c"}],
    ),
}


_BROKEN_SECTIONS: Sequence[Any] = (
    {},
    {"unknown": {"value": "s"}},
    {"soul": "s"},
    {"soul": {}},
    {"soul": {"value": "s", "mode": 1}},
)


def hostile(operation: Operation, payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Fields of an operation with what they must refuse."""
    fields = operation.input.model_fields
    for name in fields:
        if name not in ("value", "sections"):
            yield from ((name, value) for value in _FIELDS.get(name, ()))
        if isinstance(payload.get(name), str) and name != "value":
            yield from ((name, text) for text in (*_TEXTS, 1, None, ["a"], {"a": 1}))
    if operation.name == "section.read":
        yield from (("sections", value) for value in ([], ["unknown"], ["soul", "Soul"], "soul", [1], {"soul": 1}))
    if operation.name == "section.save":
        yield from (("value", value) for value in _VALUES["long_term"])
    if operation.name == "section.sync":
        for section, values in _VALUES.items():
            yield from (("sections", {"soul": {"value": "s"}, section: {"value": value}}) for value in values)
        yield from (("sections", broken) for broken in _BROKEN_SECTIONS)
        yield from (("sections", {"soul": {"value": "s", "version": version}}) for version in (-1, "1"))
    if operation.name == "event.enqueue":
        deep: Any = "bottom"
        for _ in range(70):
            deep = [deep]
        yield "payload", {"deep": deep}
    if operation.name == "event.claim":
        yield "limit", limits.CLAIM_MAX + 1
    if operation.name == "exchange.task_completed":
        yield from (("peers", value) for value in (["p"] * (limits.PEERS_MAX + 1), ["a b"], [""], ["p" * 65], [1]))
    if operation.name in ("exchange.dm_concluded", "exchange.loop_tripped"):
        one = {"name": "ada", "instance": "1"}
        yield from (("peers", value) for value in ([one, one], [one] * 3, [], [one, {"name": "x"}], [one, "bea/1"]))
