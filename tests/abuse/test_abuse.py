"""Ten servers at once, and each kind of kill at random moments, on the embedded database under writing clients.

Every acknowledged write is there, once; nothing stays running after the last one left; the next start works. The run by
default takes one round of each kind; MUNIMENT_ABUSE_ROUNDS=100 takes a hundred. MUNIMENT_ABUSE_SEED repeats the moments
of a run, which are printed, as far as machines repeat themselves; a round that fails keeps its directory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random, SystemRandom

import pytest

from tests.abuse.estate import Estate, estate, say

ROUNDS = int(os.environ.get("MUNIMENT_ABUSE_ROUNDS", "1"))
SEED = int(os.environ.get("MUNIMENT_ABUSE_SEED", SystemRandom().randrange(1 << 32)))
pytestmark = pytest.mark.timeout(0 if ROUNDS > 1 else 600)
CLIENTS = 2
LEAVE_EVERY = 5
MOMENT = 0.6
"""Seconds after a write within which a kill comes."""


async def a_client(at: Estate, random: Random) -> None:
    """One client or all of them; the servers of those see the end of their input."""
    for client in at.living()[: random.randint(1, CLIENTS)]:
        client.process.kill()
        assert client.listening is not None
        await client.listening
    if not at.living():
        await at.empty()


async def a_server(at: Estate, random: Random) -> None:
    """One server process or all of them; their clients start others."""
    at.kill(random.sample(at.servers(), min(len(at.servers()), random.randint(1, CLIENTS))))


async def the_database(at: Estate, random: Random) -> None:
    """Its first process, which the others follow, or any of them, after which it recovers by itself."""
    found = at.postgres()
    at.kill(found[:1] if random.random() < 0.7 else random.sample(found, 1))


async def the_watch(at: Estate, random: Random) -> None:
    """Whoever would stop the database after the last one, and everybody else but the database."""
    others = [process for process in at.processes() if process not in at.postgres()]
    at.kill(random.sample(others, len(others)))
    for client in at.clients:
        assert client.listening is not None
        await client.listening


async def the_machine(at: Estate, random: Random) -> None:
    """Everything at once."""
    await at.power_cut()


async def a_signal(at: Estate, random: Random) -> None:
    """A server is asked to end, by either signal, and sometimes twice."""
    servers = random.sample(at.servers(), min(len(at.servers()), random.randint(1, CLIENTS)))
    for _ in range(random.randint(1, 2)):
        at.kill(servers, random.choice((signal.SIGTERM, signal.SIGINT)))


async def asleep(at: Estate, random: Random) -> None:
    """All processes stop, one after the other, and go on in another order, as when a laptop was closed; or some do."""
    found = at.processes()
    stopped = random.sample(found, len(found) if random.random() < 0.6 else random.randint(1, len(found)))
    at.kill(stopped, signal.SIGSTOP)
    await asyncio.sleep(random.uniform(0.1, 1.5))
    at.kill(random.sample(stopped, len(stopped)), signal.SIGCONT)


async def while_it_starts(at: Estate, random: Random) -> None:
    """Everybody leaves, and what comes next is killed while it starts: the clients' servers, or everything."""
    await at.leave()
    starting = await at.start(CLIENTS, "start")
    await asyncio.sleep(random.uniform(0.0, 3.0))
    if random.random() < 0.5:
        at.kill(at.servers())
        await asyncio.sleep(random.uniform(0.0, 1.0))
    await at.power_cut()
    assert all(not client.lives() for client in starting)


Kind = Callable[[Estate, Random], Awaitable[None]]
KINDS: tuple[Kind, ...] = (
    a_client,
    a_server,
    the_database,
    the_watch,
    the_machine,
    a_signal,
    asleep,
    while_it_starts,
)


def _named(kinds: Sequence[Kind]) -> str:
    return kinds[0].__name__ if len(kinds) == 1 else "all"


async def test_ten_servers_started_at_once() -> None:
    """On a fresh directory all of ten work, see each other's writes, and leave nothing running."""
    for turn in range(ROUNDS):
        async with estate() as at:
            begun = time.monotonic()
            await at.start(10)
            say(f"ten clients were started within {time.monotonic() - begun:.2f} s")
            await at.write("all")
            await at.write("none")
            assert await at.check("all") >= 10
            await at.leave()
        if ROUNDS > 1:
            say(f"ten servers at once {turn + 1} of {ROUNDS}")


async def rounds(at: Estate, kind: Kind, number: int) -> None:
    """Rounds of one kind of kill on one directory, under writes before and after."""
    checked = 0
    for turn in range(number):
        random = Random(f"{SEED} {kind.__name__} {turn}")
        before, after = f"{kind.__name__}-{turn}", f"{kind.__name__}-{turn}-after"
        try:
            await at.start(CLIENTS - len(at.living()))
            await at.write(before)
            await asyncio.sleep(random.uniform(0.0, MOMENT))
            await kind(at, random)
            await at.start(CLIENTS - len(at.living()))
            await at.write(after)
            checked += await at.check(before)
            if turn % LEAVE_EVERY == LEAVE_EVERY - 1:
                await at.leave()
        except BaseException as error:
            error.add_note(f"MUNIMENT_ABUSE_SEED={SEED}, round {turn} of {kind.__name__}")
            raise
        if number > 1:
            say(f"{kind.__name__} {turn + 1} of {number}: {checked} acknowledged writes are there")


@pytest.mark.parametrize("kinds", [KINDS] if ROUNDS == 1 else [(kind,) for kind in KINDS], ids=_named)
async def test_each_kind_of_kill_at_random_moments(kinds: Sequence[Kind]) -> None:
    """One directory goes through all of them; where many rounds are asked for, one directory for each kind."""
    say(f"MUNIMENT_ABUSE_SEED={SEED}")
    async with estate() as at:
        for kind in kinds:
            await rounds(at, kind, ROUNDS)
        await at.leave()


async def test_a_first_start_that_is_killed() -> None:
    """At any moment, the clients' servers or everything: the next start on that directory works."""
    for turn in range(ROUNDS):
        random = Random(f"{SEED} first start {turn}")
        async with estate() as at:
            await at.start(CLIENTS, "first")
            await asyncio.sleep(random.uniform(0.0, 4.0))
            if random.random() < 0.5:
                at.kill(at.servers())
                await asyncio.sleep(random.uniform(0.0, 2.0))
            await at.power_cut()
            await at.start(1)
            await at.write("next")
            await at.check("first")
            await at.leave()
        if ROUNDS > 1:
            say(f"first start {turn + 1} of {ROUNDS}")
