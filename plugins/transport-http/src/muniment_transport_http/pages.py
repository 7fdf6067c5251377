"""What a browser wants to be told before pages of other origins may call and read (the Fetch standard's CORS)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from muniment.errors import InvalidInput
from muniment.serving.asgi import App, Receive, Scope, Send
from muniment.serving.doorway import header
from muniment_transport_http import problems
from muniment_transport_http.routes import ROUTES

_SENT = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    "X-Request-ID",
)
_READ = ("ETag", "Link", "Location", "Retry-After", "WWW-Authenticate", "X-Request-ID")


def open_to(pages: AbstractSet[str], app: App) -> App:
    """``app`` for the pages of these origins too."""
    methods = sorted({route.method for route in ROUTES})
    told = _Told(app, allow_origins=sorted(pages), allow_methods=methods, allow_headers=_SENT, expose_headers=_READ)

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        known = (header(scope, b"origin") or "").lower() in pages
        await (told if known else app)(scope, receive, send)

    return answered


class _Told(CORSMiddleware):
    """The framework's, which refuses with a problem."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """What a browser asks before it sends a request."""
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        kept = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
        return problems.response(self._refusal(request_headers), 400, kept)

    def _refusal(self, asked: Headers) -> InvalidInput:
        method = asked["access-control-request-method"]
        if method not in self.allow_methods:
            allowed = ", ".join(self.allow_methods)
            return InvalidInput("Access-Control-Request-Method", f"pages may not send it; send one of {allowed}")
        return InvalidInput("Access-Control-Request-Headers", f"pages may send no other than {', '.join(_SENT)}")
