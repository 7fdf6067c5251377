"""Calls of agent memory that one process serves together, on a server that refuses some of what they store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muniment.conformance.agent_calls import ANN, BOB, HOUR, exchange, take
from muniment.errors import Internal, StorageUnavailable
from muniment.models import Agent
from muniment.ports import Appended, Claim, Claimed, NewEvent
from muniment_storage_mongo import agent_claims
from muniment_storage_mongo.storage import MongoStorage


async def test_an_append_that_the_server_refuses_is_refused_alone(storage: MongoStorage, raw: Any) -> None:
    """The others of its group are stored, without a gap in their revisions."""
    await raw.command({"collMod": "exchange_keys", "validator": {"_id.key": {"$ne": "k2"}}})
    made = (storage.append_exchange(exchange(ANN, key=f"k{number}")) for number in range(5))
    answers = await asyncio.gather(*made, return_exceptions=True)
    assert [one.revisions if isinstance(one, Appended) else type(one) for one in answers] == [
        (1,),
        (2,),
        Internal,
        (3,),
        (4,),
    ]


async def test_a_delivery_that_the_server_refuses_is_refused_alone(storage: MongoStorage, raw: Any) -> None:
    """The other claims of its group have their events, and no event goes without a claim that was answered."""
    for number in range(3):
        await storage.enqueue(NewEvent(f"e{number}", ANN, {}))
    await raw.command({"collMod": "events", "validator": {"_id.id": {"$ne": "e1"}}})
    made = (storage.claim(Claim(ANN, [f"t{number}"], HOUR, 5)) for number in range(3))
    answers = await asyncio.gather(*made, return_exceptions=True)
    got = [[event.id for event in one.events] if isinstance(one, Claimed) else type(one) for one in answers]
    assert got == [["e0"], Internal, ["e2"]]


async def test_what_a_claim_got_is_kept_where_another_one_of_its_group_is_refused_later(
    storage: MongoStorage, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two events somebody else takes one, and as its claim looks for another the storage is away."""
    for number in range(2):
        await storage.enqueue(NewEvent(f"e{number}", ANN, {}))
    oldest, looks = agent_claims._oldest, iter(range(2))  # pyright: ignore[reportPrivateUsage]

    async def overtaken(*args: Any) -> Any:
        if next(looks) == 1:
            raise StorageUnavailable
        seen = await oldest(*args)
        await raw.events.update_one({"_id.id": "e1"}, {"$set": {"state": "acked", "token": "another"}})
        return seen

    monkeypatch.setattr(agent_claims, "_oldest", overtaken)
    made = (storage.claim(Claim(ANN, [f"t{number}"], HOUR, 5)) for number in range(2))
    first, second = await asyncio.gather(*made, return_exceptions=True)
    assert isinstance(first, Claimed)
    assert [event.id for event in first.events] == ["e0"]
    assert isinstance(second, StorageUnavailable)


async def test_claims_of_different_agents_do_not_wait_for_each_other(
    storage: MongoStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is held up holds up nobody else's."""
    oldest = agent_claims._oldest  # pyright: ignore[reportPrivateUsage]
    ann_waits, bob_is_served = asyncio.Event(), asyncio.Event()

    async def held_up(database: Any, claim: Claim, *rest: Any) -> Any:
        if claim.agent == ANN:
            ann_waits.set()
            await bob_is_served.wait()
        return await oldest(database, claim, *rest)

    monkeypatch.setattr(agent_claims, "_oldest", held_up)

    async def claim(agent: Agent) -> list[str]:
        return await take(storage, agent, f"of {agent.name}")

    for agent in (ANN, BOB):
        await storage.enqueue(NewEvent(f"e {agent.name}", agent, {}))
    held = asyncio.ensure_future(claim(ANN))
    async with asyncio.timeout(20):
        await ann_waits.wait()
        assert await claim(BOB) == ["e bob"]
        bob_is_served.set()
        assert await held == ["e ann"]
