"""A mixed load while server, worker and database are killed at random moments; then every invariant is checked.

MUNIMENT_SOAK_SECONDS says how long the load goes on. MUNIMENT_SOAK_SEED, which is printed, repeats the moments of a run
as far as machines repeat themselves. A run that fails keeps its directory.
"""

from __future__ import annotations

import asyncio
import copy
import os
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random, SystemRandom
from typing import Any

import pytest

from muniment.conformance.stored import Stored
from tests.abuse.estate import Broken, estate, say
from tests.soak.check import Seen, check, look
from tests.soak.load import SHARED, Platform, Scribe, Writer
from tests.soak.processes import AGENTS, KINDS, USERS, Site
from tests.soak.told import Delivered, Memory, Told
from tests.soak.worker import LEASE

SECONDS = float(os.environ.get("MUNIMENT_SOAK_SECONDS", "12"))
SEED = int(os.environ.get("MUNIMENT_SOAK_SEED", SystemRandom().randrange(1 << 32)))
WRITERS = 2
"""Callers of each user."""
DRAIN = 60.0
"""Seconds after which events that are not acknowledged are missed."""
pytestmark = pytest.mark.timeout(600 + 3 * SECONDS)


async def test_a_mixed_load_with_kills() -> None:
    """Nothing acknowledged is lost or doubled, everything has its trail and its vectors, and nothing stays running."""
    say(f"MUNIMENT_SOAK_SEED={SEED}, {SECONDS:g} s")
    try:
        async with estate() as at:
            site, told = Site(at), Told()
            await site.open()
            await loaded(site, told)
            seen, delivered = await look(site), site.delivered()
            await site.close()
            check(told, delivered, seen)
            found_out(told, delivered, seen)
            assert told.replayed
            assert told.found
            say(
                f"{dict(site.kills)} kills; {site.requests()}; {len(told.memories)} memories with "
                f"{sum(one.version for one in told.memories.values())} changes, {len(seen.stored.passages)} passages, "
                f"{len(told.events)} events in {len(delivered.of('claimed'))} claims, {len(told.takeaways)} exchanges"
            )
    except BaseException as error:
        error.add_note(f"MUNIMENT_SOAK_SEED={SEED}")
        raise


async def loaded(site: Site, told: Told) -> None:
    """The load under kills, and then what is still to be done without."""
    seeds = Random(SEED)
    ends = time.monotonic() + SECONDS

    def over() -> bool:
        return time.monotonic() > ends and len(site.kills) == len(KINDS)

    platform = Platform(site.callers["platform"], told, Random(seeds.random()), [*AGENTS])
    writers: list[Writer] = []
    for user in USERS:
        shared: list[Memory] = []
        made = [Writer(user, site.callers[user], told, Random(seeds.random()), shared) for _ in range(WRITERS)]
        opener = Writer(user, site.callers[user], told, Random(seeds.random()), shared)
        shared += [await opener.write() for _ in range(SHARED)]
        writers += made
    scribes = [Scribe(agent, site.callers[agent], told, Random(seeds.random())) for agent in AGENTS]
    async with asyncio.TaskGroup() as group:
        for caller in (*writers, *scribes, platform):
            group.create_task(caller.run(over))
        group.create_task(site.disturb(Random(seeds.random()), over))
    await drained(site, told, platform)


async def drained(site: Site, told: Told, platform: Platform) -> None:
    """Until every event was acknowledged, also those whose workers were killed too often; or patience ends.

    What a worker that was killed had acknowledged, and was not told of, may come again, or may not.
    """
    ends = time.monotonic() + DRAIN
    while time.monotonic() < ends:
        if await platform.requeue_dead():
            ends = time.monotonic() + DRAIN
        delivered = site.delivered()
        claimed = max((fact["at"] for fact in delivered.of("claimed")), default=0.0)
        sent = {fact["acking"]["id"] for fact in delivered.of("acking")}
        if sent >= told.events.keys() and time.monotonic() > claimed + 2 * LEASE:
            return
        await asyncio.sleep(0.5)


Change = Callable[[Told, Delivered, Seen], object]


def found_out(told: Told, delivered: Delivered, seen: Seen) -> None:
    """Whatever is changed in what is there is found, and named."""
    for what, change in CHANGES.items():
        changed = Told(**copy.deepcopy(told.__dict__)), Delivered([*delivered.facts]), copy.copy(seen)
        changed[2].memories, changed[2].trails = dict(seen.memories), dict(seen.trails)
        changed[2].notes = copy.deepcopy(seen.notes)
        change(*changed)
        with pytest.raises(Broken, match=what):
            check(*changed)


def _one(seen: Seen) -> str:
    """A live memory."""
    return next(iter(seen.texts))


def _stored(seen: Seen, **fields: Any) -> None:
    seen.stored = replace(seen.stored, **fields)


def _agents(seen: Seen, **fields: Any) -> None:
    seen.agents = replace(seen.agents, **fields)


def _moved(stored: Stored) -> tuple[object, ...]:
    first, *rest = stored.passages
    return (replace(first, vector=(first.vector[0] + 0.01, *first.vector[1:])), *rest)


def _late(delivered: Delivered) -> None:
    """The first acknowledged delivery again, after its acknowledgement."""
    acked = delivered.of("acked")[0]
    claim = next(fact for fact in delivered.of("claimed") if acked["acked"] in _tokens(fact))
    delivered.facts.append({**claim, "asked": acked["at"] + 1})


def _tokens(claim: dict[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    return [{"id": one["id"], "token": one["token"]} for one in claim["claimed"]]


CHANGES: dict[str, Change] = {
    "^memories: ": lambda told, delivered, seen: seen.memories.pop(_one(seen)),
    "^version of ": lambda told, delivered, seen: told.memories[_one(seen)].actions.append("memory.patch"),
    "^(content|lines) of ": lambda told, delivered, seen: seen.memories.update(
        {_one(seen): {**seen.memories[_one(seen)], "content": "another"}}
    ),
    "^trail of ": lambda told, delivered, seen: seen.trails.update({_one(seen): seen.trails[_one(seen)][1:]}),
    "^audit entries": lambda told, delivered, seen: _stored(seen, audit=(*seen.stored.audit, seen.stored.audit[-1])),
    "^receipts": lambda told, delivered, seen: _stored(seen, receipts=seen.stored.receipts + 1),
    "^(passages of|memories with vectors)": lambda told, delivered, seen: _stored(
        seen, passages=seen.stored.passages[1:]
    ),
    "^a vector of ": lambda told, delivered, seen: _stored(seen, passages=_moved(seen.stored)),
    "^(terms of|memories with terms)": lambda told, delivered, seen: _stored(seen, terms=seen.stored.terms[1:]),
    "^long_term of ": lambda told, delivered, seen: seen.notes[AGENTS[0]]["long_term"].update(value="another"),
    "^cycles of ": lambda told, delivered, seen: seen.notes[AGENTS[0]]["cycles"].update(value=[]),
    "^exchanges of ": lambda told, delivered, seen: _agents(seen, exchanges=seen.agents.exchanges[1:]),
    "^events: ": lambda told, delivered, seen: _agents(seen, events=seen.agents.events[1:]),
    "^events that still wait": lambda told, delivered, seen: _agents(
        seen, events=(replace(seen.agents.events[0], acked=False), *seen.agents.events[1:])
    ),
    "came again after": lambda told, delivered, seen: _late(delivered),
}
