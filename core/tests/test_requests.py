"""What a request is called, and what the log says of one that came to no operation."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from muniment.errors import AccessDenied, IssuerUnavailable, MunimentError, NotFound, RateLimited, Unauthenticated
from muniment.serving import requests
from muniment.serving.asgi import Message, Receive, Scope, Send


async def ask(
    caplog: pytest.LogCaptureFixture,
    status: int,
    refusal: MunimentError | None = None,
    *,
    called: bool = False,
    method: str = "GET",
    sent: str = "mine",
) -> tuple[str, list[dict[str, Any]]]:
    """The id that the answer to one request says, and the fields of each line of the log."""
    messages: list[Message] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        requests.noted(scope).refusal = refusal
        requests.noted(scope).called = called
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def twice(scope: Scope, receive: Receive, send: Send) -> None:
        await requests.answered(app, scope, receive, send)

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        messages.append(message)

    caplog.set_level(logging.INFO, logger=requests.log.name)
    caplog.clear()
    headers = [(b"x-request-id", sent.encode())]
    scope = {"type": "http", "method": method, "path": "/v1/memories/m1", "query_string": b"q=x", "headers": headers}
    await requests.answered(twice, scope, receive, send)
    ((name, value),) = messages[0]["headers"]
    assert name == b"x-request-id"
    kept = ("method", "status", "code", "reason", "request_id")
    lines = [record for record in caplog.records if record.name == requests.log.name]
    assert all("m1" not in line.getMessage() and "q=x" not in line.getMessage() for line in lines)
    return value.decode(), [{key: vars(line)[key] for key in kept if key in vars(line)} for line in lines]


@pytest.mark.parametrize(
    ("refusal", "status"), [(NotFound(), 404), (NotFound(), 405), (RateLimited(limit=1), 429), (None, 406)]
)
async def test_a_refusal_at_the_door_is_one_line(
    caplog: pytest.LogCaptureFixture, refusal: MunimentError | None, status: int
) -> None:
    """With the id that the client was told, and a code where that is known; neither its path nor its query."""
    line = {"method": "GET", "status": status, "request_id": "mine"}
    assert await ask(caplog, status, refusal) == ("mine", [line if refusal is None else {**line, "code": refusal.code}])


@pytest.mark.parametrize(
    "refusal",
    [
        Unauthenticated("No\n good."),
        IssuerUnavailable("No good."),
        AccessDenied("No good.", error="insufficient_scope"),
    ],
)
async def test_a_refusal_of_credentials_has_its_reason(
    caplog: pytest.LogCaptureFixture, refusal: MunimentError
) -> None:
    """And the issuer's name, in one line."""
    refusal.add_note("Issuer: corp.")
    _, (line,) = await ask(caplog, refusal.http_status, refusal)
    assert line["reason"] == "No good. Issuer: corp."


async def test_what_is_no_refusal_at_the_door_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    """An answer, a server that is not ready, and an operation's refusal, which has a line of its own."""
    for status, refusal, called in ((200, None, False), (503, None, False), (404, NotFound(), True)):
        assert await ask(caplog, status, refusal, called=called) == ("mine", [])


async def test_what_a_client_makes_up_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A method that there is not, and an id that is not well-formed, which gets a fresh one."""
    told, (line,) = await ask(caplog, 405, method="S3CRET", sent="two words")
    assert line == {"method": "other", "status": 405, "request_id": told}
    assert told != "two words"
