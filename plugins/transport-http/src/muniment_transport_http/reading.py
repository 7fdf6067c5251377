"""An HTTP request as the input of an operation: each field from its place, with its type, and nothing left over.

A name that no operation knows goes on to the engine, which refuses it as it refuses all that it does not take; a
field that is known, and in another place than its own, is refused here. Whether a value is valid is the engine's.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl

from pydantic import ValidationError

from muniment.errors import InvalidInput
from muniment.inputs import Input, refusal
from muniment.models import Scope
from muniment.serving import members
from muniment.serving.bodies import encoded
from muniment_transport_http.headers import Fields, Headers, sent_twice
from muniment_transport_http.preconditions import Preconditions, preconditions, refuse
from muniment_transport_http.problems import RefusedByStatus
from muniment_transport_http.routes import Place, Route

Payload = dict[str, Any]

JSON_TYPES = ("application/json", "application/merge-patch+json")
"""What a body may be; the second one for PATCH alone."""

DEPTH_MAX = 64
"""Levels that the core lets any value be nested; what is much deeper cannot even be read."""

_DIGITS = 20
_INTEGER = re.compile(rf"-?(0|[1-9][0-9]{{0,{_DIGITS - 1}}})")
_NUMBER = re.compile(rf"{_INTEGER.pattern}\.[0-9]{{1,{_DIGITS}}}")
_STRAY_BYTE = re.compile("[\udc80-\udcff]")
_NOT_UTF8 = "it is not UTF-8; encode the text as UTF-8"
_PLACES: Mapping[Place, str] = {
    "path": "it is part of the path; leave it out here",
    "query": "it is a query parameter; send it there",
    "body": "it is a member of the JSON body; send it there",
}


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request says. ``misread`` says what is wrong with each text of the query that its type has no place for,
    in the words of a query."""

    payload: Payload
    preconditions: Preconditions
    misread: Mapping[str, str]


def read(route: Route, segments: Mapping[str, str], query: bytes, fields: Fields, body: bytes) -> Sent:
    """The input that a request makes. Raises InvalidInput and RefusedByStatus."""
    headers = Headers(fields)
    payload = _members(route, headers, body)
    asked = _parameters(route, query)
    payload.update(asked)
    for segment, field in route.segments.items():
        _check_utf8(segment, segments[segment])
        name, _, part = field.partition(".")
        if part:
            payload.setdefault(name, {})[part] = segments[segment]
        else:
            payload[name] = segments[segment]
    _add_key(route, headers, payload)
    conditions = preconditions(route, headers)
    conditions.fix(payload)
    return Sent(payload, conditions, dict(_misread(route, asked)))


def named(route: Route, refused: InvalidInput, sent: Sent) -> InvalidInput:
    """The refusal of a field in the words of where it was sent: by the name that the path has for it, and as a text of
    the query."""
    for segment, field in route.segments.items():
        if field == refused.field != segment:
            return InvalidInput(segment, refused.message.removeprefix(f"{field}: "))
    if refused.field in sent.misread:
        return InvalidInput(refused.field, sent.misread[refused.field])
    return refused


class _Nothing(Input):
    """The fields that the stream takes."""


def last_event(query: bytes, fields: Fields) -> str | None:
    """The id of the last event that a stream's client saw. Raises InvalidInput, also for what the stream takes not."""
    try:
        _Nothing.model_validate(dict(parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True)))
    except ValidationError as error:
        raise refusal(error) from None
    headers = Headers(fields)
    refuse(headers, "the stream")
    return headers.one("Last-Event-ID")


# ------------------------------------------------------------ body


def _members(route: Route, headers: Headers, body: bytes) -> Payload:
    if not body:
        return {}
    _check_media(route, headers)
    sent = _object(body)
    for field in sent:
        _check_place(route, field, "body")
    return merge_patch(sent) if route.method == "PATCH" else sent


def _check_media(route: Route, headers: Headers) -> None:
    accepted = JSON_TYPES if route.method == "PATCH" else JSON_TYPES[:1]
    media = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    if media not in accepted:
        other = InvalidInput("Content-Type", f"the body is not read; send JSON, with Content-Type {accepted[-1]}")
        accepts = {"PATCH": "Accept-Patch", "POST": "Accept-Post"}.get(route.method, "Accept")
        raise RefusedByStatus(other, 415, {accepts: ", ".join(accepted)})
    if (other := encoded(headers.get("content-encoding"))) is not None:
        raise RefusedByStatus(other, 415, {"Accept-Encoding": "identity"})


def _object(body: bytes) -> Payload:
    """The members of a JSON object."""
    try:
        value = members.parsed(body.decode())
    except (ValueError, RecursionError) as error:
        raise RefusedByStatus(InvalidInput("body", _unreadable(body, error)), 400) from None
    if not isinstance(value, dict):
        raise InvalidInput("body", "it is not an object; send a JSON object")
    return cast("Payload", value)


def _unreadable(body: bytes, error: ValueError | RecursionError) -> str:
    """Why a body cannot be read. JSON sets no limit to digits and levels (RFC 8259, section 9); what reads it does."""
    match error:
        case UnicodeDecodeError():
            return f"{_NOT_UTF8} (byte {error.start:,})"
        case json.JSONDecodeError() if body.startswith(codecs.BOM_UTF8):
            return "it begins with a byte order mark; send UTF-8 without one"
        case json.JSONDecodeError():
            return f"it is not JSON from character {error.pos + 1:,} on; send a JSON object"
        case RecursionError():
            return f"it is nested too deeply to be read; flatten it to the {DEPTH_MAX} levels that any value may have"
        case _:
            digits = sys.get_int_max_str_digits()
            return f"it holds a number of more than {digits:,} digits; send a smaller one, or send it as a text"


def merge_patch(sent: Payload) -> Payload:
    """A merge patch (RFC 7396) of a memory as the operation's input: null removes what is there.

    A memory without tags has none, one without a project is its user's own, and one without content is refused as such.
    """
    patched = {field: value for field, value in sent.items() if value is not None}
    removed = {field for field, value in sent.items() if value is None}
    if "tags" in removed:
        patched["tags"] = []
    if "content" in removed:
        patched["content"] = ""
    if "project" in removed:
        patched.setdefault("scope", Scope.USER.value)
    if "scope" in removed:
        raise InvalidInput("scope", "every memory has one; send user or project")
    return patched | dict.fromkeys(removed - {"tags", "content", "project"})


# ------------------------------------------------------------ query


def _parameters(route: Route, query: bytes) -> Payload:
    text = query.decode("ascii", "surrogateescape")
    sent: dict[str, list[str]] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, errors="surrogateescape"):
        _check_utf8("query", name)
        sent.setdefault(name, []).append(value)
    if "" in sent:
        raise InvalidInput("input", "the query has a parameter without a name; remove it")
    return {name: _parameter(route, name, values) for name, values in sent.items()}


def _parameter(route: Route, name: str, values: list[str]) -> Any:
    _check_place(route, name, "query")
    if name not in route.places:
        return values[0]
    for value in values:
        _check_utf8(name, value)
    types = route.types(name)
    if "array" in types:
        return values
    if len(values) > 1:
        raise sent_twice(name)
    return values[0] if "string" in types else literal(values[0])


def literal(text: str) -> Any:
    """A number or a truth value as JSON writes it; all else as it is, which no field of those types takes."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _misread(route: Route, asked: Payload) -> Iterator[tuple[str, str]]:
    for name, value in asked.items():
        types = route.types(name) if name in route.places else frozenset[str]()
        if "integer" in types and type(value) is not int:
            yield name, f"it is no whole number of at most {_DIGITS} digits; send digits alone, such as {name}=3"
        if "boolean" in types and not isinstance(value, bool):
            yield name, f"it is neither true nor false; send {name}=true or {name}=false"


def _check_utf8(field: str, text: str) -> None:
    """Raises InvalidInput for text that was decoded from other bytes, which are surrogates in it."""
    if _STRAY_BYTE.search(text):
        raise InvalidInput(field, _NOT_UTF8)


def _check_place(route: Route, field: str, seen: Place) -> None:
    place = route.places.get(field, seen)
    if place != seen:
        raise InvalidInput(field, _PLACES[place])


# ------------------------------------------------------------ headers


def _add_key(route: Route, headers: Headers, payload: Payload) -> None:
    key = headers.one("Idempotency-Key")
    if key is None:
        return
    if "idempotency_key" not in route.places:
        raise InvalidInput("Idempotency-Key", f"{route.operation.name} takes none; leave it out")
    _check_utf8("Idempotency-Key", key)
    if payload.setdefault("idempotency_key", key) != key:
        raise InvalidInput("idempotency_key", "the header and the body say different ones; send one of them")
