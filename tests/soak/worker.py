"""Claims the events of agents and acknowledges them, until it is killed; run as a module with the soak's directory.

It reads where the server is, and the agents' tokens, from files of that directory, and appends to another one what it
is about to do and what it was told, a line each, before it goes on. Times are of the clock that processes share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.soak.caller import Caller, Lost, read_url

URL, TOKENS, TOLD = "url", "tokens.json", "worker.jsonl"
LEASE = 2
"""Seconds; what a killed worker had claimed comes again after them."""
AT_ONCE = 4
PAUSE = 0.05
WORK = 0.03
"""Seconds that an event is worked on, at most."""


class Worker:
    """A worker for all agents in turn."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._told = os.open(directory / TOLD, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._random = Random()

    async def run(self) -> None:
        """Until it is killed."""
        tokens: dict[str, str] = json.loads((self._directory / TOKENS).read_text(encoding="utf-8"))
        callers = {agent: Caller(lambda: read_url(self._directory / URL), token) for agent, token in tokens.items()}
        while True:
            for agent, caller in callers.items():
                await self._take(agent, caller)
            await asyncio.sleep(PAUSE)

    async def _take(self, agent: str, caller: Caller) -> None:
        asked = time.monotonic()
        try:
            page = await caller.once("event.claim", limit=AT_ONCE, lease_seconds=LEASE)
        except Lost:
            return
        if page["items"]:
            self._say(agent=agent, asked=asked, claimed=page["items"])
        for delivery in page["items"]:
            await asyncio.sleep(self._random.uniform(0, WORK))
            await self._acknowledge(agent, caller, delivery)

    async def _acknowledge(self, agent: str, caller: Caller, delivery: dict[str, Any]) -> None:
        told = {"id": delivery["id"], "token": delivery["token"]}
        self._say(agent=agent, acking=told)
        answer = await caller.certain("event.ack", **told)
        self._say(agent=agent, acked=told, outcome=answer["outcome"])

    def _say(self, **fact: Any) -> None:
        os.write(self._told, json.dumps({"at": time.monotonic(), **fact}).encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(Worker(Path(sys.argv[1])).run())
