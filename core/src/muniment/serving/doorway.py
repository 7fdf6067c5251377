"""What an HTTP request must be before an application reads it: for this server, from no foreign page, whole, no larger
than it may be, and one of no more than there may be at once. Which protocol it speaks is the subclass's."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Hashable, Iterable
from contextlib import aclosing, suppress

from muniment.errors import (
    INVALID_TOKEN,
    AccessDenied,
    MunimentError,
    RateLimited,
    RequestTimedOut,
    ShuttingDown,
    Unauthenticated,
)
from muniment.limits import BODY_MAX
from muniment.serving import bodies, requests
from muniment.serving.addresses import Names
from muniment.serving.asgi import App, Message, Receive, Scope, Send
from muniment.serving.incidents import shown

REQUESTS_MAX = 256
"""Requests at once that are read, or whose answer has not begun."""

OWN_REQUESTS_MAX = REQUESTS_MAX // 2
"""How many of them may be one caller's where callers are told apart, so that nobody takes every place."""

READ_SECONDS = 30.0
"""How long the body of a request may take to come."""

UNAVAILABLE = 503

UNAVAILABLE_SECONDS = 5
"""How long a client waits that is answered 503, where nothing says it better: nobody knows how long a part of the
server is away. A storage that is restarted or fails over, and a server that is replaced, are mostly back after one or
two such waits; less would be asked in vain, and more would keep away whom the server could answer."""

LINGER_SECONDS = 1.0
"""How long a client that was refused may go on sending before its connection is closed."""

_Headers = Iterable[tuple[bytes, bytes]]


class TurnedAway(Exception):
    """A request that is refused before it is read, with the status of the refusal's class or another one."""

    def __init__(self, refusal: MunimentError, *, status: int | None = None, headers: _Headers = ()) -> None:
        super().__init__()
        self.refusal = refusal
        self.status = status or refusal.http_status
        self.headers = tuple(headers)


class ClientLeft(Exception):
    """The client left before the end of its request."""


class Doorway(ABC):
    """An ASGI application that lets requests through to another one, each whole and of at most ``body_max`` bytes."""

    def __init__(self, app: App, names: Names, *, body_max: int = BODY_MAX) -> None:
        self._app = app
        self._names = names
        self._body_max = body_max
        self._waiting: dict[_Answer, Hashable] = {}

    @abstractmethod
    def rendered(self, refusal: MunimentError, status: int) -> tuple[str, bytes]:
        """The media type and the body of a refusal that goes with this status."""

    @abstractmethod
    def check(self, scope: Scope) -> None:
        """Look at what is known without the body. Raises TurnedAway."""

    @abstractmethod
    async def identify(self, scope: Scope) -> Hashable:
        """Ask who sends it, before its body is read; None where that is not asked. Raises TurnedAway, MunimentError."""

    def prepared(self, body: bytes) -> bytes:
        """A whole body as the application is to read it. Raises MunimentError."""
        return body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or let it through; what it is called goes back with the answer."""
        await requests.answered(self._answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send, self._waiting)
        try:
            await self._admit(scope, receive, answer)
        except ClientLeft:
            return
        except asyncio.CancelledError:
            # Only the end of the server cancels a request: it took longer than what is begun is waited for.
            await self._give_up(answer, ShuttingDown(), scope)
        except Exception as error:
            refusal = shown(error, f"{scope['method']} {scope['path']}, request {requests.noted(scope).id}")
            await self._give_up(answer, refusal, scope)
        finally:
            self._waiting.pop(answer, None)

    async def _admit(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            self._check_names(scope)
            self.check(scope)
            if len(self._waiting) > REQUESTS_MAX:
                raise TurnedAway(RateLimited(limit=REQUESTS_MAX))
            self._count(answer, await self.identify(scope))
            body = await _whole(scope, receive, self._body_max)
        except TurnedAway as away:
            await self._turn_away(away, scope, receive, answer)
        except MunimentError as refusal:
            await self._turn_away(TurnedAway(refusal), scope, receive, answer)
        else:
            await self._app(scope, _replay(self.prepared(body), receive), answer.send)

    def _count(self, answer: _Answer, caller: Hashable) -> None:
        """Note whose request it is. Raises TurnedAway where as many as may be one caller's are its already."""
        if caller is not None and sum(one == caller for one in self._waiting.values()) >= OWN_REQUESTS_MAX:
            raise TurnedAway(RateLimited(limit=OWN_REQUESTS_MAX))
        self._waiting[answer] = caller

    def _check_names(self, scope: Scope) -> None:
        if not self._names.serves(header(scope, b"host")):
            refusal = AccessDenied(
                "This server is not called by that Host; use its address, or set url in [auth] to the one that clients "
                "use."
            )
            raise TurnedAway(refusal, status=421)
        if not all(self._names.admits(origin) for origin in values(scope, b"origin")):
            refusal = AccessDenied(
                "Pages of that Origin may not call this server; whoever runs it can allow it, where the "
                "transport has a setting for that."
            )
            raise TurnedAway(refusal)

    async def _turn_away(self, away: TurnedAway, scope: Scope, receive: Receive, answer: _Answer) -> None:
        sends = header(scope, b"content-length") not in (None, "0") or header(scope, b"transfer-encoding") is not None
        await self._refuse(answer, away, scope, more_body=sends)
        if sends:
            await _linger(receive)
            await answer.send({"type": "http.response.body", "body": b""})

    async def _give_up(self, answer: _Answer, refusal: MunimentError, scope: Scope) -> None:
        """Refuse what was let through, unless its answer has begun."""
        if not answer.started:
            await self._refuse(answer, TurnedAway(refusal), scope, more_body=False)

    async def _refuse(self, answer: _Answer, away: TurnedAway, scope: Scope, *, more_body: bool) -> None:
        requests.noted(scope).refusal = away.refusal
        kind, body = self.rendered(away.refusal, away.status)
        fields = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()), *away.headers]
        if (wait := seconds_to_wait(away.refusal)) is not None:
            fields.append((b"retry-after", str(wait).encode()))
        if more_body:
            fields.append((b"connection", b"close"))
        await answer.send({"type": "http.response.start", "status": away.status, "headers": fields})
        await answer.send({"type": "http.response.body", "body": body, "more_body": more_body})


class _Answer:
    """The way back to the client. It is among those that are waited for until something has gone it."""

    def __init__(self, send: Send, waiting: dict[_Answer, Hashable]) -> None:
        self._send = send
        self._waiting = waiting
        waiting[self] = None

    @property
    def started(self) -> bool:
        return self not in self._waiting

    async def send(self, message: Message) -> None:
        self._waiting.pop(self, None)
        await self._send(message)


def seconds_to_wait(refusal: MunimentError) -> int | None:
    """What ``Retry-After`` says of a refusal; None where waiting does not help."""
    if isinstance(refusal, RateLimited):
        return refusal.retry_after
    wait = refusal.details.get("retry_after")
    if isinstance(wait, int):
        return wait
    return UNAVAILABLE_SECONDS if refusal.http_status == UNAVAILABLE else None


def values(scope: Scope, name: bytes) -> list[str]:
    """The values of a header, by its name in lower case."""
    return [value.decode("latin-1") for found, value in scope["headers"] if found == name]


def header(scope: Scope, name: bytes) -> str | None:
    """The value of a header; the first where there are several."""
    return next(iter(values(scope, name)), None)


def credentials(scope: Scope) -> str | None:
    """The ``Authorization`` header, if there is one. Raises Unauthenticated for several, of which none counts."""
    sent = values(scope, b"authorization")
    if len(sent) > 1:
        raise Unauthenticated(f"There are {len(sent)} Authorization headers; send one.", error=INVALID_TOKEN)
    return sent[0] if sent else None


async def _whole(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The body. Raises PayloadTooLarge, RequestTimedOut, ClientLeft."""
    try:
        async with asyncio.timeout(READ_SECONDS), aclosing(_pieces(receive)) as pieces:
            return await bodies.bounded(pieces, bodies.announced_length(scope["headers"]), limit)
    except TimeoutError:
        raise RequestTimedOut from None


async def _pieces(receive: Receive) -> AsyncGenerator[bytes]:
    while (message := await receive())["type"] == "http.request":
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return
    raise ClientLeft


def _replay(body: bytes, receive: Receive) -> Receive:
    read = False

    async def replayed() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


async def _linger(receive: Receive) -> None:
    """Drop what still comes for a moment: a client whose connection is closed while it sends may lose the answer."""
    with suppress(TimeoutError, ClientLeft):
        async with asyncio.timeout(LINGER_SECONDS), aclosing(_pieces(receive)) as pieces:
            async for _ in pieces:
                continue
