"""What RFC 9112 asks of a server whatever it serves, and the library leaves open: a target that is a whole URL, and a
body whose length is said in two ways."""

from __future__ import annotations

from urllib.parse import unquote

from muniment.serving.asgi import App, Message, Receive, Scope, Send

_SCHEMES = (b"http", b"https")
_CLOSE = (b"connection", b"close")


def in_plain_form(app: App) -> App:
    """``app``, which sees every target as a path, and whose doubtful connections end with their answer."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        asked = _by_path(scope)
        await app(asked, receive, _closing(send) if _is_doubtful(scope) else send)

    return answered


def _by_path(scope: Scope) -> Scope:
    """A request whose target is an absolute URL as one for its path, and for its host, whatever ``Host`` says
    (RFC 9112, section 3.2.2)."""
    scheme, found, rest = scope.get("raw_path", b"").partition(b"://")
    if not found or scheme.lower() not in _SCHEMES:
        return scope
    host, _, path = rest.partition(b"/")
    raw = b"/" + path
    headers = [(b"host", host), *(pair for pair in scope["headers"] if pair[0] != b"host")]
    return {**scope, "raw_path": raw, "path": unquote(raw.decode("ascii")), "headers": headers}


def _is_doubtful(scope: Scope) -> bool:
    """Whether the body has both a length and an encoding, so that what comes after it may be a part of it for whoever
    passed it on (RFC 9112, section 6.1)."""
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}


def _closing(send: Send) -> Send:
    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message.get("headers", ()) if pair[0].lower() != b"connection"]
            message = {**message, "headers": [*kept, _CLOSE]}
        await send(message)

    return closing
