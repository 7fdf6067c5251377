"""What whoever operates a server asks it: whether it lives, whether it can serve, and what it measured.

Health is for anybody, under any name, since probes come by the address of a container; a stranger learns a word.
Details and metrics are for the platform's principal, or for the configured user where nobody is asked for credentials.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from muniment import __version__
from muniment.errors import AccessDenied, CapabilityNotSupported, InvalidInput, MunimentError
from muniment.ports import Callers
from muniment.serving import incidents, requests
from muniment.serving.addresses import Names
from muniment.serving.asgi import App, Receive, Scope, Send
from muniment.serving.doorway import (
    UNAVAILABLE,
    UNAVAILABLE_SECONDS,
    credentials,
    header,
    seconds_to_wait,
    values,
)

if TYPE_CHECKING:
    from muniment.engine import Engine
    from muniment.engine.readiness import Readiness

LIVE_PATH = "/livez"
READY_PATH = "/readyz"
METRICS_PATH = "/metrics"

JSON = "application/json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
"""The text format of Prometheus."""

METHODS = ("GET", "HEAD")

Reply = tuple[int, str, bytes]
"""Status, media type and body."""
Rendered = Callable[[MunimentError, int], tuple[str, bytes]]
"""The media type and the body of a refusal that goes with a status."""


class Monitored:
    """An application with these three paths before it.

    ``names`` are those that the server is called by, ``resource`` is the URL under which clients reach it, and
    ``rendered`` is how the application shows refusals.
    """

    def __init__(
        self, app: App, engine: Engine, callers: Callers, *, names: Names, resource: str, rendered: Rendered
    ) -> None:
        self._app = app
        self._engine = engine
        self._callers = callers
        self._names = names
        self._resource = resource
        self._rendered = rendered
        self._paths: dict[str, Callable[[Scope], Awaitable[Reply]]] = {
            LIVE_PATH: self._live,
            READY_PATH: self._ready,
            METRICS_PATH: self._metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for one of the paths; leave all others to the application."""
        await requests.answered(self._answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._paths.get(scope["path"])
        if answer is None:
            await self._app(scope, receive, send)
            return
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        try:
            if scope["method"] not in METHODS:
                headers["allow"] = ", ".join(METHODS)
                raise InvalidInput("method", f"there is no {scope['method']} here; send a GET")
            status, kind, body = await answer(scope)
            if status == UNAVAILABLE:
                headers["retry-after"] = str(UNAVAILABLE_SECONDS)
        except Exception as error:
            refusal = incidents.shown(error, f"{scope['method']} {scope['path']}")
            requests.noted(scope).refusal = refusal
            status = 405 if "allow" in headers else refusal.http_status
            kind, body = self._rendered(refusal, status)
            if (wait := seconds_to_wait(refusal)) is not None:
                headers["retry-after"] = str(wait)
            authenticator = self._callers.authenticator
            if authenticator is not None and (challenge := authenticator.challenge(refusal, self._resource)):
                headers["www-authenticate"] = challenge
        headers |= {"content-type": kind, "content-length": str(len(body))}
        fields = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _live(self, _scope: Scope) -> Reply:
        return _as_json(200, {"status": "live"})

    async def _ready(self, scope: Scope) -> Reply:
        found = await self._engine.readiness()
        shown: dict[str, Any] = {"status": "ready" if found.ready else "unavailable"}
        if await self._may_see(scope):
            shown |= _details(found)
        return _as_json(200 if found.ready else UNAVAILABLE, shown)

    async def _metrics(self, scope: Scope) -> Reply:
        await self._check(scope)
        text = await self._engine.metrics()
        if text is None:
            raise CapabilityNotSupported("Nothing is measured here; pip install 'muniment[telemetry]' and restart.")
        return 200, TEXT, text

    async def _may_see(self, scope: Scope) -> bool:
        try:
            if self._callers.authenticator is not None and credentials(scope) is None:
                # A probe is nobody who was refused.
                return False
            await self._check(scope)
        except MunimentError:
            return False
        return True

    async def _check(self, scope: Scope) -> None:
        """Whether details are for who asks. Raises MunimentError."""
        principal = (await self._callers.proved(credentials(scope))).principal
        if self._callers.authenticator is None:
            # Whoever reaches the address is let in; a foreign page, which a browser brought here, is not.
            if not self._names.serves(header(scope, b"host")) or not all(
                self._names.admits(origin) for origin in values(scope, b"origin")
            ):
                raise AccessDenied("Pages of another site may not see this; ask at the server's own address.")
        elif not principal.platform:
            raise AccessDenied("This is for the platform's principal; use credentials that are its.")


def _details(found: Readiness) -> dict[str, Any]:
    return {
        "storage": found.storage,
        "embedder": found.embedder,
        "version": __version__,
        "facts": dict(found.facts),
    }


def _as_json(status: int, value: dict[str, Any]) -> Reply:
    return status, JSON, json.dumps(value).encode()
