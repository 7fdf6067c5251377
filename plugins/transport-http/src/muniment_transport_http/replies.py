"""A record as an HTTP response: its status, its entity tag, where it is, and where the next page is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import BaseModel
from starlette.responses import Response

from muniment.agent_models import SectionReceipt
from muniment.models import Identified, MemoryRecord, Receipt
from muniment_transport_http.preconditions import Preconditions
from muniment_transport_http.routes import Route

_MEMORY_PATH = "/v1/memories"


def reply(route: Route, record: BaseModel, scope: Mapping[str, Any], preconditions: Preconditions) -> Response:
    """The response with a record, or 304 where the client has it already. ``scope`` is the request's.

    Raises RefusedByStatus where a precondition of what is read does not hold.
    """
    headers: dict[str, str] = {}
    if route.tagged and (version := _version(record)) is not None:
        headers["ETag"] = f'"v{version}"'
        if route.method == "GET" and preconditions.has(version):
            return Response(status_code=304, headers=headers)
    root = str(scope.get("root_path", ""))
    if route.operation.name == "memory.write" and isinstance(record, Receipt):
        headers["Location"] = f"{root}{_MEMORY_PATH}/{quote(record.id, safe='')}"
    cursor = getattr(record, "cursor", None)
    if route.method == "GET" and cursor is not None:
        headers["Link"] = f'<{_continued(scope, cursor)}>; rel="next"'
    found = isinstance(record, Identified) and not record.created
    status = route.statuses[-1] if found else route.statuses[0]
    return Response(record.model_dump_json(), status, headers, "application/json")


def _version(record: BaseModel) -> int | None:
    """The one version that a record is of; of several sections none is."""
    match record:
        case MemoryRecord() | Receipt():
            return record.version
        case SectionReceipt() if len(record.versions) == 1:
            return next(iter(record.versions.values()))
        case _:
            return None


def _continued(scope: Mapping[str, Any], cursor: str) -> str:
    """The same request from a cursor on."""
    query = parse_qsl(scope["query_string"].decode("ascii"), keep_blank_values=True)
    kept = [(name, value) for name, value in query if name != "cursor"]
    return f"{scope['path']}?{urlencode([*kept, ('cursor', cursor)])}"
