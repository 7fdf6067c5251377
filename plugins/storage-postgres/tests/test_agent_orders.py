"""Random orders for this storage and for the reference, which is the oracle: both must answer alike."""

from __future__ import annotations

from typing import Any

from muniment.conformance.agent_orders import Orders
from muniment_storage_postgres.storage import PostgresStorage


async def test_answers_are_the_references(storage: PostgresStorage, raw: Any) -> None:
    """700 random orders, one after the other: the same answers, refusals, digests and values."""

    async def age(seconds: float) -> None:
        await raw.execute("UPDATE event SET lease_until = lease_until - %s * interval '1 second'", (seconds,))

    await Orders(storage, age, seed=11).run(700)
