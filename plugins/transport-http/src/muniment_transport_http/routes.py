"""The route of each operation: its method, its path, and where each field of its input goes.

The application and the OpenAPI document are both made from this table. A field is in the path where the template names
it; the others are query parameters of a GET or a DELETE, and the members of a JSON body otherwise. ``version`` may be
said by ``If-Match`` and ``idempotency_key`` by ``Idempotency-Key`` instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

from muniment.operations import OPERATIONS, Operation

Place = Literal["path", "query", "body"]
Schema = dict[str, Any]

STREAM_PATH = "/v1/agent/events"
"""Where an agent learns that there is something to claim; it is no operation."""

_SEGMENT = re.compile(r"{(\w+)}")
_BODILESS = ("GET", "DELETE")
_OF_AN_AGENT = {"name": "agent.name", "instance": "agent.instance"}
"""Segments that are parts of a field."""


@dataclass(frozen=True)
class Route:
    """One operation's. ``statuses`` are those of success: the usual one first, then that of what was there already.

    ``tagged`` says that a reply has the version that it speaks of as its ``ETag``: that of what ``compares`` versions,
    and of a new memory, whose address does.
    """

    operation: Operation
    method: str
    path: str
    statuses: tuple[int, ...] = (200,)
    tagged: bool = False

    @cached_property
    def segments(self) -> Mapping[str, str]:
        """The field, or the part of one after a dot, that each segment of the path is."""
        names: list[str] = _SEGMENT.findall(self.path)
        return {name: _OF_AN_AGENT.get(name, name) for name in names}

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """Where each field of the input goes."""
        in_path = {field.partition(".")[0] for field in self.segments.values()}
        rest: Place = "query" if self.method in _BODILESS else "body"
        return {field: "path" if field in in_path else rest for field in self.operation.input.model_fields}

    @cached_property
    def schemas(self) -> Mapping[str, Schema]:
        """The JSON Schema of each field, references to other models unresolved."""
        return cast("Mapping[str, Schema]", self.operation.input.model_json_schema().get("properties", {}))

    def at(self, place: Place) -> list[str]:
        """The fields of a place, in the order of the model."""
        return [field for field, found in self.places.items() if found == place]

    def types(self, field: str) -> frozenset[str]:
        """The JSON types that a field of the query takes, null aside."""
        schema = self.schemas[field]
        options = cast("list[Schema]", schema.get("anyOf", [schema]))
        return frozenset(str(option["type"]) for option in options) - {"null"}

    @cached_property
    def lowest_version(self) -> int | None:
        """The least version that a caller may name; None where it names none."""
        if "version" not in self.places:
            return None
        options = cast("list[Schema]", self.schemas["version"]["anyOf"])
        return next(int(option["minimum"]) for option in options if option.get("type") == "integer")

    @property
    def compares(self) -> bool:
        """Whether a request may say which version it is for, by ``If-Match`` and ``If-None-Match``."""
        return self.lowest_version is not None or (self.method == "GET" and self.tagged)


def _route(operation: str, method: str, path: str, *statuses: int, tagged: bool = False) -> Route:
    return Route(OPERATIONS[operation], method, f"/v1{path}", statuses or (200,), tagged)


ROUTES: tuple[Route, ...] = (
    _route("project.list", "GET", "/projects"),
    _route("project.identify", "PUT", "/projects/{project}", 201, 200),
    _route("project.share", "PUT", "/projects/{project}/shares/{group}", tagged=True),
    _route("project.unshare", "DELETE", "/projects/{project}/shares/{group}", tagged=True),
    _route("project.history", "GET", "/projects/{project}/history"),
    _route("memory.write", "POST", "/memories", 201, tagged=True),
    _route("memory.list", "GET", "/memories"),
    _route("memory.get", "GET", "/memories/{id}", tagged=True),
    _route("memory.update", "PATCH", "/memories/{id}", tagged=True),
    _route("memory.delete", "DELETE", "/memories/{id}", tagged=True),
    _route("memory.patch", "POST", "/memories/{id}/patch", tagged=True),
    _route("memory.restore", "POST", "/memories/{id}/restore", tagged=True),
    _route("memory.history", "GET", "/memories/{id}/history"),
    _route("memory.search", "POST", "/search"),
    _route("section.read", "POST", "/agent/read"),
    _route("section.sync", "POST", "/agent/sync"),
    _route("section.save", "PUT", "/agent/sections/{section}", tagged=True),
    _route("section.log_cycle", "POST", "/agent/cycles", tagged=True),
    _route("event.claim", "POST", "/agent/events/claim"),
    _route("event.extend", "POST", "/agent/events/{id}/extend"),
    _route("event.ack", "POST", "/agent/events/{id}/ack"),
    _route("section.read_shared", "GET", "/agents/{name}/{instance}/sections"),
    _route("agent.register", "PUT", "/agents/{name}/{instance}"),
    _route("event.enqueue", "POST", "/agents/{name}/{instance}/events", 201),
    _route("event.dead", "GET", "/agents/{name}/{instance}/events/dead"),
    _route("event.requeue", "POST", "/agents/{name}/{instance}/events/requeue"),
    _route("exchange.dm_concluded", "POST", "/exchanges/dm-concluded"),
    _route("exchange.loop_tripped", "POST", "/exchanges/loop-tripped"),
    _route("exchange.task_completed", "POST", "/exchanges/task-completed"),
    _route("token.history", "GET", "/tokens/history"),
)
"""Every operation's route, once."""


def by_path() -> Mapping[str, Mapping[str, Route]]:
    """The routes of each path template, by method."""
    found: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        found.setdefault(route.path, {})[route.method] = route
    return found
