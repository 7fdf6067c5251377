"""The application: one resource a path, made from the route table, and what the framework answers by itself.

What a request must be before it is read, and who sends it, is ``entrance``'s; what a call means is the engine's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from muniment.errors import InvalidInput, MunimentError, NotFound
from muniment.operations import OPERATIONS
from muniment.serving import incidents
from muniment.serving.requests import noted
from muniment_transport_http import openapi, problems, stream
from muniment_transport_http.entrance import metadata_path
from muniment_transport_http.open_streams import Held, OpenStreams
from muniment_transport_http.preconditions import refuse_of
from muniment_transport_http.reading import last_event, named, read
from muniment_transport_http.replies import reply
from muniment_transport_http.routes import STREAM_PATH, Route, by_path
from muniment_transport_http.served import CALLER, Served

OPENAPI_PATH = "/openapi.json"

UNTOLD: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
"""The framework's own spans hold the path that was sent, and with it the ids of memories; the engine's tell enough."""


def build(served: Served) -> FastAPI:
    """The application."""
    app = FastAPI(
        title=openapi.TITLE,
        version=version("muniment"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=UNTOLD,
    )
    document = openapi.document(authenticated=served.callers.authenticator is not None)
    app.openapi = lambda: document
    for path, routes in by_path().items():
        app.add_route(_template(path), _Resource(served, routes).answer, methods=[*routes])
    app.add_route(STREAM_PATH, _Stream(served).answer, methods=["GET"])
    app.add_route(OPENAPI_PATH, _Document(served, document).answer, methods=["GET"])
    if served.callers.authenticator is not None:
        app.add_route(metadata_path(served.resource), _Metadata(served).answer, methods=["GET"])
    app.add_exception_handler(HTTPException, _of_the_framework)
    return app


class _Resource:
    """What is at one path."""

    def __init__(self, served: Served, routes: Mapping[str, Route]) -> None:
        self._served = served
        self._routes = dict(routes)
        if "GET" in routes:
            self._routes["HEAD"] = routes["GET"]

    async def answer(self, request: Request) -> Response:
        """The reply to one request."""
        route = self._routes[request.method]
        try:
            return await self._called(route, request)
        except Exception as error:
            return self._served.refused(error, route.operation.name, request.scope)

    async def _called(self, route: Route, request: Request) -> Response:
        scope = request.scope
        body = await request.body()
        sent = read(route, request.path_params, scope["query_string"], scope["headers"], body)
        noted(scope).called = True

        async def call(payload: Mapping[str, Any]) -> BaseModel:
            return await self._served.engine.call(route.operation.name, payload, scope[CALLER])

        try:
            record = await sent.preconditions.applied(sent.payload, call)
        except InvalidInput as refusal:
            raise named(route, refusal, sent) from None
        return reply(route, incidents.disclosed(record), scope, sent.preconditions)


class _Stream:
    """The stream of an agent."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._places = stream.Places(served.engine.arrivals, served.engine.lookout)
        self._open = OpenStreams()

    async def answer(self, request: Request) -> Response:
        """A stream, or the refusal of one."""
        try:
            return self._opened(request)
        except Exception as error:
            return self._served.refused(error, "the stream", request.scope)

    def _opened(self, request: Request) -> Response:
        scope = request.scope
        principal = scope[CALLER].principal
        claiming = OPERATIONS["event.claim"]
        if principal.agent is None or not claiming.serves(principal):
            raise claiming.not_served(principal)
        last_id = last_event(scope["query_string"], scope["headers"])
        if request.method == "HEAD":
            return Response(headers=stream.HEADERS, media_type=stream.MEDIA_TYPE)
        give_back = self._open.admit(principal)
        may_go_on = partial(self._served.proves, scope, principal)
        lines = self._places.stream(principal.agent, last_id, self._served.ending, may_go_on)
        return Held(lines, give_back, stream.HEADERS, stream.MEDIA_TYPE)


class _Document:
    """The OpenAPI document, for whoever may call."""

    def __init__(self, served: Served, document: openapi.Document) -> None:
        self._served = served
        self._body = json.dumps(document, ensure_ascii=False).encode()

    async def answer(self, request: Request) -> Response:
        """The document, or the refusal of a precondition."""
        try:
            refuse_of(request.scope, "the OpenAPI document")
        except InvalidInput as error:
            return self._served.refused(error, "the OpenAPI document", request.scope)
        return Response(self._body, media_type="application/json")


class _Metadata:
    """What says where credentials come from, for anybody."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def answer(self, _request: Request) -> Response:
        """The metadata of RFC 9728."""
        authenticator = self._served.callers.authenticator
        assert authenticator is not None
        return JSONResponse(dict(authenticator.metadata(self._served.resource)))


def _of_the_framework(request: Request, error: Exception) -> Response:
    """The problem for what the framework refuses: a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    refusal: MunimentError
    if error.status_code == 405:
        allowed = headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))
        refusal = InvalidInput("method", f"there is no {request.method} here; send one of {allowed}")
    else:
        refusal = NotFound(
            f"There is nothing at this path; the OpenAPI document, {OPENAPI_PATH}, names all that there is."
        )
    noted(request.scope).refusal = refusal
    return problems.response(refusal, error.status_code, headers)


class _Segment(Convertor[str]):
    """One segment of the path as it was sent, percent-encoded; an empty one is for the operation to refuse."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        raise NotImplementedError


register_url_convertor("muniment_segment", _Segment())


def _template(path: str) -> str:
    return path.replace("}", ":muniment_segment}")
