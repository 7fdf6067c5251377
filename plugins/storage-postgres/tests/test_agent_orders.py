"""Random orders for this storage and for the reference, which is the oracle: both must answer alike."""

from __future__ import annotations

from muniment.conformance.agent_orders import Orders
from muniment.conformance.agent_races import Rivals


async def test_answers_are_the_references(rivals: Rivals) -> None:
    """700 random orders, one after the other: the same answers, refusals, digests and values."""
    await Orders(rivals.storage, rivals.age, seed=11).run(700)
