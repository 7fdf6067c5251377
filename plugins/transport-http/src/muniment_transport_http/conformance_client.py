"""The suite's client: it sends each field to its place, also what no operation takes, and shows what came back.

A path and a query hold text. What no text says there (a number for a name, an empty list) is sent in the JSON body,
which has types, and where the server must refuse it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote_from_bytes, urlencode

import httpx2

from muniment.conformance.target import Refused, Reply
from muniment_transport_http.routes import ROUTES, Route

Payload = Mapping[str, Any]

_ROUTES = {route.operation.name: route for route in ROUTES}
_JSON = {"content-type": "application/json"}
_IN_A_HEADER = re.compile("[!-~]([ -~]*[!-~])?")


@dataclass
class Asked:
    """A request that is being made."""

    route: Route
    segments: dict[str, str] = field(default_factory=dict[str, str])
    query: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def path(self) -> str:
        """The path; a segment of which nothing is known is empty."""
        return self.route.path.format_map(
            {name: self.segments.get(part, "") for name, part in self.route.segments.items()}
        )

    @property
    def target(self) -> str:
        """The path with the query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def content(self) -> bytes | None:
        """The body, where there is one: an operation that takes members always gets an object."""
        return json.dumps(self.body).encode() if self.body or self.route.at("body") else None


def asked(operation: str, payload: Payload) -> Asked:
    """The request that calls an operation."""
    request = Asked(_ROUTES[operation])
    for name, value in payload.items():
        _put(request, name, value)
    return request


def _put(request: Asked, name: str, value: Any) -> None:
    match request.route.places.get(name, _of_unknown(request.route)):
        case "path":
            _put_in_path(request, name, value)
        case "query":
            _put_in_query(request, name, value)
        case "body" if name == "idempotency_key" and isinstance(value, str) and _IN_A_HEADER.fullmatch(value):
            request.headers["idempotency-key"] = value
        case _:
            request.body[name] = value


def _of_unknown(route: Route) -> str:
    """Where a field that the operation does not know is sent: with the others."""
    return "body" if route.at("body") else "query"


def _put_in_path(request: Asked, name: str, value: Any) -> None:
    parts = [part for part in request.route.segments.values() if part.partition(".")[0] == name]
    texts = {name: value} if parts == [name] else _parts(name, value)
    if set(texts) == set(parts) and all(isinstance(text, str) for text in texts.values()):
        request.segments.update({part: _segment(text) for part, text in texts.items()})
    else:
        request.body[name] = value


def _parts(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {f"{name}.{part}": text for part, text in cast("Payload", value).items()}


def _segment(text: str) -> str:
    """One segment, of which nothing is taken for a step in the path."""
    return quote_from_bytes(_bytes(text), safe="").replace(".", "%2E")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _put_in_query(request: Asked, name: str, value: Any) -> None:
    model = request.route.operation.input.model_fields.get(name)
    if model is not None and not model.is_required() and _same(value, model.get_default(call_default_factory=True)):
        return
    types = request.route.types(name) if model is not None else frozenset({"string"})
    values = cast("list[Any]", value) if "array" in types and isinstance(value, list) else [value]
    if not types & {"array", "string"}:
        request.query.append((name, json.dumps(value).encode()))
    elif values and all(isinstance(one, str) for one in values) and ("array" in types) == isinstance(value, list):
        request.query += [(name, _bytes(one)) for one in values]
    else:
        request.body[name] = value


def _same(value: Any, default: Any) -> bool:
    """Whether it says what leaving it out does; 0 is not false."""
    return type(value) is type(default) and value == default


class HttpClient:
    """A client of one server, for one caller."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def hello(self) -> None:
        """Read what may be called. Raises httpx2.HTTPStatusError."""
        (await self._http.get(f"{self._url}/openapi.json")).raise_for_status()

    async def call(self, operation: str, payload: Payload) -> Reply:
        """Call an operation. Raises Refused."""
        request = asked(operation, payload)
        content = request.content()
        headers = request.headers if content is None else {**request.headers, **_JSON}
        url = self._url + request.target
        response = await self._http.request(request.route.method, url, content=content, headers=headers)
        try:
            return replied(response.status_code, response.text)
        except Refused as refused:
            # The path has names of its own for the parts of a field.
            named = refused.details.get("field")
            details = {**refused.details, "field": request.route.segments.get(str(named), named)}
            raise Refused(refused.code, refused.message, details if named else refused.details) from None


def replied(status: int, body: str) -> Reply:
    """What a response carries. Raises Refused."""
    answer: dict[str, Any] = json.loads(body)
    if status >= 400:
        raise Refused(answer["code"], answer["detail"], answer.get("details", {}))
    return Reply(answer, body)
