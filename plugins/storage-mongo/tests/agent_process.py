"""A process that opens a storage, for the tests of agent memory; run as a script with a URL.

It prints ``open`` once it is, does what it reads from standard input line by line, and ends at its end:
``append AGENT PREFIX COUNT`` appends so many exchanges at once and prints their revisions, ``claim AGENT TOKEN`` takes
one event and prints its id.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from muniment import limits
from muniment.agent_models import ExchangeKind
from muniment.models import Agent
from muniment.ports import Claim, ExchangeAppend, ExchangeDraft, PluginContext
from muniment_storage_mongo.storage import MongoStorage, create


async def main(url: str) -> None:
    """Open, then follow the orders."""
    storage = create(PluginContext(url, Path(tempfile.gettempdir()), {"pool_size": 16}))
    await storage.open()
    say("open")
    while words := (await asyncio.to_thread(sys.stdin.readline)).split():
        agent = Agent(name=words[1], instance="1")
        if words[0] == "append":
            say(*map(str, await append(storage, agent, words[2], int(words[3]))))
        else:
            claimed = await storage.claim(Claim(agent, [words[2]], timedelta(hours=1), limits.ATTEMPTS_MAX))
            say(*(event.id for event in claimed.events))
    await storage.close()


async def append(storage: MongoStorage, agent: Agent, prefix: str, count: int) -> list[int | None]:
    """The revisions of exchanges that are appended at once."""

    async def one(number: int) -> int | None:
        draft = ExchangeDraft(agent, ExchangeKind.TASK_COMPLETED, "pod", "label", (), f"{prefix}{number}", 100)
        appended = await storage.append_exchange(ExchangeAppend((draft,), f"{prefix}{number}", limits.EXCHANGES_KEPT))
        return appended.revisions[0]

    return list(await asyncio.gather(*(one(number) for number in range(count))))


def say(*words: str) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
