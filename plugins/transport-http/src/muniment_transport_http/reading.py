"""An HTTP request as the input of an operation: each field from its place, with its type, and nothing left over.

A name that no operation knows goes on to the engine, which refuses it as it refuses all that it does not take; a
field that is known, and in another place than its own, is refused here. Whether a value is valid is the engine's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl

from pydantic import ValidationError

from muniment.errors import InvalidInput
from muniment.inputs import Input, refusal
from muniment.models import Scope
from muniment.serving import members
from muniment_transport_http.problems import RefusedByStatus
from muniment_transport_http.routes import Place, Route

Payload = dict[str, Any]

JSON_TYPES = ("application/json", "application/merge-patch+json")
"""What a body may be; the second one for PATCH alone."""

NEVER = 2**31 - 1
"""A version that nothing reaches: what an entity tag that is no version's is compared as."""

_TAG = re.compile(r'"v(0|[1-9][0-9]{0,9})"')
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,19})")
_NUMBER = re.compile(rf"{_INTEGER.pattern}\.[0-9]{{1,20}}")
_QUOTED = re.compile(r'(W/)?"[!#-~\x80-\U0010ffff]*"')
_STRAY_BYTE = re.compile("[\udc80-\udcff]")
_NOT_UTF8 = "it is not UTF-8; encode the text as UTF-8"
_PLACES: Mapping[Place, str] = {
    "path": "it is part of the path; leave it out here",
    "query": "it is a query parameter; send it there",
    "body": "it is a member of the JSON body; send it there",
}


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request says. ``conditional`` is whether the version that it is for was said by ``If-Match``, and
    ``unmatched`` why no version matches what was, where that is known."""

    payload: Payload
    conditional: bool
    unmatched: str = ""


def read(
    route: Route, segments: Mapping[str, str], query: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> Sent:
    """The input that a request makes. Raises InvalidInput and RefusedByStatus."""
    found = _Headers(headers)
    payload = _members(route, found, body)
    payload.update(_parameters(route, query))
    for segment, field in route.segments.items():
        _check_utf8(segment, segments[segment])
        name, _, part = field.partition(".")
        if part:
            payload.setdefault(name, {})[part] = segments[segment]
        else:
            payload[name] = segments[segment]
    _add_key(route, found, payload)
    tag = _tag(route, found)
    if tag is None:
        return Sent(payload, conditional=False)
    version = _version(tag, route.lowest_version or 0)
    if payload.setdefault("version", version) != version:
        raise InvalidInput("version", "If-Match says another one; send one of them")
    return Sent(payload, conditional=True, unmatched=_unmatched(tag))


def named(route: Route, refused: InvalidInput) -> InvalidInput:
    """The refusal of a part of the path by the name that the path has for it."""
    for segment, field in route.segments.items():
        if field == refused.field != segment:
            return InvalidInput(segment, refused.message.removeprefix(f"{field}: "))
    return refused


class _Nothing(Input):
    """The fields that the stream takes."""


def last_event(query: bytes, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The id of the last event that a stream's client saw. Raises InvalidInput, also for what the stream takes not."""
    try:
        _Nothing.model_validate(dict(parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True)))
    except ValidationError as error:
        raise refusal(error) from None
    return _Headers(headers).one("Last-Event-ID")


class _Headers:
    """The headers of a request by their names in lower case."""

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in headers:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("utf-8", "surrogateescape"))

    def get(self, name: str) -> str | None:
        """The value, those of several joined as HTTP says."""
        values = self._values.get(name)
        return None if values is None else ", ".join(values)

    def one(self, name: str) -> str | None:
        """The value of a header that is no list. Raises InvalidInput where there are several."""
        if len(self._values.get(name.lower(), ())) > 1:
            raise sent_twice(name)
        return self.get(name.lower())


def sent_twice(field: str) -> InvalidInput:
    """The refusal of several values where one is taken: which of them counts, two readers may take differently."""
    return InvalidInput(field, "it is sent more than once; send it once")


# ------------------------------------------------------------ body


def _members(route: Route, headers: _Headers, body: bytes) -> Payload:
    if not body:
        return {}
    _check_media(route, headers)
    sent = _object(body)
    for field in sent:
        _check_place(route, field, "body")
    return merge_patch(sent) if route.method == "PATCH" else sent


def _check_media(route: Route, headers: _Headers) -> None:
    accepted = JSON_TYPES if route.method == "PATCH" else JSON_TYPES[:1]
    media = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    if media not in accepted:
        other = InvalidInput("Content-Type", f"the body is not read; send JSON, with Content-Type {accepted[-1]}")
        accepts = {"PATCH": "Accept-Patch", "POST": "Accept-Post"}.get(route.method, "Accept")
        raise RefusedByStatus(other, 415, {accepts: ", ".join(accepted)})
    if (headers.get("content-encoding") or "identity").lower() != "identity":
        other = InvalidInput("Content-Encoding", "the body is not decoded; send it without one")
        raise RefusedByStatus(other, 415, {"Accept-Encoding": "identity"})


def _object(body: bytes) -> Payload:
    """The members of a JSON object."""
    try:
        value = members.parsed(body.decode())
    except UnicodeDecodeError as error:
        raise RefusedByStatus(InvalidInput("body", f"{_NOT_UTF8} (byte {error.start:,})"), 400) from None
    except (ValueError, RecursionError):
        raise RefusedByStatus(InvalidInput("body", "it is not JSON; send a JSON object"), 400) from None
    if not isinstance(value, dict):
        raise InvalidInput("body", "it is not an object; send a JSON object")
    return cast("Payload", value)


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


def _check_utf8(field: str, text: str) -> None:
    """Raises InvalidInput for text that was decoded from other bytes, which are surrogates in it."""
    if _STRAY_BYTE.search(text):
        raise InvalidInput(field, _NOT_UTF8)


def _check_place(route: Route, field: str, seen: Place) -> None:
    place = route.places.get(field, seen)
    if place != seen:
        raise InvalidInput(field, _PLACES[place])


# ------------------------------------------------------------ headers


def _add_key(route: Route, headers: _Headers, payload: Payload) -> None:
    key = headers.one("Idempotency-Key")
    if key is None:
        return
    if "idempotency_key" not in route.places:
        raise InvalidInput("Idempotency-Key", f"{route.operation.name} takes none; leave it out")
    _check_utf8("Idempotency-Key", key)
    if payload.setdefault("idempotency_key", key) != key:
        raise InvalidInput("idempotency_key", "the header and the body say different ones; send one of them")


def _tag(route: Route, headers: _Headers) -> str | None:
    """The entity tag by which ``If-Match`` says for which version the request is. Raises InvalidInput."""
    sent = headers.get("if-match")
    if sent is None or route.operation.read_only:
        return None
    if route.lowest_version is None:
        raise InvalidInput("If-Match", f"{route.operation.name} takes no version; leave it out")
    tag = sent.strip()
    if tag == "*":
        return None
    if '",' in tag:
        raise InvalidInput("If-Match", 'it lists several versions; send the one that you read, such as "v3"')
    if not _QUOTED.fullmatch(tag):
        raise InvalidInput("If-Match", 'it is no entity tag; send the one that you read, in its quotes, such as "v1"')
    return tag


def _version(tag: str, lowest: int) -> int:
    """The version that an entity tag stands for."""
    found = _TAG.fullmatch(tag)
    version = int(found[1]) if found else NEVER
    return version if lowest <= version < NEVER else NEVER


def _unmatched(tag: str) -> str:
    """Why no version matches a tag, by its form alone."""
    if tag.startswith("W/"):
        return (
            "If-Match compares strongly, so a weak tag never matches (RFC 9110, section 13.1.1); send it without W/, "
            "which a proxy that compresses may have put there."
        )
    return "" if _TAG.fullmatch(tag) else 'No version has this tag; a version\'s is v and its number, such as "v1".'
