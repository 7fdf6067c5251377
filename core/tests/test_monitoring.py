"""What a server says of itself, and to whom: health to anybody, details and metrics to whoever operates it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from muniment import __version__
from muniment.engine import Engine
from muniment.errors import MunimentError, StorageUnavailable, Unauthenticated
from muniment.models import CallContext, Principal
from muniment.ports import Callers, StoredReceipt
from muniment.reference import HashEmbedder, ReferenceStorage
from muniment.serving.addresses import Address, Names
from muniment.serving.monitoring import LIVE_PATH, METRICS_PATH, READY_PATH, Monitored
from muniment.telemetry.metrics import MEDIA_TYPE, Metrics

LOCAL = CallContext(principal=Principal(user="me"))
NAMES = Names.of(Address("127.0.0.1", 8765))
HOST = (b"host", b"127.0.0.1:8765")
FOREIGN = (b"host", b"10.1.2.3:8765")
PATHS = (LIVE_PATH, READY_PATH, METRICS_PATH)

Headers = list[tuple[bytes, bytes]]


class ByName:
    """An authenticator whose tokens are the names of users; ``root`` is the platform."""

    async def authenticate(self, authorization: str | None) -> Principal:
        if authorization is None or not authorization.startswith("Bearer "):
            raise Unauthenticated
        user = authorization.removeprefix("Bearer ")
        return Principal(user=user, platform=user == "root")

    def challenge(self, refusal: MunimentError, resource: str) -> str | None:
        return f'Bearer realm="{resource}"' if isinstance(refusal, Unauthenticated) else None

    def metadata(self, resource: str) -> Mapping[str, Any]:
        return {}


class Away(ReferenceStorage):
    """Cannot be reached."""

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        raise StorageUnavailable("postgresql://secret")


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def rendered(refusal: MunimentError, status: int) -> tuple[str, bytes]:
    """As a transport shows a refusal."""
    return "application/test+json", json.dumps({**refusal.body(), "status": status}).encode()


def served(engine: Engine, *, authenticated: bool) -> Monitored:
    """An application that answers 299 by itself, monitored."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def refuse(principal: Principal) -> None:
        raise AssertionError("a look counts as no request")

    callers = Callers(LOCAL, ByName() if authenticated else None, anybody=not authenticated, admit=refuse)
    return Monitored(app, engine, callers, names=NAMES, resource="http://here", rendered=rendered)


async def ask(app: Monitored, path: str, *headers: tuple[bytes, bytes], method: str = "GET", host: Any = HOST) -> Reply:
    """One request."""
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("no body is read")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "method": method, "headers": [host, *headers]}
    await app(scope, receive, send)
    start, end = sent
    return Reply(start["status"], {key.decode(): value.decode() for key, value in start["headers"]}, end["body"])


def bearer(user: str) -> tuple[bytes, bytes]:
    """The credentials of a user."""
    return b"authorization", f"Bearer {user}".encode()


@pytest.mark.parametrize("authenticated", [True, False])
async def test_a_stranger_learns_a_word(authenticated: bool) -> None:
    """Without credentials, by whatever name the server is called: that it lives, and that it is ready."""
    async with Engine(ReferenceStorage(), HashEmbedder(), background=False) as engine:
        app = served(engine, authenticated=authenticated)
        live = await ask(app, LIVE_PATH, host=FOREIGN)
        ready = await ask(app, READY_PATH, host=FOREIGN)
        metrics = await ask(app, METRICS_PATH, host=FOREIGN)

    assert (live.status, live.json) == (200, {"status": "live"})
    assert (ready.status, ready.json) == (200, {"status": "ready"})
    assert metrics.status == (401 if authenticated else 403)


async def test_a_storage_that_is_away_is_503_without_its_reason() -> None:
    """A stranger learns a word, the platform what it is; that the process lives has nothing to do with it."""
    async with Engine(Away(), None, background=False) as engine:
        app = served(engine, authenticated=True)
        stranger = await ask(app, READY_PATH)
        platform = await ask(app, READY_PATH, bearer("root"))
        live = await ask(app, LIVE_PATH)

    assert (stranger.status, stranger.json) == (503, {"status": "unavailable"})
    assert (platform.status, platform.json["storage"], platform.json["embedder"]) == (503, "unreachable", "off")
    assert b"secret" not in stranger.body + platform.body
    assert live.status == 200


@pytest.mark.parametrize(("user", "details"), [("root", True), ("ann", False)])
async def test_details_are_for_the_platform(user: str, details: bool) -> None:
    """Any other user is a stranger here, and no platform by the metrics either; the refusal is the transport's."""
    async with Engine(ReferenceStorage(), HashEmbedder(), background=False) as engine:
        app = served(engine, authenticated=True)
        ready = await ask(app, READY_PATH, bearer(user))
        metrics = await ask(app, METRICS_PATH, bearer(user))

    everything = {
        "status": "ready",
        "storage": "reachable",
        "embedder": "loading",
        "version": __version__,
        "facts": {"server": "in memory"},
    }
    assert ready.json == (everything if details else {"status": "ready"})
    assert metrics.json["code"] == ("capability_not_supported" if details else "access_denied")
    assert metrics.headers["content-type"] == "application/test+json"


async def test_who_is_not_proved_is_challenged_for_metrics() -> None:
    """With the header of the authenticator; readiness is answered all the same."""
    async with Engine(ReferenceStorage(), None, background=False) as engine:
        app = served(engine, authenticated=True)
        for sent in ([], [(b"authorization", b"Basic x")], [bearer("root"), bearer("root")]):
            metrics = await ask(app, METRICS_PATH, *sent)
            assert (metrics.status, metrics.json["code"]) == (401, "unauthenticated")
            assert metrics.headers["www-authenticate"] == 'Bearer realm="http://here"'
            assert (await ask(app, READY_PATH, *sent)).json == {"status": "ready"}


@pytest.mark.parametrize(
    ("headers", "host", "trusted"),
    [
        ([], HOST, True),
        ([(b"origin", b"http://127.0.0.1:8765")], HOST, True),
        ([(b"origin", b"https://evil.example")], HOST, False),
        ([], (b"host", b"evil.example"), False),
    ],
)
async def test_where_nobody_is_asked_the_local_user_sees_all(
    headers: Headers, host: tuple[bytes, bytes], trusted: bool
) -> None:
    """But no page of another site that a browser brought to this machine's address."""
    metrics = Metrics()
    async with Engine(
        ReferenceStorage(), None, background=False, watch=metrics.watch, exposition=metrics.exposition
    ) as engine:
        app = served(engine, authenticated=False)
        ready = await ask(app, READY_PATH, *headers, host=host)
        measured = await ask(app, METRICS_PATH, *headers, host=host)

    assert ("facts" in ready.json) == trusted
    assert measured.status == (200 if trusted else 403)
    if trusted:
        assert measured.headers["content-type"] == MEDIA_TYPE
        assert b"# TYPE muniment_requests_total counter" in measured.body


async def test_a_probe_may_ask_for_the_head_and_nothing_else() -> None:
    """The same headers without a body; every other method is 405 and says which there are."""
    async with Engine(ReferenceStorage(), None, background=False) as engine:
        app = served(engine, authenticated=False)
        for path in PATHS[:2]:
            named = (b"x-request-id", b"mine")
            whole, head = await ask(app, path, named), await ask(app, path, named, method="HEAD")
            assert whole.headers["x-request-id"] == "mine"
            assert (head.status, head.headers, head.body) == (whole.status, whole.headers, b"")
            assert int(head.headers["content-length"]) == len(whole.body)
        for path in PATHS:
            refused = await ask(app, path, method="POST")
            assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_nothing_of_it_is_kept_by_a_cache() -> None:
    """Whatever is answered."""
    async with Engine(ReferenceStorage(), None, background=False) as engine:
        app = served(engine, authenticated=True)
        for path in PATHS:
            assert (await ask(app, path)).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/livez/", "/metrics/x", "/LIVEZ", "/v1/memories"])
async def test_every_other_path_is_the_application_s(path: str) -> None:
    """Untouched."""
    async with Engine(ReferenceStorage(), None, background=False) as engine:
        assert (await ask(served(engine, authenticated=True), path)).status == 299


def test_the_media_types_agree() -> None:
    """The server names the format without importing what writes it."""
    from muniment.serving import monitoring

    assert monitoring.TEXT == MEDIA_TYPE
