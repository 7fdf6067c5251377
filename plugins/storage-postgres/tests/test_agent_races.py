"""The races of agent memory between two clients, and between processes."""

from __future__ import annotations

import pytest

from muniment.conformance import agent_races
from muniment.conformance.agent_process import Process
from muniment.conformance.agent_races import RACES, Race, Rivals


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
async def test_two_clients(race: Race, rivals: Rivals) -> None:
    """They keep the rule that the race states."""
    await race(rivals)


async def test_200_writers_of_two_processes_lose_nothing(
    rivals: Rivals, process: Process, another_process: Process
) -> None:
    """200 appends at once to one agent: 200 revisions without a gap, and exactly the last 50 entries."""
    await agent_races.appends_of_processes(rivals, process, another_process)


async def test_a_process_killed_between_claim_and_acknowledgement(rivals: Rivals, process: Process) -> None:
    """Its event is offered again when the lease is over, with one more attempt; its token is stale."""
    await agent_races.killed_before_acknowledging(rivals, process)
