"""Random orders for this storage and for the reference, which is the oracle: both must answer alike."""

from __future__ import annotations

from typing import Any

from muniment.conformance.agent_orders import Orders
from muniment_storage_mongo import agent_probe
from muniment_storage_mongo.storage import MongoStorage


async def test_answers_are_the_references(storage: MongoStorage, raw: Any) -> None:
    """700 random orders, one after the other: the same answers, refusals, digests and values."""

    async def age(seconds: float) -> None:
        await agent_probe.age(raw, seconds)

    await Orders(storage, age, seed=11).run(700)
