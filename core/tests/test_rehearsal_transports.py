"""Twins of transports, which hand calls on to an engine, and whose clients read replies."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel

from muniment.conformance.connections import TransportClient
from muniment.conformance.mutants.asked import Ids
from muniment.conformance.mutants.reach import Differences, noting
from muniment.conformance.reference_transport import ReferenceTransport, ReferenceTransportTarget
from muniment.conformance.seams import StagedEngine
from muniment.conformance.target import Refused
from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.reference import ReferenceStorage


class AsksTwice(ReferenceTransport):
    """Calls the engine once more."""

    async def called(self, operation: str, sent: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        await super().called(operation, {})
        return await super().called(operation, {})


class PassesOn(ReferenceTransport):
    """Hands the call on as it is."""

    async def called(self, operation: str, sent: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        return await super().called(operation, {})


class KnowsBetter(ReferenceTransport):
    """Looks at the engine by itself."""

    async def called(self, operation: str, sent: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert self.engine.operations
        return await super().called(operation, {})


@pytest.mark.parametrize(("mutant", "differs"), [(PassesOn, False), (AsksTwice, True), (KnowsBetter, True)])
async def test_a_call_is_handed_on_once(mutant: type[ReferenceTransport], differs: bool) -> None:
    """A transport's twin gets what the engine answered its base, and has no engine of its own."""
    differences = Differences({"it": mutant})
    context = CallContext(principal=Principal(user="alice"), surface="test")
    async with Engine(ReferenceStorage(), None, background=False) as engine:
        await noting(ReferenceTransport, differences)(engine, context).called("project.list", {})
    assert ("it" in differences.found) is differs


async def test_replies_that_say_the_same_are_alike_until_their_text_is_read() -> None:
    """A client reads the record; a check that asks for the text reads all of it."""
    target = ReferenceTransportTarget
    for reads, differs in ((False, False), (True, True)):
        differences = Differences({"it": SaysMore, "other": SaysSomethingElse})
        context = CallContext(principal=Principal(user="alice"), surface="test")
        engine = StagedEngine(ReferenceStorage(), None, background=False)
        client = TransportClient(target(noting(ReferenceTransport, differences)), engine)
        with differences.watching():
            async with engine:
                await client.call("project.list", {}, context)
                if reads:
                    await client.reply("project.list", {}, context)
                await client.close()
        assert ("it" in differences.found) is differs
        assert "other" in differences.found


async def test_incidents_have_the_same_ids_in_a_call_and_in_those_of_its_twins() -> None:
    """And no two in one call, or in two."""
    differences = Differences({"it": FailsByHand, "other": SaysItTwice})
    context = CallContext(principal=Principal(user="alice"), surface="test")
    engine = StagedEngine(ReferenceStorage(), None, background=False)
    async with engine:
        client = TransportClient(ReferenceTransportTarget(noting(ReferenceTransport, differences)), engine)
        ids: list[object] = []
        with differences.watching(), engine.failing(RuntimeError("secret")):
            for _ in range(2):
                with pytest.raises(Refused) as refused:
                    await client.call("project.list", {}, context)
                ids.append(refused.value.details["id"])
            await client.close()
    assert ids[0] != ids[1]
    assert differences.found == {"other"}


class FailsByHand(ReferenceTransport):
    """Does the same in other words."""

    def failed(self, error: Exception) -> str:
        return json.dumps({"refusal": dict(json.loads(super().failed(error))["refusal"])})


class SaysItTwice(ReferenceTransport):
    """Shows the id of another incident."""

    def failed(self, error: Exception) -> str:
        super().failed(error)
        return super().failed(error)


async def test_a_text_that_differs_after_one_was_read_counts() -> None:
    """A check that reads one may read the next."""
    differences = Differences({"it": SaysMore})
    context = CallContext(principal=Principal(user="alice"), surface="test")
    engine = StagedEngine(ReferenceStorage(), None, background=False)
    async with engine:
        client = TransportClient(ReferenceTransportTarget(noting(ReferenceTransport, differences)), engine)
        with differences.watching():
            with pytest.raises(Refused):
                await client.reply("memory.get", {"id": "none"}, context)
            assert not differences.found
            await client.call("project.list", {}, context)
            await client.close()
    assert differences.found == {"it"}


def test_ids_are_given_again_and_go_on() -> None:
    """A twin's are its base's; the base's next is another."""
    ids = Ids()
    first, second = ids.fresh(), ids.fresh()
    ids.again_from(0)
    assert ids.fresh() == first
    ids.go_on()
    assert ids.fresh() not in (first, second)


class SaysMore(ReferenceTransport):
    """Sends more than the record."""

    def answered(self, record: BaseModel) -> str:
        return super().answered(record).replace('{"record"', '{"more": 1, "record"', 1)


class SaysSomethingElse(ReferenceTransport):
    """Sends another record."""

    def answered(self, record: BaseModel) -> str:
        return json.dumps({"record": {}})
