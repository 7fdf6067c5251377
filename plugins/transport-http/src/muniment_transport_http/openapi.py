"""The OpenAPI 3.1 document, made from the route table, the operations' models and the refusals' classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, cast

from pydantic.json_schema import models_json_schema

from muniment_transport_http import openapi_headers, problem_responses, stream
from muniment_transport_http.examples import EXAMPLES
from muniment_transport_http.reading import JSON_TYPES
from muniment_transport_http.routes import ROUTES, STREAM_PATH, Route, Schema

Document = dict[str, Any]

TITLE = "Muniment"

_SCHEMAS = "#/components/schemas/"
_DESCRIPTION = (
    "Memory for AI agents: documents that people and agents share, find and edit safely, and the memory of each agent. "
    "Every refusal is a problem (RFC 9457) with a stable `code`. A version that is sent back, in `If-Match` or as "
    "`version`, makes an edit safe; an `Idempotency-Key` makes a retry safe. `If-Match`, `If-None-Match` and "
    "`Idempotency-Key` are refused (422) where an operation does not name them."
)
_TAGS: Mapping[str, str] = {
    "projects": "Projects, and the groups that they are shared with.",
    "memories": "Documents with tags, owned by a user or filed in a project.",
    "agent": "An agent's own sections and events.",
    "platform": "What the platform tells, records and enqueues for agents, and what was done with API tokens.",
}
_LINKS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "memory.write": {"id": ("memory.get", "memory.update", "memory.patch", "memory.delete", "memory.history")},
    "memory.delete": {"id": ("memory.restore", "memory.history")},
    "memory.restore": {"id": ("memory.get",)},
    "project.identify": {"project/key": ("project.share", "project.unshare", "project.history")},
}
"""What a reply's member can be sent on to, as the first segment of the path."""


def document(*, authenticated: bool) -> Document:
    """The document of a server that asks for credentials, or of one that does not."""
    inputs = [(route.operation.input, "validation") for route in ROUTES]
    outputs = [(route.operation.output, "serialization") for route in ROUTES]
    _, generated = models_json_schema(
        cast("Any", [*dict.fromkeys([*inputs, *outputs])]), ref_template=_SCHEMAS + "{model}"
    )
    schemas = cast("dict[str, Schema]", generated["$defs"])
    for route in ROUTES:
        _keep_body_only(route, schemas)
    _allow_null(schemas["SectionSync"])
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, authenticated)
    paths[STREAM_PATH] = {"get": _stream(authenticated)}
    made: Document = {
        "openapi": "3.1.0",
        "info": {
            "title": TITLE,
            "version": version("muniment"),
            "description": _DESCRIPTION,
            "contact": {"name": TITLE},
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "parameters": openapi_headers.PARAMETERS,
            "headers": openapi_headers.HEADERS,
            "responses": problem_responses.components(authenticated),
        },
    }
    made["components"]["schemas"] = _reachable(made, {**schemas, "Problem": problem_responses.SCHEMA})
    if authenticated:
        scheme = {"type": "http", "scheme": "bearer", "description": "An access token, or an API token."}
        made["components"]["securitySchemes"] = {"bearer": scheme}
        made["security"] = [{"bearer": []}]
    return made


# ------------------------------------------------------------ operations


def _operation(route: Route, schemas: Mapping[str, Schema], authenticated: bool) -> Document:
    operation = route.operation
    described: Document = {
        "operationId": operation.name,
        "summary": operation.title,
        "description": operation.description,
        "tags": [_tag(route)],
        "parameters": [*_parameters(route, schemas), *_header_parameters(route)],
        "responses": {
            **{str(status): _success(route, status) for status in route.statuses},
            **problem_responses.of(route, authenticated),
        },
    }
    if route.compares and route.method == "GET":
        described["responses"]["304"] = {
            "description": "The client has it already.",
            "headers": openapi_headers.of("ETag", "X-Request-ID"),
        }
    if body := _body(route, schemas):
        described["requestBody"] = body
    return described


def _tag(route: Route) -> str:
    match route.operation.audience:
        case "user":
            return "projects" if route.operation.name.startswith("project.") else "memories"
        case audience:
            return audience


def _parameters(route: Route, schemas: Mapping[str, Schema]) -> Iterator[Document]:
    example = EXAMPLES[route.operation.name].input
    for segment, field in route.segments.items():
        name, _, part = field.partition(".")
        schema = schemas["AgentRef"]["properties"][part] if part else route.schemas[name]
        value = example[name][part] if part else example[name]
        yield {"name": segment, "in": "path", "required": True, **_shown(schema), "example": value}
    for name in route.at("query"):
        shown: Document = {"name": name, "in": "query", **_shown(_without_null(route.schemas[name]))}
        if name in example:
            shown["example"] = example[name]
        yield shown


def _header_parameters(route: Route) -> Iterator[Document]:
    names = ["X-Request-ID"]
    if route.compares:
        names += ["If-Match", "If-None-Match"]
    if "idempotency_key" in route.places:
        names.append("Idempotency-Key")
    return openapi_headers.parameters(*names)


def _body(route: Route, schemas: Mapping[str, Schema]) -> Document | None:
    fields = route.at("body")
    if not fields:
        return None
    name = route.operation.input.__name__
    example = {field: value for field, value in EXAMPLES[route.operation.name].input.items() if field in fields}
    content = {"schema": {"$ref": _SCHEMAS + name}, "example": example}
    types = JSON_TYPES if route.method == "PATCH" else JSON_TYPES[:1]
    return {"required": bool(schemas[name].get("required")), "content": dict.fromkeys(reversed(types), content)}


def _success(route: Route, status: int) -> Document:
    name = route.operation.output.__name__
    headers = ["X-Request-ID"]
    if route.tagged:
        headers.append("ETag")
    if route.operation.name == "memory.write":
        headers.append("Location")
    if route.method == "GET" and "cursor" in route.operation.output.model_fields:
        headers.append("Link")
    answer = EXAMPLES[route.operation.name].answer
    if status != route.statuses[0]:
        answer = {**answer, "created": False}
    shown: Document = {
        "description": "It was there already." if status != route.statuses[0] else f"{route.operation.title}: done.",
        "headers": openapi_headers.of(*headers),
        "content": {"application/json": {"schema": {"$ref": _SCHEMAS + name}, "example": answer}},
    }
    if links := {
        to: {"operationId": to, "parameters": {_first_segment(to): f"$response.body#/{member}"}}
        for member, targets in _LINKS.get(route.operation.name, {}).items()
        for to in targets
    }:
        shown["links"] = links
    return shown


def _first_segment(operation: str) -> str:
    return next(next(iter(route.segments)) for route in ROUTES if route.operation.name == operation)


def _stream(authenticated: bool) -> Document:
    return {
        "operationId": "event.stream",
        "summary": "Wait for events",
        "description": "Server-sent events that say when to claim: `claimable` where there is something, and again "
        "while there still is; what was said by `Last-Event-ID` is not said again at once. With a storage that cannot "
        "tell, `check` at the beginning and now and then: look by a claim. It ends after some minutes, and soon after "
        "the credentials no longer prove the same caller; come back with `Last-Event-ID`.",
        "tags": ["agent"],
        "parameters": [*openapi_headers.parameters("X-Request-ID", "Last-Event-ID")],
        "responses": {
            "200": {
                "description": "The stream.",
                "headers": openapi_headers.of("X-Request-ID"),
                "content": {
                    stream.MEDIA_TYPE: {
                        "example": "event: claimable\nid: 5f2a90c1-7\ndata: {}\n\n",
                    }
                },
            },
            **problem_responses.of_stream(authenticated),
        },
    }


# ------------------------------------------------------------ schemas


def _keep_body_only(route: Route, schemas: dict[str, Schema]) -> None:
    """Leave in an input's schema what its body holds."""
    schema = schemas[route.operation.input.__name__]
    fields = route.at("body")
    schema["properties"] = {field: shown for field, shown in schema["properties"].items() if field in fields}
    schema["required"] = [field for field in schema.get("required", ()) if field in fields]
    if not schema["required"]:
        del schema["required"]


def _allow_null(schema: Schema) -> None:
    """Say of a sync's sections that null is what leaving a member out is, which a tool's schema has no place for."""
    for section in schema["properties"]["sections"]["properties"].values():
        value = section["properties"]["value"]
        for members in (section["properties"], value.get("items", {}).get("properties", {})):
            for name in {"version", "visibility"} & set(members):
                members[name] = {"anyOf": [members[name], {"type": "null"}]}


def _shown(schema: Schema) -> Document:
    """A parameter's description and schema."""
    shown: Document = {"schema": {keyword: value for keyword, value in schema.items() if keyword != "description"}}
    if "description" in schema:
        shown["description"] = schema["description"]
    return shown


def _without_null(schema: Schema) -> Schema:
    """A field's schema where it cannot be null."""
    options = [option for option in cast("list[Schema]", schema.get("anyOf", [])) if option.get("type") != "null"]
    if len(options) != 1:
        return schema
    return {**{keyword: schema[keyword] for keyword in schema if keyword not in ("anyOf", "default")}, **options[0]}


def _reachable(made: Document, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """The schemas that the document speaks of, and those that they do."""
    found: dict[str, Schema] = {}
    waiting = list(_references(made))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = schemas[name]
            waiting += _references(schemas[name])
    return dict(sorted(found.items()))


def _references(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, object]", value)
        reference = mapping.get("$ref")
        if isinstance(reference, str) and reference.startswith(_SCHEMAS):
            yield reference.removeprefix(_SCHEMAS)
        for part in mapping.values():
            yield from _references(part)
    elif isinstance(value, list | tuple):
        for part in cast("Iterable[object]", value):
            yield from _references(part)
