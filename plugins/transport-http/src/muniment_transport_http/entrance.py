"""The way in: what every request must be, whatever its path, who sends it, and what every response says.

A path goes on as it was sent, percent-encoded, so that a name may hold a slash.
"""

from __future__ import annotations

from collections.abc import Hashable
from urllib.parse import quote, urlsplit

from muniment.errors import MunimentError
from muniment.ports import metadata_url
from muniment.serving.addresses import Names
from muniment.serving.asgi import App, Message, Receive, Scope, Send
from muniment.serving.doorway import Doorway, TurnedAway
from muniment_transport_http import problems
from muniment_transport_http.served import CALLER, Served

_EVERY = ((b"cache-control", b"private, no-cache"), (b"x-content-type-options", b"nosniff"))
"""Headers of every response that has none of its own: a cache asks again whether the caller still may."""


class Entrance(Doorway):
    """The way in to the application."""

    def __init__(self, app: App, names: Names, served: Served) -> None:
        super().__init__(app, names, body_max=served.callers.body_max)
        self._served = served
        self._metadata_path = metadata_path(served.resource)

    def rendered(self, refusal: MunimentError, status: int) -> tuple[str, bytes]:
        """The problem."""
        return problems.MEDIA_TYPE, problems.rendered(refusal, status)

    def check(self, scope: Scope) -> None:
        """Nothing is refused by its path here."""

    async def identify(self, scope: Scope) -> Hashable:
        """Put who sends it into the scope; where credentials come from is for anybody."""
        if scope["path"] == self._metadata_path:
            return None
        try:
            context = scope[CALLER] = await self._served.caller(scope)
        except Exception as error:
            refusal = self._served.shown(error, "asking who sends a request", scope)
            headers = self._served.challenge(refusal).items()
            fields = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
            raise TurnedAway(refusal, headers=fields) from None
        return self._served.callers.counted(context.principal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        raw: bytes = scope.get("raw_path") or b""
        path = raw.decode("ascii", "replace") if raw else quote(scope["path"])
        await super().__call__({**scope, "path": path}, receive, _Answering(send).send)


class _Answering:
    """The way back, on which every response gets the headers that all have."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            headers += [pair for pair in _EVERY if pair[0] not in present]
            message = {**message, "headers": headers}
        await self._send(message)


def metadata_path(resource: str) -> str:
    """Where the metadata of a resource is."""
    return urlsplit(metadata_url(resource)).path
