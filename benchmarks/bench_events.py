"""What appending, claiming and acknowledging cost with 1, 8 and 32 workers, beside the bare driver.

STORAGE says where: ``postgres`` or ``mongo``. The driver runs the same statements on the same data of the same server,
in turn within each round. AGENTS agents share the work; SEEN exchanges that nobody has seen ride in every delivery. A
figure is the median of ROUNDS rounds, a ratio the median of the rounds' own. With more workers than connections a
call's time is mostly its wait for one, so there processor time and calls per second tell. After every cell it is
checked that no exchange was lost, and that each event was claimed once and acknowledged once.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from statistics import median
from uuid import uuid4

import event_sides_mongo
import event_sides_postgres
from event_sides import DRIVER, Ground, Receipt, Side, Stored, Whole
from measuring import Measured, measured

from muniment.models import Agent

GROUNDS: dict[str, Callable[[Sequence[Agent]], AbstractAsyncContextManager[Ground]]] = {
    "postgres": event_sides_postgres.ground,
    "mongo": event_sides_mongo.ground,
}
STORAGE = os.environ.get("STORAGE", "postgres")
ROUNDS = int(os.environ.get("ROUNDS", "15"))
WORKERS = (1, 8, 32)
CALLS = {1: 80, 8: 320, 32: 320}
AGENTS = int(os.environ.get("AGENTS", "20"))
SEEN = 3
SIDES = (DRIVER, Stored.name, Whole.name)
OPERATIONS = ("append", "claim", "ack", "claim + ack")
Cell = tuple[str, int, str]


class Bench:
    """The sides on one server, and the data that they share."""

    def __init__(self, ground: Ground, agents: Sequence[Agent]) -> None:
        self._ground = ground
        self._agents = agents
        self._tokens = count()

    async def run(self) -> dict[Cell, list[Measured]]:
        """All rounds; the first, which fills caches and prepares statements, does not count."""
        found: dict[Cell, list[Measured]] = defaultdict(list)
        for number in range(ROUNDS + 1):
            for workers in WORKERS:
                for side in self._ground.sides[:: 1 if number % 2 else -1]:
                    for operation, cell in (await self._cells(side, workers)).items():
                        if number:
                            found[operation, workers, side.name].append(cell)
        return found

    async def _cells(self, side: Side, workers: int) -> dict[str, Measured]:
        calls = CALLS[workers]
        before = await self._ground.revisions()
        keys = iter([uuid4().hex for _ in range(calls)])
        found = {"append": await self._timed(workers, calls, lambda agent: side.append(agent, next(keys)))}
        assert await self._ground.revisions() == before + calls, "an exchange was lost"
        await self._ground.unsee(SEEN)
        claimed: list[Receipt] = []

        async def claim(agent: Agent) -> None:
            claimed.extend(await side.claim(agent, f"t{next(self._tokens)}"))

        async def ack(_: Agent) -> None:
            assert await side.ack(next(receipts))

        async def both(agent: Agent) -> None:
            (receipt,) = await side.claim(agent, f"t{next(self._tokens)}")
            assert await side.ack(receipt)

        await self._ground.enqueue(calls)
        found["claim"] = await self._timed(workers, calls, claim)
        assert len({event for _, event, _ in claimed}) == len(claimed) == calls, "an event was lost, or claimed twice"
        receipts = iter(claimed)
        found["ack"] = await self._timed(workers, calls, ack)
        await self._ground.unsee(SEEN)
        await self._ground.enqueue(calls)
        found["claim + ack"] = await self._timed(workers, calls, both)
        assert await self._ground.unfinished() == 0
        return found

    async def _timed(self, workers: int, calls: int, call: Callable[[Agent], Awaitable[None]]) -> Measured:
        turns = [partial(call, self._agents[turn % AGENTS]) for turn in range(calls)]
        return await measured(turns, workers, self._ground.process)


async def main() -> None:
    """Start, measure, print."""
    agents = [Agent(name=f"agent-{number}", instance="1") for number in range(AGENTS)]
    async with GROUNDS[STORAGE](agents) as ground:
        report(await Bench(ground, agents).run())


def report(found: dict[Cell, list[Measured]]) -> None:
    """The table, and beside each side of ours what it is of the driver's, round by round."""
    print(f"{STORAGE}, {AGENTS} agents, medians of {ROUNDS} rounds; nothing was lost, nothing was claimed twice")
    row("operation", "workers", "side", "calls/s", "p10 ms", "p50 ms", "CPU ms", "rate x", "p10 x", "CPU x")
    for operation in OPERATIONS:
        for workers in WORKERS:
            raw = found[operation, workers, DRIVER]
            for side in SIDES:
                ours = found[operation, workers, side]
                pairs = list(zip(ours, raw, strict=True))
                row(
                    operation,
                    str(workers),
                    side,
                    f"{median(one.rate for one in ours):,.0f}",
                    *(f"{median(values):.2f}" for values in zip(*((o.p10, o.p50, o.cpu) for o in ours), strict=True)),
                    f"{median(one.rate / other.rate for one, other in pairs):.2f}",
                    f"{median(one.p10 / other.p10 for one, other in pairs):.2f}",
                    f"{median(one.cpu / other.cpu for one, other in pairs):.2f}",
                )
        for side in SIDES:
            pairs = zip(found[operation, 32, side], found[operation, 8, side], strict=True)
            ratio = median(many.rate / few.rate for many, few in pairs)
            print(f"{operation}, {side}: with 32 workers {ratio:.2f} of the calls/s of 8")


def row(operation: str, workers: str, side: str, *figures: str) -> None:
    """One line of the table."""
    print(f"{operation:<12} {workers:>7} {side:<8}", *(f"{figure:>8}" for figure in figures))


if __name__ == "__main__":
    asyncio.run(main())
