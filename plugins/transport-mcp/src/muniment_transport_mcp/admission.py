"""What an HTTP request must be before the SDK reads it: a POST to the one path, by somebody who may call, and what
``Doorway`` asks of any. Who that is goes on with the request.

Beside that path there is one document, for anybody: where credentials come from.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from urllib.parse import urlsplit

from muniment.errors import InvalidInput, MunimentError, NotFound
from muniment.limits import BODY_MAX
from muniment.ports import Callers, metadata_url
from muniment.serving.addresses import Names
from muniment.serving.asgi import App, Message, Receive, Scope, Send
from muniment.serving.bodies import encoded, too_large
from muniment.serving.doorway import Doorway, TurnedAway, credentials, values
from muniment.serving.incidents import shown
from muniment.serving.requests import noted
from muniment_transport_mcp import frames, refusals, scopes
from muniment_transport_mcp.transport import over_mcp

JSON = "application/json"
_ACCEPTABLE = frozenset((JSON, "application/*", "*/*"))

PATH = "/mcp"
"""Where clients send their requests."""

CALLER = "muniment.caller"
"""Where a request's scope says who sends it."""


class Admission(Doorway):
    """The way in to the SDK, for ``callers``; ``resource`` is the URL that clients use."""

    def __init__(self, app: App, names: Names, callers: Callers, resource: str) -> None:
        super().__init__(self._answered, names, body_max=callers.body_max)
        self._sdk = app
        self._callers = callers
        self._resource = resource
        self._metadata_path = urlsplit(metadata_url(resource)).path if callers.authenticator is not None else None

    def rendered(self, refusal: MunimentError, status: int) -> tuple[str, bytes]:
        """The protocol's error, of a request where that was read."""
        answer = frames.answer_to(refusal)
        return JSON, answer.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "backslashreplace")

    def check(self, scope: Scope) -> None:
        """Refuse another path, and another method."""
        if self._metadata_path is not None and scope["path"] == self._metadata_path:
            if scope["method"] != "GET":
                refusal = InvalidInput("method", "this is a document to GET")
                raise TurnedAway(refusal, status=405, headers=[(b"allow", b"GET")])
            return
        if scope["path"] != PATH:
            raise TurnedAway(NotFound(f"There is nothing here; MCP is at {PATH}."))
        if scope["method"] != "POST":
            refusal = InvalidInput("method", "every request is a POST of its own; nothing is streamed")
            raise TurnedAway(refusal, status=405, headers=[(b"allow", b"POST")])

    async def identify(self, scope: Scope) -> Hashable:
        """Put who sends it into the scope; the document is anybody's. What it sends, and takes, must be JSON."""
        if scope["path"] != PATH:
            return None
        try:
            context = over_mcp(await self._callers.context(credentials(scope)))
            scope[CALLER] = context.model_copy(update={"request_id": noted(scope).id})
        except Exception as error:
            refusal = shown(error, f"asking who sends a request, request {noted(scope).id}")
            raise TurnedAway(refusal, headers=self._challenge(refusal)) from None
        _check_types(scope)
        return self._callers.counted(context.principal)

    def _challenge(self, refusal: MunimentError) -> list[tuple[bytes, bytes]]:
        authenticator = self._callers.authenticator
        challenge = authenticator.challenge(refusal, self._resource) if authenticator is not None else None
        return [] if challenge is None else [(b"www-authenticate", challenge.encode("latin-1"))]

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the SDK answers, or the document."""
        if scope["path"] == PATH:
            await self._called(scope, receive, send)
            return
        assert self._callers.authenticator is not None
        body = json.dumps(dict(self._callers.authenticator.metadata(self._resource))).encode()
        await _send_json(send, 200, body)

    async def _called(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the SDK answers, or the challenge for a larger scope."""
        whole = await receive()
        body = _prepared(whole.get("body", b""))
        found = scopes.beyond(scope[CALLER].principal, body)
        challenge = [] if found is None else self._challenge(found[0])
        if found is None or not challenge:
            await self._sdk(scope, _after({**whole, "body": body}, receive), refusals.answered(send))
            return
        noted(scope).refusal = found[0]
        await _send_json(send, found[0].http_status, found[1], challenge)


def _prepared(body: bytes) -> bytes:
    """The body repaired, which may make it longer than the SDK takes. Raises InvalidInput for what is no message."""
    frames.check(body)
    repaired = frames.repaired(body)
    if len(repaired) > BODY_MAX:
        raise too_large()
    return repaired


def _check_types(scope: Scope) -> None:
    """Raises TurnedAway for a body that is not said to be JSON, and for a client that says it takes none.

    The SDK, which asks again, is told of it in the one spelling that it takes.
    """
    if _types(scope, b"content-type") != [JSON]:
        refusal = InvalidInput("Content-Type", f"a request's body is JSON; send Content-Type: {JSON}")
        raise TurnedAway(refusal, status=415)
    if (refusal := encoded(",".join(values(scope, b"content-encoding")))) is not None:
        raise TurnedAway(refusal, status=415)
    if not _ACCEPTABLE.intersection(_types(scope, b"accept")):
        refusal = InvalidInput("Accept", f"an answer's body is JSON; send Accept: {JSON}, text/event-stream")
        raise TurnedAway(refusal, status=406)
    others = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
    scope["headers"] = [*others, (b"content-type", JSON.encode())]


def _types(scope: Scope, name: bytes) -> list[str]:
    """The media types that a header lists, in lower case and without their parameters."""
    listed = ",".join(values(scope, name)).split(",")
    return [one.partition(";")[0].strip().lower() for one in listed]


async def _send_json(send: Send, status: int, body: bytes, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", JSON.encode()), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _after(first: Message, receive: Receive) -> Receive:
    """What comes, from a message on that was taken."""
    taken = [first]

    async def coming() -> Message:
        return taken.pop() if taken else await receive()

    return coming
