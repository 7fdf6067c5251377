"""What each HTTP request is called, which its answer says too, and the line of the log for one that came to nothing.

An operation has its line from ``telemetry.calls``, however it ends; a request that is refused before one is called gets
its line here. Neither path nor query is in it: they hold ids and what a caller looks for.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from http import HTTPMethod
from typing import cast
from uuid import uuid4

from muniment.errors import IssuerUnavailable, MunimentError, Unauthenticated
from muniment.serving.asgi import App, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

HEADER = b"x-request-id"

_SCOPE = "muniment.request"
_WELL_FORMED = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_REASON = 300
"""Characters of a reason that are logged."""


@dataclass(slots=True)
class Noted:
    """A request: its id, what it was refused with as far as that is known, and whether an operation was called."""

    id: str
    refusal: MunimentError | None = None
    called: bool = False


def noted(scope: Scope) -> Noted:
    """What is known of a request, from its scope."""
    return cast(Noted, scope[_SCOPE])


async def answered(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """``app``'s answer with the request's id: the one that was sent, if it is one and well-formed, else a fresh one.

    The outermost of several calls for one request does it.
    """
    if _SCOPE in scope:
        await app(scope, receive, send)
        return
    sent = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == HEADER)
    request = Noted(sent if _WELL_FORMED.fullmatch(sent) else uuid4().hex)

    async def pass_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            _tell(request, scope["method"], message["status"])
            message = {**message, "headers": [*message.get("headers", ()), (HEADER, request.id.encode())]}
        await send(message)

    await app({**scope, _SCOPE: request}, receive, pass_on)


def _tell(request: Noted, method: str, status: int) -> None:
    """Log a refusal at the door, at level info."""
    refused = request.refusal is not None or 400 <= status < 500
    if request.called or not refused or not log.isEnabledFor(logging.INFO):
        return
    # Any word can be sent as a method.
    fields: dict[str, object] = {"method": method if method in HTTPMethod.__members__ else "other", "status": status}
    if request.refusal is not None:
        fields["code"] = request.refusal.code
        if isinstance(request.refusal, Unauthenticated | IssuerUnavailable) or "error" in request.refusal.details:
            fields["reason"] = _reason(request.refusal)
    said = ", ".join(str(value) for value in fields.values())
    log.info("refused: %s, request %s", said, request.id, extra={**fields, "request_id": request.id})


def _reason(refusal: MunimentError) -> str:
    """Why credentials were refused, and those of which issuer, which the refusal says in a note."""
    said = " ".join((refusal.message, *getattr(refusal, "__notes__", ())))
    return " ".join(said.split())[:_REASON]
