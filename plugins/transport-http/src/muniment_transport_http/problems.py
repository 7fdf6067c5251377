"""Refusals as problem details (RFC 9457), each with its stable ``code``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from muniment.errors import Internal, MunimentError

MEDIA_TYPE = "application/problem+json"


class RefusedByStatus(Exception):
    """A refusal whose status is another one than that of its class."""

    def __init__(self, refusal: MunimentError, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.refusal = refusal
        self.status = status
        self.headers = dict(headers or {})


def type_of(code: str) -> str:
    """The URI that stands for a kind of problem."""
    return f"urn:muniment:error:{code}"


def title_of(code: str) -> str:
    """The kind of a problem in words."""
    return code.replace("_", " ").capitalize()


def document(refusal: MunimentError, status: int) -> dict[str, Any]:
    """The problem as data; ``detail`` is the refusal's message, ``details`` what it says for programs."""
    problem: dict[str, Any] = {
        "type": type_of(refusal.code),
        "title": title_of(refusal.code),
        "status": status,
        "detail": refusal.message,
        "code": refusal.code,
    }
    if refusal.details:
        problem["details"] = dict(refusal.details)
    return problem


def rendered(refusal: MunimentError, status: int) -> bytes:
    """The problem as JSON; what UTF-8 cannot carry of a client's text is shown as an escape."""
    text = json.dumps(document(refusal, status), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def response(refusal: MunimentError, status: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """The reply that carries a refusal."""
    code = status or refusal.http_status
    return Response(rendered(refusal, code), code, dict(headers or {}), MEDIA_TYPE)


EXAMPLE = Internal("Something failed inside; the id 5f2a90c1d7e4 finds it in the server's log.", id="5f2a90c1d7e4")
