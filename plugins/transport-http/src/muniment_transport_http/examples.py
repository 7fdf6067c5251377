"""What each operation's input and answer look like, for the OpenAPI document. A test parses each by its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Data = dict[str, Any]


class Example(NamedTuple):
    """One call of an operation."""

    input: Data
    answer: Data


_AT = "2026-01-31T09:30:00Z"
_LATER = "2026-01-31T09:31:00Z"
_MEMORY = "7f0c9a52-6a1e-4c5b-9d52-0f3f3c1f7a10"
_PROJECT_ID = "b2a3f0f4-2b1d-4c58-8a94-61b0a6f6f2de"
_EVENT = "3d1f6a3b-9a57-4e0e-b8f1-1f3a8f0f8c11"
_TOKEN = "q3v0Yb6kM1u8wJ4r"
_KEY = "acme/billing"
_TEXT = "Invoices are numbered per year, without gaps."
_ADA: Data = {"name": "ada", "instance": "1"}
_BEA: Data = {"name": "bea", "instance": "1"}

_PROJECT: Data = {
    "id": _PROJECT_ID,
    "key": _KEY,
    "owner": "alice",
    "version": 2,
    "access": "rw",
    "created_at": _AT,
    "updated_at": _LATER,
    "shares": {"billing-team": "rw"},
}
_RECORD: Data = {
    "id": _MEMORY,
    "scope": "project",
    "project_id": _PROJECT_ID,
    "content": _TEXT,
    "tags": ["billing"],
    "version": 1,
    "last_edited_by": "alice",
    "created_at": _AT,
    "updated_at": _AT,
}
_PAGE: Data = {"cursor": None, "cut": False}


def _receipt(action: str, version: int, **more: Any) -> Data:
    return {"id": _MEMORY, "version": version, "updated_at": _LATER, "action": action, "embedding": "ready", **more}


def _shared(action: str, version: int) -> Data:
    done = {"updated_at": _LATER, "action": action, "project_id": _PROJECT_ID}
    return {"id": _PROJECT_ID, "version": version, **done}


def _section(value: Any, version: int) -> Data:
    return {"value": value, "visibility": "private", "version": version, "byte_size": 24, "updated_at": _AT}


def _saved(action: str, **versions: int) -> Data:
    return {"action": action, "versions": versions, "updated_at": _LATER}


def _exchange(kind: str, takeaway: str, *agents: Data) -> Data:
    recipients = [{"agent": agent, "revision": 8} for agent in agents]
    return {"kind": kind, "deduped": False, "recipients": recipients, "takeaway": takeaway}


def _entry(entry: str, action: str, version: int, **more: Any) -> Data:
    done = {"id": entry, "at": _AT, "actor": "alice", "agent": None, "action": action, "version": version}
    return {**done, "surface": "http", "memory_id": None, "project_id": _PROJECT_ID, **more}


_ABOUT = {"surface_pod_id": "pod-7", "surface_label": "Billing", "dedupe_key": "task-481-done"}

EXAMPLES: Mapping[str, Example] = {
    "project.identify": Example({"project": _KEY}, {"project": _PROJECT, "created": True}),
    "project.list": Example({"limit": 50}, {"items": [_PROJECT], **_PAGE}),
    "project.share": Example(
        {"project": _KEY, "group": "billing-team", "access": "rw", "version": 1}, _shared("project.share", 2)
    ),
    "project.unshare": Example({"project": _KEY, "group": "billing-team", "version": 2}, _shared("project.unshare", 3)),
    "project.history": Example(
        {"project": _KEY, "limit": 20},
        {
            "items": [
                _entry(
                    "9c7f5d7e-2f0b-4a43-8a0c-0f2c9b6d1e21",
                    "project.share",
                    2,
                    changed=["shares"],
                    scope_key=f"p:{_PROJECT_ID}",
                    details={"group": "billing-team", "access": "rw"},
                )
            ],
            **_PAGE,
        },
    ),
    "memory.write": Example(
        {"content": _TEXT, "tags": ["billing"], "project": _KEY, "idempotency_key": "write-481"},
        _receipt("memory.write", 1, content_length=45, project_id=_PROJECT_ID),
    ),
    "memory.get": Example({"id": _MEMORY}, _RECORD),
    "memory.list": Example({"project": _KEY, "tags": ["billing"], "limit": 20}, {"items": [_RECORD], **_PAGE}),
    "memory.search": Example(
        {"query": "how are invoices numbered", "project": _KEY, "limit": 5},
        {
            "items": [
                {
                    "memory": _RECORD,
                    "score": 0.82,
                    "meaning": {"rank": 1, "score": 0.74},
                    "words": {"rank": 1, "score": 3.1},
                    "tags": None,
                }
            ],
            "degraded": None,
            **_PAGE,
        },
    ),
    "memory.update": Example({"id": _MEMORY, "tags": ["billing", "rules"], "version": 1}, _receipt("memory.update", 2)),
    "memory.patch": Example(
        {"id": _MEMORY, "old_string": "per year", "new_string": "per month", "version": 2},
        _receipt("memory.patch", 3, content_length=46, delta=1),
    ),
    "memory.delete": Example({"id": _MEMORY, "version": 3}, _receipt("memory.delete", 4, embedding=None)),
    "memory.restore": Example({"id": _MEMORY, "version": 4}, _receipt("memory.restore", 5)),
    "memory.history": Example(
        {"id": _MEMORY, "limit": 20},
        {
            "items": [
                _entry(
                    "0d0e6f3c-6c0b-4d19-9f0c-8f6f0a8d3c55",
                    "memory.write",
                    1,
                    memory_id=_MEMORY,
                    changed=["content", "tags"],
                    scope_key=f"p:{_PROJECT_ID}",
                )
            ],
            **_PAGE,
        },
    ),
    "section.read": Example(
        {"sections": ["long_term"]},
        {
            "agent": _ADA,
            "revision": 7,
            "last_seen_revision": 7,
            "sections": {"long_term": _section("Prefers short answers.", 3)},
        },
    ),
    "section.sync": Example(
        {"mode": "patch", "runtime": "runtime-1", "sections": {"soul": {"value": "Kind, and brief."}}},
        _saved("section.sync", soul=2),
    ),
    "section.save": Example(
        {"section": "long_term", "value": "Prefers short answers.", "visibility": "private", "version": 2},
        _saved("section.save", long_term=3),
    ),
    "section.log_cycle": Example(
        {"text": "Answered three questions."},
        {**_saved("section.log_cycle", cycles=12), "truncated": 0, "evicted": 0},
    ),
    "section.read_shared": Example({"agent": _BEA}, {"agent": _BEA, "sections": {"shared": _section("On leave.", 1)}}),
    "event.claim": Example(
        {"limit": 1, "lease_seconds": 60},
        {
            "items": [
                {
                    "id": _EVENT,
                    "token": _TOKEN,
                    "attempts": 1,
                    "lease_until": _LATER,
                    "payload": {"content": "A new question.", "memoryRevision": 7},
                }
            ]
        },
    ),
    "event.extend": Example(
        {"id": _EVENT, "token": _TOKEN, "lease_seconds": 120},
        {"id": _EVENT, "outcome": "acknowledged", "lease_until": _LATER},
    ),
    "event.ack": Example({"id": _EVENT, "token": _TOKEN}, {"id": _EVENT, "outcome": "acknowledged"}),
    "agent.register": Example({"agent": _ADA, "pods": ["pod-7"]}, {"agent": _ADA, "pods": ["pod-7"]}),
    "event.enqueue": Example(
        {"agent": _ADA, "payload": {"content": "A new question."}, "idempotency_key": "question-93"},
        {"id": _EVENT, "agent": _ADA, "enqueued_at": _AT},
    ),
    "event.dead": Example(
        {"agent": _ADA, "limit": 20},
        {
            "items": [
                {
                    "id": _EVENT,
                    "agent": _ADA,
                    "attempts": 5,
                    "enqueued_at": _AT,
                    "lease_until": _LATER,
                    "payload": {"content": "A new question."},
                }
            ],
            "cursor": None,
        },
    ),
    "event.requeue": Example({"agent": _ADA, "ids": [_EVENT]}, {"requeued": [_EVENT]}),
    "exchange.dm_concluded": Example(
        {**_ABOUT, "peers": [_ADA, _BEA], "messages": ["I will send the invoice."]},
        _exchange("agent-dm-conclusion", "I will send the invoice.", _ADA, _BEA),
    ),
    "exchange.loop_tripped": Example(
        {**_ABOUT, "peers": [_ADA, _BEA], "turns": 8, "minutes": 30},
        _exchange("agent-dm-loop-trip", "8 consecutive bot turns within 30 min — guard tripped", _ADA, _BEA),
    ),
    "exchange.task_completed": Example(
        {**_ABOUT, "assignee": _ADA, "title": "Number the invoices", "result": "done"},
        _exchange("task-completed", "Number the invoices → done", _ADA),
    ),
    "token.history": Example(
        {"limit": 20},
        {
            "items": [
                _entry(
                    "1b5d4c6e-7d0a-4f5b-9a3c-2e8f7c1d0b44",
                    "token.create",
                    1,
                    surface="cli",
                    project_id=None,
                    changed=["user", "scopes", "expires_at"],
                    scope_key="t:",
                    details={"token": "3f9c2a51d0be", "user": "ci", "groups": [], "scopes": ["write"]},
                )
            ],
            **_PAGE,
        },
    ),
}
"""One call of each operation."""
