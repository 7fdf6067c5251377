"""What transports over a network share: who is let in, how much, what an error shows, and how a process ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import pytest

from muniment import limits
from muniment.errors import (
    ConfigurationError,
    EmbedderMismatch,
    EmbedderUnavailable,
    Internal,
    MunimentError,
    NotFound,
    PayloadTooLarge,
    PluginError,
    StorageUnavailable,
    Unauthenticated,
)
from muniment.models import SearchPage
from muniment.operations import OPERATIONS, respelled
from muniment.operations.section_schemas import WRITABLE
from muniment.serving import addresses, bodies, doorway, incidents
from muniment.serving.addresses import Address, Names
from muniment.serving.doorway import Doorway
from muniment.serving.signals import Caught, end_on_signals

Message = dict[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]
NAMES = Names.of(Address("127.0.0.1", 8765))
OWN = ((b"host", b"127.0.0.1:8765"),)


async def in_pieces(pieces: Iterable[bytes], taken: list[bytes]) -> AsyncIterator[bytes]:
    """The pieces, each noted as it is taken."""
    for piece in pieces:
        taken.append(piece)
        yield piece


def test_the_largest_legal_request_is_within_the_limit() -> None:
    """Every section that a sync may hold, each at its limit and written by an encoder that escapes all it can."""
    largest = json.dumps("\x7f" * limits.SECTION_BYTES_MAX)

    assert len(WRITABLE) == limits.SECTIONS_WRITABLE
    assert len(largest) * len(WRITABLE) < limits.BODY_MAX


@pytest.mark.parametrize("character", ["a", "\x01", "\x7f", '"', "\\", "é", "記", "😀"])
def test_no_escape_costs_more_than_is_reckoned_with(character: str) -> None:
    """A character escaped as UTF-16 against the bytes that it counts as in a section."""
    escaped = 6 * (len(character.encode("utf-16-le")) // 2)
    counted = len(json.dumps(character, ensure_ascii=False).encode()) - 2

    assert escaped <= limits.JSON_ESCAPE_MAX * counted


@pytest.mark.parametrize(("announced", "taken"), [(11, 0), (None, 3), (10, 3)])
async def test_a_body_over_the_limit_is_not_read_whole(announced: int | None, taken: int) -> None:
    """By what is announced nothing is read; by what comes, no more than passes the limit, whatever was announced."""
    pieces: list[bytes] = []
    with pytest.raises(PayloadTooLarge, match="10 bytes"):
        await bodies.bounded(in_pieces([b"four"] * 9, pieces), announced, limit=10)
    assert len(pieces) == taken


async def test_a_body_at_the_limit_is_read() -> None:
    """To its last byte."""
    assert await bodies.bounded(in_pieces([b"five5"] * 2, []), None, limit=10) == b"five5five5"


@pytest.mark.parametrize("error", [RuntimeError("secret"), Internal("secret", id="secret"), MunimentError("secret")])
def test_an_unforeseen_error_shows_an_id_and_nothing_else(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the error with its traceback under that id."""
    try:
        raise error
    except Exception as caught:
        refusal = incidents.shown(caught, "memory.get")
    assert "secret" not in json.dumps(refusal.body())
    (record,) = caplog.records
    assert str(refusal.details["id"]) in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_refusal_is_shown_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged of it, and it keeps its details."""
    refusal = NotFound("It is away.", place="there")
    assert incidents.shown(refusal, "memory.get") is refusal
    assert not caplog.records


class Full(StorageUnavailable):
    """A plugin's own kind, which takes what it likes."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} is full; free space there.", place=place)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (StorageUnavailable("/srv/secret is away", host="secret"), StorageUnavailable),
        (Full("/srv/secret"), StorageUnavailable),
        (EmbedderUnavailable("secret:11434 does not answer"), EmbedderUnavailable),
        (EmbedderMismatch("secret is another one"), EmbedderMismatch),
        (ConfigurationError("storage: 'secret' is none"), ConfigurationError),
        (PluginError("secret has no module"), PluginError),
    ],
)
def test_a_refusal_of_the_servers_parts_shows_an_id(
    refusal: MunimentError, kind: type[MunimentError], caplog: pytest.LogCaptureFixture
) -> None:
    """Its code and what to do are told, the log has its message under that id; who started the server is told all."""
    told = incidents.shown(refusal, "memory.get")

    assert (type(told), told.code, list(told.details)) == (kind, refusal.code, ["id"])
    assert "secret" not in told.message
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert all(part in record.getMessage() for part in (str(told.details["id"]), refusal.code, refusal.message))
    assert incidents.shown(refusal, "memory.get", local=True) is refusal


def test_why_a_search_is_degraded_is_told_without_the_cause() -> None:
    """What the embedder said may hold a host or a path, and is in the log; who started the server is told all."""
    why = "the embedder is unavailable; answered from words and tags"
    caused, plain = (SearchPage(items=(), degraded=text) for text in (f"{why}: http://secret:1 does not answer", why))

    assert incidents.disclosed(caused) == plain
    assert incidents.disclosed(caused, local=True) is caused
    for record in (plain, SearchPage(items=())):
        assert incidents.disclosed(record) is record


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "LOCALHOST:1", "[::1]", "localhost"])
def test_names_of_this_machine_are_served(host: str) -> None:
    """With any port, as a tunnel may have another one."""
    assert NAMES.serves(host)


@pytest.mark.parametrize("host", [None, "", "evil.example", "127.0.0.1.evil.example", "localhost:x", "localhost:1:2"])
def test_other_names_are_not_served(host: str | None) -> None:
    """A page that rebound its own name to this machine sends that name."""
    assert not NAMES.serves(host)


def test_a_server_has_the_name_that_clients_outside_use() -> None:
    """Its pages may call, by its own scheme and port; those of the same host at another port may not."""
    names = Names.of(Address("10.0.0.1", 8765), "https://Memory.example.com:8443")

    assert [names.serves(host) for host in ("memory.example.com", "memory.example.com:1", "10.0.0.1:8765")] == [
        True
    ] * 3
    assert not names.serves("example.com")
    assert names.admits("https://memory.example.com:8443")
    for origin in ("https://memory.example.com", "http://memory.example.com:8443", "https://example.com"):
        assert not names.admits(origin)


def test_an_address_whose_family_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without IPv6 says so as any address that cannot be had."""

    def no_family(*_: object) -> socket.socket:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "socket", no_family)
    with (
        pytest.raises(ConfigurationError, match=r"::1 port 8765.*family not supported"),
        addresses.listening(Address("::1", 8765)),
    ):
        raise AssertionError


class Plain(Doorway):
    """A doorway of no protocol."""

    def rendered(self, refusal: MunimentError, status: int) -> tuple[str, bytes]:
        """The refusal's body."""
        return "application/json", json.dumps(refusal.body()).encode()

    def check(self, scope: Any) -> None:
        """Nothing more."""

    async def identify(self, scope: Any) -> str | None:
        """Anybody."""


class Request:
    """One request to a doorway, and what came back."""

    def __init__(self, *pieces: bytes, ends: bool = True, headers: Iterable[tuple[bytes, bytes]] = OWN) -> None:
        self.scope = {"type": "http", "method": "POST", "path": "/", "headers": list(headers)}
        self.sent: list[MutableMapping[str, Any]] = []
        self.taken = 0
        self._coming: list[Message] = [
            {"type": "http.request", "body": piece, "more_body": not ends or place < len(pieces) - 1}
            for place, piece in enumerate(pieces)
        ]

    async def receive(self) -> Message:
        """The next piece; then nothing more comes."""
        if not self._coming:
            await asyncio.Event().wait()
        self.taken += 1
        return self._coming.pop(0)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Keep it."""
        self.sent.append(message)

    async def through(self, door: Doorway) -> Request:
        """Itself, once it is answered."""
        async with asyncio.timeout(20):
            await door(self.scope, self.receive, self.send)
        return self

    @property
    def starts(self) -> list[int]:
        """The statuses of the responses that were begun."""
        return [message["status"] for message in self.sent if message["type"] == "http.response.start"]

    @property
    def code(self) -> str:
        """The code of the refusal."""
        return json.loads(self.sent[1]["body"])["code"]


async def nothing(_scope: Any, _receive: Any, _send: Any) -> None:
    """An application that is not to be reached."""
    raise AssertionError


@pytest.mark.parametrize(
    ("headers", "status"),
    [([(b"host", b"evil.example")], 421), ([], 421), ([*OWN, (b"origin", b"https://evil.example")], 403)],
)
async def test_a_stranger_is_refused_before_its_body_is_read(
    headers: list[tuple[bytes, bytes]], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its Host or Origin, although the body that it announces never comes."""
    monkeypatch.setattr(doorway, "LINGER_SECONDS", 0.01)
    request = await Request(headers=[*headers, (b"content-length", b"10")]).through(Plain(nothing, NAMES))
    assert (request.starts, request.code) == ([status], "access_denied")


async def test_a_host_that_is_none_is_told_what_to_set() -> None:
    """Behind a proxy that passes the name on which clients use, it is a matter of the configuration."""
    request = await Request(headers=[(b"host", b"memory.example.com")]).through(Plain(nothing, NAMES))
    assert "url in [auth]" in json.loads(request.sent[1]["body"])["message"]


async def test_several_credentials_are_called_so() -> None:
    """Whoever sent two is not told to send some."""
    headers = [*OWN, (b"authorization", b"Bearer good"), (b"authorization", b"Bearer good")]
    request = await Request(headers=headers).through(Asking(nothing, NAMES))
    refusal = json.loads(request.sent[1]["body"])
    assert "2 Authorization headers" in refusal["message"]
    assert refusal["details"] == {"error": "invalid_token"}


class Asking(Plain):
    """A doorway that lets in who sends one header."""

    async def identify(self, scope: Any) -> str | None:
        if doorway.credentials(scope) != "Bearer good":
            raise Unauthenticated
        return None


@pytest.mark.parametrize(
    "sent", [[], [b"Bearer wrong"], [b"Bearer good", b"Bearer good"], [b"Bearer good", b"Bearer wrong"]]
)
async def test_who_sends_a_request_is_asked_before_its_body_is_read(sent: list[bytes]) -> None:
    """By the one header that it has; of several none counts."""
    headers = [*OWN, *((b"authorization", value) for value in sent)]
    request = await Request(b"half", b"whole", headers=headers).through(Asking(nothing, NAMES))
    assert (request.starts, request.code, request.taken) == ([401], "unauthenticated", 0)

    good = Request(b"half", b"whole", headers=[*OWN, (b"authorization", b"Bearer good")])
    await good.through(Asking(all_is_well, NAMES))
    assert (good.starts, good.taken) == ([200], 2)


async def all_is_well(_scope: Any, _receive: Any, send: Any) -> None:
    """An application that answers."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def test_a_body_that_does_not_come_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops halfway does not hold a place for ever."""
    monkeypatch.setattr(doorway, "READ_SECONDS", 0.01)
    monkeypatch.setattr(doorway, "LINGER_SECONDS", 0.01)
    request = await Request(b"half", ends=False).through(Plain(nothing, NAMES))
    assert (request.starts, request.code) == ([408], "request_timed_out")


async def test_an_error_of_the_application_shows_an_id(caplog: pytest.LogCaptureFixture) -> None:
    """The log has it, with the traceback."""

    async def fails(_scope: Any, _receive: Any, _send: Any) -> None:
        raise RuntimeError("secret")

    request = await Request(b"").through(Plain(fails, NAMES))
    assert (request.starts, request.code) == ([500], "internal")
    assert b"secret" not in request.sent[1]["body"]
    assert "RuntimeError: secret" in caplog.text


@pytest.mark.parametrize("begun", [False, True])
async def test_what_is_given_up_at_the_end_begins_one_response(begun: bool) -> None:
    """A request that is cancelled is answered by 503 of its own code, unless its answer has begun: then by no other."""
    reached = asyncio.Event()

    async def stuck(_scope: Any, _receive: Any, send: Any) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        reached.set()
        await asyncio.Event().wait()

    request = Request(b"")
    answering = asyncio.create_task(request.through(Plain(stuck, NAMES)))
    await reached.wait()
    answering.cancel()
    await asyncio.wait({answering})
    assert request.starts == ([200] if begun else [503])
    assert begun or request.code == "shutting_down"


async def test_no_more_requests_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is told to wait; there is room again as soon as an answer has begun."""
    monkeypatch.setattr(doorway, "REQUESTS_MAX", 1)
    reached, go_on, begun, end = (asyncio.Event() for _ in range(4))

    async def held(_scope: Any, _receive: Any, send: Any) -> None:
        reached.set()
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        await end.wait()

    door = Plain(held, NAMES)
    first = asyncio.create_task(Request(b"").through(door))
    await reached.wait()
    refused = await Request(b"").through(door)
    assert (refused.starts, refused.code) == ([429], "rate_limited")
    go_on.set()
    await begun.wait()
    end.set()
    assert (await Request(b"").through(door)).starts == [200]
    await first


async def test_no_caller_takes_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends bodies that do not come keeps nobody else out, where callers are told apart."""
    monkeypatch.setattr(doorway, "OWN_REQUESTS_MAX", 2)

    class Named(Plain):
        async def identify(self, scope: Any) -> str | None:
            return doorway.header(scope, b"from")

    def of(caller: bytes | None, *, ends: bool) -> Request:
        return Request(b"body", ends=ends, headers=OWN if caller is None else [*OWN, (b"from", caller)])

    door = Named(all_is_well, NAMES)
    slow = [of(caller, ends=False) for caller in (b"ann", b"ann", None, None, None)]
    waiting = [asyncio.create_task(one.through(door)) for one in slow]
    await asyncio.sleep(0.05)
    assert all(one.taken for one in slow)
    refused = await of(b"ann", ends=True).through(door)
    assert (refused.starts, refused.code) == ([429], "rate_limited")
    assert [(await of(caller, ends=True).through(door)).starts for caller in (b"bob", None)] == [[200], [200]]
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    assert (await of(b"ann", ends=True).through(door)).starts == [200]


async def test_a_refused_client_may_go_on_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it announced is taken and dropped, so that its connection is not cut while it sends; but not for ever."""

    class Closed(Plain):
        def check(self, scope: Any) -> None:
            raise doorway.TurnedAway(NotFound())

    headers = [*OWN, (b"transfer-encoding", b"chunked")]
    request = await Request(b"one", b"two", b"three", headers=headers).through(Closed(nothing, NAMES))
    assert (request.starts, request.taken) == ([404], 3)
    monkeypatch.setattr(doorway, "LINGER_SECONDS", 0.01)
    request = await Request(b"one", b"two", ends=False, headers=headers).through(Closed(nothing, NAMES))
    assert (request.starts, request.taken) == ([404], 2)
    assert request.sent[-1].get("more_body", False) is False


def test_operations_are_respelled_by_their_whole_names() -> None:
    """A name that begins with another one is not taken for that."""
    names = {name: f"<{number}>" for number, name in enumerate(OPERATIONS)}
    text = respelled("section.read_shared, section.read and memory.get", names.__getitem__)
    assert text == f"{names['section.read_shared']}, {names['section.read']} and {names['memory.get']}"


async def test_handlers_are_given_back() -> None:
    """Afterwards the process has those that it had; others that were put there meanwhile stay."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    ending = asyncio.Event()
    caught = end_on_signals(ending.set)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(20):
            await ending.wait()
    finally:
        caught.give_back()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_a_process_that_handles_sigterm_keeps_both_signals() -> None:
    """The transport is then ended by its task."""

    def own(_number: int, _frame: object) -> None:
        raise AssertionError

    interrupt = signal.getsignal(signal.SIGINT)
    before = signal.signal(signal.SIGTERM, own)
    try:
        caught = end_on_signals(lambda: None)
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == (own, interrupt)
        caught.give_back()
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_outside_the_main_thread_no_signal_is_caught() -> None:
    """There are none there."""
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=lambda: Caught(lambda _: None))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


IMPATIENT = """
import os, signal, sys
from muniment.serving.signals import Caught
Caught(lambda number: print("asked", flush=True))
for _ in range(int(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGTERM)
print("alive", flush=True)
"""


@pytest.mark.parametrize(
    ("signals", "printed", "code"), [(2, "asked\nalive\n", 0), (3, "asked\n", -signal.SIGTERM.value)]
)
def test_the_first_signal_asks_and_the_third_kills(signals: int, printed: str, code: int) -> None:
    """The second one changes nothing."""
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, str(signals)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == (printed, code), done.stderr
