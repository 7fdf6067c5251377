"""The stream that says when to claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import httpx2
import pytest

from muniment.engine import Engine, lookout
from muniment.errors import RateLimited
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Callers, WaitingStorage
from muniment.reference import ReferenceData, ReferenceStorage
from muniment_transport_http import open_streams, stream

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]

ADA = Agent(name="ada", instance="1")
PLATFORM = CallContext(principal=Principal(user="platform", platform=True))
KEEPER = CallContext(principal=Principal(user="keeper", agent=ADA))
PATH = "/v1/agent/events"


class Said(NamedTuple):
    """One event of a stream."""

    event: str
    id: str


async def events(lines: AsyncIterator[str]) -> AsyncGenerator[Said]:
    """The events of a stream, as a browser reads them."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Said(fields["event"], fields["id"])
            fields = {}


@asynccontextmanager
async def listening(client: httpx2.AsyncClient, last_id: str | None = None) -> AsyncGenerator[AsyncGenerator[Said]]:
    """The events that a client is sent."""
    headers = {} if last_id is None else {"last-event-id": last_id}
    async with client.stream("GET", PATH, headers=headers) as response:
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        yield events(response.aiter_lines())


async def enqueue(engine: Engine, agent: Agent = ADA) -> str:
    """An event for an agent, enqueued in this process by whatever surface."""
    ref = {"name": agent.name, "instance": agent.instance}
    answer = await engine.call("event.enqueue", {"agent": ref, "payload": {"content": "hi"}}, PLATFORM)
    return str(answer.model_dump()["id"])


class Older:
    """A storage of contract 1.1, which cannot tell whose events wait."""

    def __init__(self, storage: ReferenceStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        if name == "agents_waiting":
            raise AttributeError(name)
        return getattr(self._storage, name)


@pytest.fixture
async def older(serve: Open) -> AsyncGenerator[tuple[Engine, httpx2.AsyncClient]]:
    """An engine over such a storage, and Ada's client of it."""
    storage = cast(ReferenceStorage, Older(ReferenceStorage()))
    assert not isinstance(storage, WaitingStorage)
    async with Engine(storage, None, background=False) as engine, serve(engine, Callers(KEEPER)) as client:
        yield engine, client


async def test_an_agent_is_told_when_something_arrives(engine: Engine, connect: Open) -> None:
    """Of what waits and of each arrival; nothing is claimed by it, and others' arrivals are not told."""
    first = await enqueue(engine)
    async with connect("keeper", agent=ADA) as client, listening(client) as said:
        of_first = await anext(said)
        (delivery,) = (await client.post("/v1/agent/events/claim", json={})).json()["items"]
        await enqueue(engine, Agent(name="bea", instance="1"))
        second = await enqueue(engine)
        of_second = await anext(said)
        (other,) = (await client.post("/v1/agent/events/claim", json={})).json()["items"]

    assert [of_first.event, of_second.event] == ["claimable", "claimable"]
    assert of_first.id != of_second.id
    assert [(one["id"], one["attempts"]) for one in (delivery, other)] == [(first, 1), (second, 1)]


async def test_an_agent_is_told_of_what_another_process_did(serve: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enqueued there, or claimed there and not acknowledged in time; over a client of the same data."""
    monkeypatch.setattr(lookout, "LOOK_SECONDS", 0.01)
    data, behind = ReferenceData(), [timedelta(0)]

    def clock() -> datetime:
        return datetime.now(UTC) + behind[0]

    async with (
        Engine(ReferenceStorage(data, clock=clock), None, background=False) as here,
        Engine(ReferenceStorage(data, clock=clock), None, background=False) as there,
        serve(here, Callers(KEEPER)) as client,
        listening(client) as said,
    ):
        await enqueue(there)
        enqueued = await anext(said)
        claimed = (await there.call("event.claim", {"lease_seconds": 600}, KEEPER)).model_dump()["items"]
        behind[0] = timedelta(seconds=601)
        lost = await anext(said)
        (again,) = (await client.post("/v1/agent/events/claim", json={})).json()["items"]

    assert (enqueued.event, lost.event) == ("claimable", "claimable")
    assert (again["id"], again["attempts"]) == (claimed[0]["id"], 2)


async def test_a_stream_without_news_is_kept(connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """By comments, which a client passes over, so that a lost connection is found; and it ends by itself."""
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(stream, "STREAM_SECONDS", 0.5)

    async with connect("keeper", agent=ADA) as client, client.stream("GET", PATH) as response:
        lines = [line async for line in response.aiter_lines() if line]

    assert len(lines) > 3
    assert set(lines[1:]) == {": nothing new"}


async def test_who_comes_back_is_told_what_it_missed(older: tuple[Engine, httpx2.AsyncClient]) -> None:
    """Where the storage cannot tell, with Last-Event-ID it is told at once only if something arrived since; another
    process's id counts as none."""
    engine, client = older
    async with listening(client) as said:
        last = (await anext(said)).id
    async with listening(client, last) as said:
        waiting = asyncio.ensure_future(anext(said))
        await client.get("/v1/memories")
        told_nothing_new = not waiting.done()
        await enqueue(engine)
        arrived = await waiting
    await enqueue(engine)
    async with listening(client, arrived.id) as said:
        missed = await anext(said)
    async with listening(client, "0badc0de-1") as said:
        foreign = await anext(said)

    assert told_nothing_new
    assert (arrived.event, missed.event, foreign.event) == ("claimable", "check", "check")
    assert missed.id == foreign.id != arrived.id


async def test_who_comes_back_is_not_told_again_at_once(
    engine: Engine, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was said by ``Last-Event-ID`` is passed over, and what arrives after it is told at once."""
    monkeypatch.setattr(stream, "AGAIN_SECONDS", 3_600.0)
    await enqueue(engine)
    async with connect("keeper", agent=ADA) as client, asyncio.timeout(30):
        async with listening(client) as said:
            first = await anext(said)
        async with listening(client, first.id) as said:
            waiting = asyncio.ensure_future(anext(said))
            await asyncio.wait({waiting}, timeout=0.5)
            told_again = waiting.done()
            await enqueue(engine)
            second = await waiting

    assert not told_again
    assert (second.event, second.id != first.id) == ("claimable", True)


@pytest.mark.parametrize("last", ["earlier", "foreign", "none", "nonsense"])
async def test_who_missed_something_is_told_at_once(
    engine: Engine, connect: Open, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """By an id before what arrived meanwhile, another process's, or none; of what can still be claimed."""
    monkeypatch.setattr(stream, "AGAIN_SECONDS", 3_600.0)
    await enqueue(engine)
    async with connect("keeper", agent=ADA) as client, asyncio.timeout(30):
        async with listening(client) as said:
            first = await anext(said)
        await enqueue(engine)
        ids = {"earlier": first.id, "foreign": "0badc0de-2", "nonsense": "no id", "none": None}
        async with listening(client, ids[last]) as said:
            missed = await anext(said)

    assert (missed.event, missed.id != first.id) == ("claimable", True)


async def test_who_comes_back_is_told_again_of_what_goes_on_waiting(
    serve: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the pause of a stream that goes on; so it learns of what another process enqueued meanwhile."""
    monkeypatch.setattr(stream, "AGAIN_SECONDS", 0.3)
    data = ReferenceData()
    async with (
        Engine(ReferenceStorage(data), None, background=False) as here,
        Engine(ReferenceStorage(data), None, background=False) as there,
        serve(here, Callers(KEEPER)) as client,
        asyncio.timeout(30),
    ):
        await enqueue(there)
        async with listening(client) as said:
            first = await anext(said)
        claimed = (await client.post("/v1/agent/events/claim", json={})).json()["items"]
        await enqueue(there)
        began = asyncio.get_running_loop().time()
        async with listening(client, first.id) as said:
            again = await anext(said)
        took = asyncio.get_running_loop().time() - began

    assert len(claimed) == 1
    assert again.event == "claimable"
    assert took >= 0.3


async def test_who_is_told_while_it_need_not_be_is_not_told_twice(
    engine: Engine, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An arrival begins the pause anew."""
    monkeypatch.setattr(stream, "AGAIN_SECONDS", 1.0)
    await enqueue(engine)
    async with connect("keeper", agent=ADA) as client, asyncio.timeout(30):
        async with listening(client) as said:
            first = await anext(said)
        async with listening(client, first.id) as said:
            await asyncio.sleep(0.7)
            await enqueue(engine)
            await anext(said)
            began = asyncio.get_running_loop().time()
            await anext(said)
            took = asyncio.get_running_loop().time() - began

    assert took >= 0.9


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_nothing_keeps_a_stream_back(connect: Open, method: str) -> None:
    """No cache has it, and no proxy holds its lines until there are many."""
    async with connect("keeper", agent=ADA) as client, client.stream(method, PATH) as response:
        headers = response.headers

    assert "no-cache" in headers["cache-control"].split(", ")
    assert headers["x-accel-buffering"] == "no"


async def test_an_agent_is_told_to_look_now_and_then(
    older: tuple[Engine, httpx2.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the storage cannot tell and nothing arrives in this process; and the stream ends by itself."""
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(stream, "STREAM_SECONDS", 0.5)

    async with listening(older[1]) as said:
        told = [one async for one in said]

    assert len(told) > 2
    assert {one.event for one in told} == {"check"}
    assert len({one.id for one in told}) == 1


async def test_a_busy_agent_is_told_to_look_too(
    older: tuple[Engine, httpx2.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrivals do not put off the look at leases and credentials."""
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.2)
    engine, client = older
    told: list[str] = []

    async with listening(client) as said, asyncio.timeout(30):
        first = await anext(said)
        while "check" not in told:
            await enqueue(engine)
            told.append((await anext(said)).event)

    assert first.event == "check"


@pytest.mark.parametrize("query", ["x=1", "x", "=1", "agent=bea"])
async def test_the_stream_takes_no_parameter(connect: Open, query: str) -> None:
    """One is refused by its name, as on every path."""
    async with connect("keeper", agent=ADA) as client:
        refused = await client.get(f"{PATH}?{query}")

    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    assert refused.json()["details"]["field"] == (query.partition("=")[0] or "input")


async def test_the_last_event_is_said_once(connect: Open) -> None:
    """Two headers are refused."""
    async with connect("keeper", agent=ADA) as client:
        refused = await client.get(PATH, headers=[("last-event-id", "a-1"), ("last-event-id", "a-2")])

    assert (refused.status_code, refused.json()["details"]["field"]) == (422, "Last-Event-ID")


async def test_head_opens_no_stream(connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is answered with the stream's type, and takes no place."""
    monkeypatch.setattr(open_streams, "OWN_MAX", 0)
    async with connect("keeper", agent=ADA) as client:
        answer = await client.head(PATH)

    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.parametrize(("own", "everybody", "limit"), [(2, 9, 2), (9, 2, 2)])
async def test_no_more_streams_than_there_may_be(
    engine: Engine, connect: Open, monkeypatch: pytest.MonkeyPatch, own: int, everybody: int, limit: int
) -> None:
    """One too many of a principal's, or of all, is 429 with Retry-After; one that ended makes room."""
    monkeypatch.setattr(open_streams, "OWN_MAX", own)
    monkeypatch.setattr(open_streams, "ALL_MAX", everybody)
    await enqueue(engine)
    async with connect("keeper", agent=ADA) as client, AsyncExitStack() as others:
        async with listening(client) as said:
            await anext(said)
            await anext(await others.enter_async_context(listening(client)))
            refused = await client.get(PATH)
            called = await client.get("/v1/memories")
        async with asyncio.timeout(20):
            while (again := await begun(client)) == 429:  # noqa: ASYNC110 - it says so to nobody
                await asyncio.sleep(0.01)

    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert refused.json()["details"] == {"limit": limit, "retry_after": open_streams.RETRY_SECONDS}
    assert refused.headers["retry-after"] == str(open_streams.RETRY_SECONDS)
    assert (called.status_code, again) == (200, 200)


async def begun(client: httpx2.AsyncClient) -> int:
    """The status of a stream that is left at once."""
    async with client.stream("GET", PATH) as response:
        return response.status_code


def test_a_principal_has_its_own_share_of_streams() -> None:
    """Another agent of the same user, and the same agent of another user, have theirs; each place is given back."""
    bea = Agent(name="bea", instance="1")
    streams = open_streams.OpenStreams()
    ada = Principal(user="keeper", agent=ADA)
    given = [streams.admit(ada) for _ in range(open_streams.OWN_MAX)]
    with pytest.raises(RateLimited):
        streams.admit(ada)
    streams.admit(Principal(user="keeper", agent=bea))
    streams.admit(Principal(user="other", agent=ADA))
    given[0]()
    streams.admit(ada)


async def test_streams_end_with_the_server(engine: Engine, connect: Open) -> None:
    """A stream that waits does not hold the end up."""
    ending = asyncio.Event()
    await enqueue(engine)
    async with connect("keeper", agent=ADA, ending=ending) as client, listening(client) as said:
        await anext(said)
        ending.set()
        rest = [one async for one in said]

    assert rest == []


async def test_a_stream_that_a_client_left_waits_for_nothing(engine: Engine, connect: Open) -> None:
    """Nothing of it stays behind."""
    await enqueue(engine)
    async with connect("keeper", agent=ADA) as client:
        async with listening(client) as said:
            await anext(said)
            assert engine.arrivals.waited_for(ADA)
        for _ in range(1_000):
            if not engine.arrivals.waited_for(ADA):
                break
            await asyncio.sleep(0.01)

    assert not engine.arrivals.waited_for(ADA)
    await engine.lookout.ended()
