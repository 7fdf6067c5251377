"""Which problems a call may be answered with, as responses of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muniment import errors
from muniment.errors import ConfigurationError, Internal, InvalidInput, MunimentError, VersionConflict
from muniment_transport_http import openapi_headers, problems
from muniment_transport_http.routes import Route, Schema

Document = dict[str, Any]

_EVERY: tuple[int, ...] = (400, 403, 408, 413, 415, 421, 422, 429, 500, 501, 503)
"""What any call may be answered with."""

_NAMES: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    408: "RequestTimeout",
    409: "Conflict",
    412: "PreconditionFailed",
    413: "ContentTooLarge",
    415: "UnsupportedMediaType",
    421: "MisdirectedRequest",
    422: "UnprocessableContent",
    429: "TooManyRequests",
    500: "InternalServerError",
    501: "NotImplemented",
    503: "ServiceUnavailable",
}
_DESCRIPTIONS: Mapping[int, str] = {
    400: "The body cannot be read: it is not JSON, not UTF-8, or too deep.",
    401: "No or bad credentials.",
    403: "The caller may not do this.",
    404: "There is no such thing that the caller may read.",
    408: "The request did not come whole in time.",
    409: "Another version than the one that was sent is current.",
    412: "Another version than that of If-Match is current, or one of If-None-Match.",
    413: "The request is larger than the server takes.",
    415: "The body is of another media type.",
    421: "The server is not called by that Host.",
    422: "The request was understood, and is refused as it is.",
    429: "Too many requests.",
    500: "Something failed inside; the id finds it in the server's log.",
    501: "This backend does not have the capability.",
    503: "A part of the server cannot be reached now.",
}
_HEADERS: Mapping[int, str] = {
    401: "WWW-Authenticate",
    403: openapi_headers.MAY_CHALLENGE,
    429: "Retry-After",
    503: "Retry-After",
}


def _codes() -> list[str]:
    return sorted({kind.code for kind in _kinds()})


def _kinds() -> list[type[MunimentError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MunimentError)]
    return [kind for kind in found if kind is not MunimentError and not issubclass(kind, ConfigurationError)]


SCHEMA: Schema = {
    "type": "object",
    "description": "A refusal (RFC 9457).",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri", "description": "The kind of problem, by its code."},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
        "code": {"type": "string", "description": "What programs compare.", "examples": _codes()},
        "details": {
            "type": "object",
            "description": "What programs read, by code: field, current_version, limit, id.",
            "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
        },
    },
}
"""A problem's."""


def of(route: Route, authenticated: bool) -> Document:
    """The problem responses of an operation."""
    return _references(_statuses(route), authenticated)


def of_stream(authenticated: bool) -> Document:
    """Those of the stream."""
    return _references(set(_EVERY), authenticated)


def components(authenticated: bool) -> Document:
    """Every problem response, by its name."""
    return {name: _response(status, authenticated) for status, name in _NAMES.items() if authenticated or status != 401}


def _statuses(route: Route) -> set[int]:
    operation = route.operation
    statuses: set[int] = set(_EVERY)
    if {"id", "project"} & set(route.places):
        statuses.add(404)
    if route.compares:
        statuses.add(412)
    if route.lowest_version is not None:
        statuses.add(409)
    if operation.name == "section.sync":
        statuses.add(409)
    return statuses


def _references(statuses: set[int], authenticated: bool) -> Document:
    wanted = sorted(statuses | ({401} if authenticated else set()))
    return {str(status): {"$ref": f"#/components/responses/{_NAMES[status]}"} for status in wanted}


def _response(status: int, authenticated: bool) -> Document:
    challenges = authenticated or status != 403
    headers = ["X-Request-ID", *([_HEADERS[status]] if status in _HEADERS and challenges else [])]
    return {
        "description": _DESCRIPTIONS[status],
        "headers": openapi_headers.of(*headers),
        "content": {
            problems.MEDIA_TYPE: {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "examples": {one.code: {"value": problems.document(one, status)} for one in _refusals(status)},
            }
        },
    }


def _refusals(status: int) -> list[MunimentError]:
    """What a status is answered with."""
    invalid = {
        400: InvalidInput("body", "it is not JSON; send a JSON object"),
        415: InvalidInput("Content-Type", "the body is not read; send JSON, with Content-Type application/json"),
    }
    if status in invalid:
        return [invalid[status]]
    stands_for = {412: 409, 421: 403}.get(status, status)
    found = [_one(kind) for kind in _kinds() if kind.http_status == stands_for]
    return found[:1] if status == 421 else found


def _one(kind: type[MunimentError]) -> MunimentError:
    if kind is InvalidInput:
        return InvalidInput("limit", "it is above 200; send 200 or less")
    if kind is VersionConflict:
        return VersionConflict(4)
    return problems.EXAMPLE if kind is Internal else kind()
