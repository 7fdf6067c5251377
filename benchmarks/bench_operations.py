"""What the operations on memories and agents cost through the engine, beside the bare driver of each storage.

BACKENDS names the storages, in turn each on a server of the benchmark's own. The driver makes the same rows by the same
statements on the same server, in turn with ours within each round; what it needs to know (terms, vectors, the audit
entry) it has before the clock starts, whereas ours is the whole call, with the checks, the analysis and the hash
embedder. A change reads the memory first on both sides; "replace" is an update against a driver that does not.
A search asks for words and a tag with 1,000 and with 10,000 readable memories, alone in the tables and with FOREIGN
memories of others. The sides' modules say what the driver does of a search.

A figure is the median of ROUNDS rounds of CALLS calls with one client; a ratio is the median of the rounds' own.
Processor time is that of this process and of the server. In every round it is seen to that both sides have left the
same rows.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from random import Random
from time import perf_counter
from uuid import uuid4

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import event_sides
import operations_sides_mongo
import operations_sides_postgres
from estate import Estate
from measuring import Call, Measured, measured
from operations_sides import READERS, Ground, Ours, Question, Side, Written, questions
from operations_table import CLIENTS, Found, report

from muniment.models import Agent

GROUNDS: dict[str, Callable[[Estate, int, Sequence[Agent]], AbstractAsyncContextManager[Ground]]] = {
    "postgres": operations_sides_postgres.ground,
    "mongo": operations_sides_mongo.ground,
}
BACKENDS = os.environ.get("BACKENDS", "postgres,mongo").split(",")
ROUNDS = int(os.environ.get("ROUNDS", "7"))
CALLS = int(os.environ.get("CALLS", "50"))
FOREIGN = int(os.environ.get("FOREIGN", "200000"))
QUERIES = 24
AGENTS = [Agent(name=f"agent-{number}", instance="1") for number in range(20)]
SENTENCE = 14
"""Words of one, but for the last."""
UNSEEN = 3
"""Exchanges that nobody has seen, which ride in every delivery."""


class Bench:
    """The rounds."""

    def __init__(self, ground: Ground, estate: Estate, asked: Mapping[str, Sequence[Question]]) -> None:
        self._ground = ground
        self._estate = estate
        self._asked = asked
        self._dice = Random(5)
        self._numbers = count()
        self._order = 1
        self.found: Found = defaultdict(list)

    async def run(self) -> None:
        """The first round, which fills caches and prepares statements, does not count."""
        for agent in AGENTS * UNSEEN:
            await self._ground.events.sides[0].append(agent, uuid4().hex)
        for number in range(ROUNDS + 1):
            self._order = 1 if number % 2 else -1
            cells = {key: cell for clients in CLIENTS for key, cell in await self._round(clients)}
            if number:
                for key, cell in cells.items():
                    self.found[key].append(cell)
            print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

    async def _round(self, clients: int) -> list[tuple[tuple[str, int, str], Measured]]:
        calls = CALLS if clients == 1 else max(CALLS, 2 * clients)
        cells: list[tuple[tuple[str, int, str], Measured]] = []
        async for operation, name, prepared in self._cells(calls):
            cells.append(((operation, clients, name), await measured(prepared, clients, self._ground.process)))
        return cells

    async def _cells(self, calls: int) -> AsyncGenerator[tuple[str, str, Sequence[Call]]]:
        async for cell in self._reads(calls):
            yield cell
        async for cell in self._changes(calls):
            yield cell
        async for cell in self._events(calls):
            yield cell

    async def _reads(self, calls: int) -> AsyncGenerator[tuple[str, str, Sequence[Call]]]:
        user = next(iter(READERS))
        ids = self._dice.choices(self._ground.readable[user], k=calls)
        sides = self._ground.sides[:: self._order]
        for side in sides:
            yield "get", side.name, [side.get(user, one) for one in ids]
        for side in sides:
            yield "list", side.name, [side.newest(user) for _ in range(calls)]
        for reader, of_reader in self._asked.items():
            asked = [of_reader[turn % len(of_reader)] for turn in range(calls)]
            for where, found in (("", sides), (" beside others", self._ground.crowded[:: self._order])):
                for side in found:
                    yield f"search {reader}{where}", side.name, [side.search(one) for one in asked]

    async def _changes(self, calls: int) -> AsyncGenerator[tuple[str, str, Sequence[Call]]]:
        numbers = [next(self._numbers) for _ in range(calls)]
        sides = self._ground.sides[:: self._order]
        of_side = {side.name: [Written(self._text(number)) for number in numbers] for side in sides}
        changes: dict[str, Callable[[Side, Written, int], Awaitable[Call]]] = {
            "write": lambda side, one, _: side.write(one),
            "patch": lambda side, one, number: side.patch(one, f"remark{number}.", f"another remark{number}."),
            "update": lambda side, one, number: side.update(one, self._text(number, 1)),
            "replace": lambda side, one, number: side.replace(one, self._text(number, 2)),
        }
        for operation, change in changes.items():
            for side in sides:
                written = zip(of_side[side.name], numbers, strict=True)
                yield operation, side.name, [await change(side, one, number) for one, number in written]
        ours, raw = [await self._ground.rows(side.name) for side in sides]
        assert ours == raw, f"the sides left different rows: {ours} and {raw}"
        for side in sides:
            yield "delete", side.name, [side.delete(one) for one in of_side[side.name]]

    def _text(self, number: int, shift: int = 0) -> str:
        """A content in sentences that there was not yet, so that no cache has its vectors."""
        words = self._estate.texts[(number + 1_000 * shift) % len(self._estate.texts)].content.split()
        sentences = [" ".join(words[start : start + SENTENCE]) for start in range(0, len(words), SENTENCE)]
        return ". ".join([*sentences, f"This is remark{number}."])

    async def _events(self, calls: int) -> AsyncGenerator[tuple[str, str, Sequence[Call]]]:
        events = self._ground.events
        sides = events.sides[:: self._order]
        turns = [AGENTS[turn % len(AGENTS)] for turn in range(calls)]
        before = await events.revisions()
        for side in sides:
            yield "append", side.name, [partial(side.append, agent, uuid4().hex) for agent in turns]
        assert await events.revisions() == before + len(sides) * calls, "an exchange was lost"
        for side in sides:
            await events.unsee(UNSEEN)
            await events.enqueue(calls)
            yield "claim + ack", side.name, [partial(_handled, side, agent) for agent in turns]
            assert await events.unfinished() == 0, "an event was lost, or claimed twice"


async def _handled(side: event_sides.Side, agent: Agent) -> None:
    (receipt,) = await side.claim(agent, uuid4().hex)
    assert await side.ack(receipt)


async def main() -> None:
    """Load, measure, print, for one storage after the other."""
    for backend in BACKENDS:
        began = perf_counter()
        estate = Estate()
        async with GROUNDS[backend](estate, FOREIGN, AGENTS) as ground:
            loaded = perf_counter()
            ours = next(side for side in ground.sides if isinstance(side, Ours))
            asked = {f"{size:,}": await questions(ours, estate, user, QUERIES) for user, size in READERS.items()}
            beside = next(side for side in ground.crowded if isinstance(side, Ours))
            for one in (one for of_reader in asked.values() for one in of_reader):
                assert await beside.page(one.user, one.text) == one.page, "others' memories change what is found"
            bench = Bench(ground, estate, asked)
            await bench.run()
            report(backend, bench.found, rounds=ROUNDS, calls=CALLS, foreign=FOREIGN)
            print(f"replace is an update of which the driver does not read the memory; of a search {ground.of_search}")
            print(f"{loaded - began:.0f} s to load, {perf_counter() - loaded:.0f} s to measure", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
