"""The transport's seat: connections that are opened once and closed, callers that leave, and targets that differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from muniment.conformance.connections import TransportClient
from muniment.conformance.invariant import Outcome, Seat, seat_of
from muniment.conformance.reference_transport import ReferenceTransport, ReferenceTransportTarget
from muniment.conformance.runner import run
from muniment.conformance.seams import StagedEngine
from muniment.conformance.target import RemoteClient, TransportTarget
from muniment.engine import Engine
from muniment.models import CallContext, Principal, ProjectPolicy
from muniment.reference import HashEmbedder, ReferenceStorage

ADA = CallContext(principal=Principal(user="ada"))
BEA = CallContext(principal=Principal(user="bea"))


class Watched(ReferenceTransportTarget):
    """The reference transport, whose connections are counted."""

    def __init__(self, *, connects: bool = True) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.open = 0
        self._connects = connects

    @asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[RemoteClient]:
        """Counted."""
        if not self._connects:
            raise ConnectionRefusedError("nobody listens")
        task = asyncio.current_task()
        async with super().connect(engine, context) as client:
            self.opened.append(context.principal.user)
            self.open += 1
            yield client
        assert asyncio.current_task() is task
        self.open -= 1


class Held(ReferenceTransport):
    """A transport that goes on with a call when it is let."""

    gate: asyncio.Event

    async def called(self, operation: str, sent: Mapping[str, Any]) -> Any:
        """Wait."""
        await self.gate.wait()
        return await super().called(operation, sent)


async def test_each_principal_has_one_connection_that_one_task_keeps() -> None:
    """Racing first calls share it, and it is left by the task that entered it."""
    target = Watched()
    engine = StagedEngine(ReferenceStorage(), HashEmbedder())
    async with engine:
        client = TransportClient(target, engine)
        await asyncio.gather(*(client.call("project.list", {}, who) for who in (ADA, BEA, ADA, ADA)))
        assert sorted(target.opened) == ["ada", "bea"]
        assert target.open == 2
        await client.close()
        assert target.open == 0


async def test_a_connection_that_fails_says_why() -> None:
    """To whoever calls."""
    engine = StagedEngine(ReferenceStorage(), HashEmbedder())
    async with engine:
        client = TransportClient(Watched(connects=False), engine)
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError, match="nobody listens"):
                await client.call("project.list", {}, ADA)
        with pytest.raises(ConnectionRefusedError):
            await client.close()


async def test_a_caller_that_leaves_waits_for_what_its_call_does() -> None:
    """A server goes on without its client, so what is stored is looked at afterwards."""
    Held.gate = asyncio.Event()
    storage = ReferenceStorage()
    engine = StagedEngine(storage, HashEmbedder())
    async with engine:
        client = TransportClient(ReferenceTransportTarget(Held), engine)
        calling = asyncio.create_task(client.call("memory.write", {"content": "written all the same"}, ADA))
        await asyncio.sleep(0.01)
        calling.cancel()
        await asyncio.sleep(0.01)
        assert not calling.done()
        Held.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert [row.content for row in storage.data.memories.values()] == ["written all the same"]
        await client.close()


class Local(ReferenceTransportTarget):
    """A transport without a network, which names itself in the trail and registers what is missing."""

    surface = "local"
    policy = ProjectPolicy.CREATE_MISSING
    network = False
    body_limit = None


async def test_without_a_network_no_size_is_judged() -> None:
    """A transport says so by name."""
    assert seat_of(Local()) is Seat.TRANSPORT
    report = await run(Local(), only=["TRA-06"], seed=7)
    assert [(one.id, one.outcome) for one in report.results] == [("TRA-06", Outcome.UNDECLARED)]
    assert report.exit_code == 0


class Silent(ReferenceTransportTarget):
    """A transport over a network, whose target does not say how large a request may be."""

    body_limit = None


class CannotSend(TransportTarget):
    """One that says it, and cannot send a body in pieces."""

    body_limit = 1_000

    def connect(self, engine: Engine, context: CallContext) -> AbstractAsyncContextManager[RemoteClient]:
        """As the reference transport."""
        return ReferenceTransportTarget().connect(engine, context)


@pytest.mark.parametrize("target", [Silent(), CannotSend()])
async def test_a_target_that_lacks_what_sizes_are_judged_by(target: TransportTarget) -> None:
    """Over a network, which is what a target has that says nothing, the rule is not exercised, and not conformant."""
    report = await run(target, only=["TRA-06"], seed=7)
    assert [(one.id, one.outcome) for one in report.results] == [("TRA-06", Outcome.NOT_EXERCISED)]
    assert report.exit_code != 0


class Strict(Local):
    """A transport by which no project comes about but by identify."""

    policy = ProjectPolicy.REQUIRE_EXISTING


class Lax(ReferenceTransport):
    """A transport that registers what is missing, whoever calls."""

    def __init__(self, engine: Engine, context: CallContext) -> None:
        super().__init__(engine, context.model_copy(update={"project_policy": ProjectPolicy.CREATE_MISSING}))


@pytest.mark.parametrize(("target", "other"), [(Local(), "require-existing"), (Strict(), "create-missing")])
async def test_the_half_of_a_policy_that_a_transport_has_not(target: ReferenceTransportTarget, other: str) -> None:
    """The other half is judged, and the report says which one is not; without a policy of its own both are."""
    (result,) = (await run(target, only=["SCOPE-02"], seed=7)).results
    assert (result.outcome, other in result.detail) == (Outcome.PASS, True)
    (both,) = (await run(ReferenceTransportTarget(), only=["SCOPE-02"], seed=7)).results
    assert (both.outcome, both.detail) == (Outcome.PASS, "")


async def test_a_policy_that_is_not_the_declared_one_is_found() -> None:
    """A transport that says it registers nothing, and does."""
    assert (await run(Strict(Lax), only=["SCOPE-02"], seed=7)).results[0].outcome is Outcome.FAIL


class Dies(ReferenceTransportTarget):
    """A transport whose server has failed by the time that its client leaves."""

    @asynccontextmanager
    async def connect(self, engine: Engine, context: CallContext) -> AsyncGenerator[RemoteClient]:
        """Its end raises."""
        async with super().connect(engine, context) as client:
            yield client
        raise RuntimeError("the server's own")


async def test_a_server_that_fails_fails_what_it_was_judged_by() -> None:
    """Although every call was answered."""
    (result,) = (await run(Dies(), only=["TRA-04"], seed=7)).results
    assert result.outcome is Outcome.ERROR
    assert "the server's own" in result.detail


async def test_a_surface_that_is_not_the_declared_one_is_found() -> None:
    """The trail must call a transport as its target does."""

    class Misnamed(ReferenceTransport):
        def __init__(self, engine: Engine, context: CallContext) -> None:
            super().__init__(engine, context.model_copy(update={"surface": "elsewhere"}))

    class Named(ReferenceTransportTarget):
        surface = "here"

    assert (await run(Named(), only=["MUT-15"], seed=7)).results[0].outcome is Outcome.PASS
    assert (await run(Named(Misnamed), only=["MUT-15"], seed=7)).results[0].outcome is Outcome.FAIL
