"""A process with a storage of its own that follows orders, for the races of agent memory: both ends of the talk.

A script of the plugin's makes a storage and runs ``follow``; ``start`` starts it. An order and its answer are a line of
JSON each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from asyncio.subprocess import Process as Running
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from muniment.conformance.agent_calls import append, take
from muniment.conformance.invariant import Broken
from muniment.models import Agent
from muniment.ports import Storage

_OPEN = "open"
_ORDERS: dict[str, Callable[..., Awaitable[object]]] = {"append": append, "take": take}


async def follow(storage: Storage) -> None:
    """Open, say so, do what is read from standard input until its end, and close."""
    await storage.open()
    _say(_OPEN)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order, name, instance, *rest = json.loads(line)
        _say(await _ORDERS[order](storage, Agent(name=name, instance=instance), *rest))
    await storage.close()


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Process:
    """The end that gives the orders."""

    def __init__(self, running: Running) -> None:
        self._running = running

    async def append(self, agent: Agent, prefix: str, count: int) -> Sequence[int]:
        """``agent_calls.append``."""
        return await self._tell("append", agent.name, agent.instance, prefix, count)

    async def take(self, agent: Agent, *tokens: str) -> list[str]:
        """``agent_calls.take``."""
        return await self._tell("take", agent.name, agent.instance, *tokens)

    async def kill(self) -> None:
        """``kill -9``, unless it has ended; and its end."""
        if self._running.returncode is None:
            self._running.kill()
        await self._running.communicate()

    async def answer(self) -> Any:
        """The next line. Raises Broken where the process has ended instead."""
        assert self._running.stdout is not None
        line = await self._running.stdout.readline()
        if not line:
            raise Broken("the answer of a process with a storage", expected="a line", seen="its end")
        return json.loads(line)

    async def _tell(self, *order: object) -> Any:
        assert self._running.stdin is not None
        self._running.stdin.write(json.dumps(order).encode() + b"\n")
        return await self.answer()


@asynccontextmanager
async def start(script: Path, *arguments: str) -> AsyncGenerator[Process]:
    """A process of the script with an open storage, killed in the end if it still runs."""
    process = Process(await asyncio.create_subprocess_exec(sys.executable, script, *arguments, stdin=PIPE, stdout=PIPE))
    try:
        opened = await process.answer()
        if opened != _OPEN:
            raise Broken("the first word of a process with a storage", expected=_OPEN, seen=opened)
        yield process
    finally:
        await process.kill()
