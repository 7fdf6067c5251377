"""The processes of a soak: a server over MCP/HTTP on an embedded database, a worker, and who kills them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

from muniment.authentication.audited_tokens import AuditedTokens
from muniment.ports import PluginContext
from muniment_storage_postgres.storage import create
from tests.abuse.estate import Estate, say
from tests.load.serving import Server
from tests.soak import worker
from tests.soak.caller import Caller
from tests.soak.told import Delivered

ROOT = Path(__file__).parents[2]
USERS = ("ann", "bob")
AGENTS = ("ada/1", "ada/2", "bea/1")
GAP = 4.0
"""Seconds between two kills, at most."""
DELAY = 1.0
"""Seconds for which what was killed stays away, at most."""


class Site:
    """A server, a worker, and the callers' identities on an estate."""

    def __init__(self, at: Estate) -> None:
        self.at = at
        self.callers: dict[str, Caller] = {}
        """By user, by agent, and ``platform``."""
        self.kills = Counter[str]()
        self._server = Server("mcp", at.directory, callers=())
        self._worker: Process | None = None
        (at.directory / "muniment.toml").write_text("[auth]\n", encoding="utf-8")

    async def open(self) -> None:
        """Start all, on a fresh directory."""
        await self._serve()
        await self._make_tokens()
        await self._work()

    async def close(self) -> None:
        """End all as they should end."""
        await self._end_worker()
        for caller in self.callers.values():
            await caller.close()
        await self._server.stop()
        await self.at.empty(10.0)

    async def disturb(self, random: Random, over: Callable[[], bool]) -> None:
        """Kill one after the other at random moments, each kind as often, and start again what does not by itself."""
        while True:
            for kind in random.sample(KINDS, len(KINDS)):
                await asyncio.sleep(random.uniform(0, GAP))
                if over():
                    return
                await kind(self, random)
                self.kills[kind.__name__] += 1
                if not sum(self.kills.values()) % 50:
                    say(f"kills {dict(self.kills)}, requests {self.requests()}")

    def requests(self) -> str:
        """How many requests had an answer and how many had none."""
        answered = sum(caller.answered for caller in self.callers.values())
        return f"{answered} answered, {sum(caller.lost for caller in self.callers.values())} lost"

    def delivered(self) -> Delivered:
        """What the workers noted; the last line of one that was killed may be torn."""
        facts: list[dict[str, Any]] = []
        for line in (self.at.directory / worker.TOLD).read_bytes().split(b"\n"):
            if line.endswith(b"}"):
                facts.append(json.loads(line))
        return Delivered(facts)

    @property
    def conninfo(self) -> str:
        """The database, while it runs."""
        return f"postgresql://postgres@/postgres?host={self.at.data / 'postgres'}"

    async def the_server(self, random: Random) -> None:
        await self._server.kill()
        await asyncio.sleep(random.uniform(0, DELAY))
        await self._serve()

    async def the_worker(self, random: Random) -> None:
        await self._end_worker()
        await asyncio.sleep(random.uniform(0, DELAY))
        await self._work()

    async def the_database(self, random: Random) -> None:
        """Its first process; the server finds out and starts it again."""
        self.at.kill(self.at.postgres()[:1])

    async def everything(self, random: Random) -> None:
        """As a power cut does."""
        await self.at.power_cut()
        await self._server.gone()
        await self._end_worker()
        await asyncio.sleep(random.uniform(0, DELAY))
        await self._serve()
        await self._work()

    async def _serve(self) -> None:
        await self._server.start()
        made = self.at.directory / "url.new"
        made.write_text(self._server.url, encoding="utf-8")
        made.replace(self.at.directory / worker.URL)

    async def _work(self) -> None:
        with (self.at.directory / "worker.log").open("ab") as log:
            command = (sys.executable, "-m", worker.__name__, str(self.at.directory))
            self._worker = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=log, env=_variables())

    async def _end_worker(self) -> None:
        assert self._worker is not None
        if self._worker.returncode is None:
            self._worker.kill()
        await self._worker.wait()

    async def _make_tokens(self) -> None:
        scopes = {
            **dict.fromkeys(USERS, ("write",)),
            **{agent: ("write", f"agent={agent}") for agent in AGENTS},
            "platform": ("write", "platform"),
        }
        storage = create(PluginContext("embedded:", self.at.data))
        await storage.open()
        try:
            tokens = AuditedTokens(storage, "soak", "test")
            made = {name: (await tokens.create(name, frozenset(), scope, None))[0] for name, scope in scopes.items()}
        finally:
            await storage.close()
        agents = {agent: made[agent] for agent in AGENTS}
        (self.at.directory / worker.TOKENS).write_text(json.dumps(agents), encoding="utf-8")
        self.callers = {name: Caller(lambda: self._server.url, token) for name, token in made.items()}


Kind = Callable[[Site, Random], Awaitable[None]]
KINDS: tuple[Kind, ...] = (Site.the_server, Site.the_worker, Site.the_database, Site.everything)


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
