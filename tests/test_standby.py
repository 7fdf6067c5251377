"""An agent's stream at one server, and what another one does to its events: both on one real storage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any

import httpx2
import pytest

from muniment.conformance.pytest_front import not_run
from muniment.conformance.target import NotRun, StorageTarget
from muniment.engine import Engine
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Callers, WaitingStorage
from muniment_transport_http.conformance import target as http_target
from muniment_transport_http.routes import STREAM_PATH

ADA = Agent(name="ada", instance="1")
KEEPER = CallContext(principal=Principal(user="keeper", agent=ADA))
PLATFORM = CallContext(principal=Principal(user="platform", platform=True))
LEASE = 600


@pytest.mark.parametrize("storage", ["postgres", "mongo", "sqlite"])
async def test_a_stream_tells_of_what_another_server_did(storage: str) -> None:
    """What it enqueued, and what was claimed there by a worker whose lease ran out."""
    target: StorageTarget[Any] = import_module(f"muniment_storage_{storage}.conformance").target()
    async with AsyncExitStack() as stack:
        try:
            subject = await stack.enter_async_context(target.open())
        except NotRun as missing:
            not_run(str(missing))
            return
        second = await stack.enter_async_context(target.second(subject))
        if not _can_tell(second):
            not_run(f"storage-{storage} is of a contract before 1.2")
            return
        here, there = [
            await stack.enter_async_context(Engine(one, None, background=False)) for one in (subject.storage, second)
        ]
        server = await stack.enter_async_context(http_target().server(here, Callers(KEEPER)))
        client = await stack.enter_async_context(httpx2.AsyncClient(timeout=60, trust_env=False))
        response = await stack.enter_async_context(client.stream("GET", server.url + STREAM_PATH))
        lines = response.aiter_lines()

        enqueued = await there.call("event.enqueue", {"agent": ADA.model_dump(), "payload": {"n": 1}}, PLATFORM)
        await _claimable(lines)
        first = await _claimed(there)
        await target.age(subject, 2 * LEASE)
        await _claimable(lines)
        again = await _claimed(here)

    assert [one["id"] for one in (first, again)] == [enqueued.model_dump()["id"]] * 2
    assert (first["attempts"], again["attempts"]) == (1, 2)


def _can_tell(storage: object) -> bool:
    """Whether it is of a contract that has the question."""
    return isinstance(storage, WaitingStorage)


async def _claimable(lines: AsyncIterator[str]) -> None:
    """Return once the stream says that there is something to claim."""
    async for line in lines:
        if line == "event: claimable":
            return
    raise AssertionError("the stream ended without a word")


async def _claimed(engine: Engine) -> dict[str, Any]:
    """The one event that a claim gives."""
    (item,) = (await engine.call("event.claim", {"lease_seconds": LEASE}, KEEPER)).model_dump()["items"]
    return item
