"""The stream that says when to claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

import httpx2
import pytest

from muniment.engine import Engine
from muniment.models import Agent, CallContext, Principal
from muniment_transport_http import stream

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]

ADA = Agent(name="ada", instance="1")
PLATFORM = CallContext(principal=Principal(user="platform", platform=True))
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


async def test_an_agent_is_told_when_something_arrives(engine: Engine, connect: Open) -> None:
    """First that it may look, then of each arrival; nothing is claimed by it, and others' arrivals are not told."""
    async with connect("keeper", agent=ADA) as client:
        async with listening(client) as said:
            first = await anext(said)
            await enqueue(engine, Agent(name="bea", instance="1"))
            event = await enqueue(engine)
            second = await anext(said)
        (delivery,) = (await client.post("/v1/agent/events/claim", json={})).json()["items"]

    assert [first.event, second.event] == ["check", "claimable"]
    assert first.id != second.id
    assert (delivery["id"], delivery["attempts"]) == (event, 1)


async def test_who_comes_back_is_told_what_it_missed(engine: Engine, connect: Open) -> None:
    """With Last-Event-ID it is told at once only if something arrived since; another process's id counts as none."""
    async with connect("keeper", agent=ADA) as client:
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


async def test_an_agent_is_told_to_look_now_and_then(connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing arrives in this process it is told to look all the same; and the stream ends by itself."""
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(stream, "STREAM_SECONDS", 0.5)

    async with connect("keeper", agent=ADA) as client, listening(client) as said:
        told = [one async for one in said]

    assert len(told) > 2
    assert {one.event for one in told} == {"check"}
    assert len({one.id for one in told}) == 1


async def test_streams_end_with_the_server(connect: Open) -> None:
    """A stream that waits does not hold the end up."""
    ending = asyncio.Event()
    async with connect("keeper", agent=ADA, ending=ending) as client, listening(client) as said:
        await anext(said)
        ending.set()
        rest = [one async for one in said]

    assert rest == []


async def test_a_stream_that_a_client_left_waits_for_nothing(engine: Engine, connect: Open) -> None:
    """Nothing of it stays behind."""
    async with connect("keeper", agent=ADA) as client:
        async with listening(client) as said:
            await anext(said)
            assert engine.arrivals.waited_for(ADA)
        for _ in range(1_000):
            if not engine.arrivals.waited_for(ADA):
                break
            await asyncio.sleep(0.01)

    assert not engine.arrivals.waited_for(ADA)
