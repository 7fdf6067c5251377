"""A server process for the tests: the real engine on the reference storage, with staged misbehaviour.

The first argument names the stage: ``plain``, ``slow`` (calls take SLOW seconds), ``stuck`` (calls never end),
``failing`` (a search raises what its query names, or something unforeseen), ``noisy`` (calls print to standard
output), ``loading`` (the embedder never comes), ``handled`` (the process handles SIGTERM itself, by cancelling).
The second is the user, the third says what else the caller is (``user`` for nothing, ``agent``, ``platform``), the rest
are groups. It serves what SPEC says, or stdio. A file named by TRACE records what began, what ended, and that the
engine was closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from muniment import errors
from muniment.engine import Engine
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Callers, PluginContext, Space
from muniment.reference import HashEmbedder, ReferenceStorage
from muniment_transport_mcp.transport import create

SLOW = 1.0

stage, user, role, *groups = sys.argv[1:]


def trace(event: str) -> None:
    """Note ``event`` where the test looks."""
    if path := os.environ.get("TRACE"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(event + "\n")


class NeverReady(HashEmbedder):
    """An embedder whose model never finishes loading."""

    @property
    def ready(self) -> bool:
        """Never."""
        return False

    async def space(self) -> Space:
        """Wait for the model."""
        await asyncio.Event().wait()
        raise AssertionError


class Staged(Engine):
    """The engine, misbehaving as the stage says around the real call."""

    async def call(self, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        """Run one operation."""
        trace(f"begin {name}")
        if stage == "slow":
            await asyncio.sleep(SLOW)
        if stage == "stuck":
            await asyncio.Event().wait()
        if stage == "noisy":
            sys.stdout.write("printed by a library\n")
            os.write(1, b"written by a C library\n")
            subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
        if stage == "failing" and name == "memory.search":
            raise staged_error(payload["query"])
        record = await super().call(name, payload, context)
        trace(f"end {name}")
        return record

    async def close(self) -> None:
        """Close."""
        await super().close()
        trace("closed")


def staged_error(name: str) -> Exception:
    """The refusal of that class name, or an error that nobody foresaw."""
    kind = getattr(errors, name, None)
    if kind is errors.InvalidInput:
        return errors.InvalidInput("field", "problem")
    if kind is errors.VersionConflict:
        return errors.VersionConflict(7)
    if kind is not None:
        return kind(None, reason="staged")
    return RuntimeError("secret: select content from memories at /var/lib/private")


async def main() -> None:
    """Open, serve, close, as the command line does."""
    embedder = NeverReady() if stage == "loading" else HashEmbedder()
    agent = Agent(name=user, instance="1") if role == "agent" else None
    principal = Principal(user=user, groups=frozenset(groups), agent=agent, platform=role == "platform")
    local = CallContext(principal=principal, surface="cli")
    if stage == "handled":
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Staged(ReferenceStorage(), embedder) as engine:
        spec = os.environ.get("SPEC", "mcp")
        await create(PluginContext(spec=spec, data_dir=Path())).serve(engine, Callers(local, anybody=True))


with suppress(asyncio.CancelledError):
    asyncio.run(main())
trace("left")
