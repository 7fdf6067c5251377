"""A data directory under abuse: the clients on it, what they were promised, and every process that belongs to it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from muniment.conformance.pytest_front import not_run

CLIENT = Path(__file__).with_name("client.py")
PATIENCE = 400.0
"""Seconds after which something that should happen is missed; machines under load are slow."""


class Broken(AssertionError):
    """A promise that was not kept."""


@dataclass
class Client:
    """A client's process, and what it has told."""

    name: str
    process: asyncio.subprocess.Process
    told: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    listening: asyncio.Task[None] | None = None

    def tell(self, order: str) -> None:
        """Give an order."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(f"{order}\n".encode())

    def server(self) -> int | None:
        """The process of its server, if that was not seen to end."""
        for fact in reversed(self.told):
            if "gone" in fact or "left" in fact:
                return None
            if "server" in fact:
                return fact["server"]
        return None

    def lives(self) -> bool:
        """Whether it was not killed."""
        return self.process.returncode is None

    async def listen(self) -> None:
        """Keep what it tells."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            with suppress(ValueError):  # the end of a client that was killed while it wrote
                self.told.append(json.loads(line))
            self.heard.set()
        await self.process.wait()
        self.heard.set()

    async def until(self, what: str, told: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first fact of a kind."""
        seen = 0
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    for fact in self.told[seen:]:
                        if told(fact):
                            return fact
                    seen = len(self.told)
                    if not self.lives():
                        raise Broken(f"{self.name} ended while {what} was waited for: {self.told[-5:]}")
                    self.heard.clear()
                    await self.heard.wait()
        except TimeoutError:
            raise Broken(f"{self.name}: no {what} within {PATIENCE:g} s; last it told {self.told[-5:]}") from None


class Estate:
    """A fresh data directory, with as many clients as are wanted."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ma-"))
        if os.geteuid() == 0:
            self.directory.chmod(0o755)
        self.data = self.directory / "data"
        self.clients: list[Client] = []
        self._made = 0

    async def start(self, number: int = 1, tag: str = "") -> list[Client]:
        """More clients, not waited for; with a tag they write at once."""
        variables = {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}
        started: list[Client] = []
        for _ in range(number):
            self._made += 1
            name = f"client-{self._made}"
            flags = ("--data-dir", str(self.data), "--embedder", "hash:", "--user", "ann")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(CLIENT), str(self.directory / f"{name}.log"), *flags),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=variables,
                cwd=self.directory,
                limit=1 << 26,
            )
            client = Client(name, process)
            client.listening = asyncio.ensure_future(client.listen())
            if tag:
                client.tell(f"tag {tag}")
            started.append(client)
        self.clients += started
        return started

    async def write(self, tag: str) -> None:
        """Let all write under a tag, and wait until each was acknowledged once."""
        for client in self.living():
            client.tell(f"tag {tag}")
        await asyncio.gather(
            *(client.until(f"write of {tag}", lambda fact: fact.get("tag") == tag) for client in self.living())
        )

    def living(self) -> list[Client]:
        """The clients that were not killed."""
        return [client for client in self.clients if client.lives()]

    async def check(self, tag: str) -> int:
        """That what was acknowledged under a tag is there, once; how many that are. Nobody may write under it now."""
        reader = self.living()[0]
        begun = len(reader.told)
        reader.tell(f"list {tag}")
        fact = await reader.until(
            f"list of {tag}", lambda fact: fact.get("listed") == tag and fact in reader.told[begun:]
        )
        found = Counter(content for _, content in fact["memories"])
        ids = {content: memory for memory, content in fact["memories"]}
        acknowledged = [fact for client in self.clients for fact in client.told if fact.get("tag") == tag]
        lost = [fact for fact in acknowledged if ids.get(fact["written"]) != fact["id"]]
        doubled = [content for content, times in found.items() if times > 1]
        refused = [fact for client in self.clients for fact in client.told if {"refused", "strange"} & fact.keys()]
        if lost or doubled or refused:
            raise Broken(f"{tag}: lost {lost[:3]}, doubled {doubled[:3]}, refused {refused[:3]}")
        return len(acknowledged)

    async def leave(self) -> None:
        """All end as they should, and nothing runs then."""
        leaving = self.living()
        for client in leaving:
            client.tell("leave")
        try:
            async with asyncio.timeout(PATIENCE):
                for client in leaving:
                    assert client.listening is not None
                    await client.listening
        except TimeoutError:
            raise Broken(f"clients do not end: {[client.told[-3:] for client in self.living()]}") from None
        wrong = [client.told[-3:] for client in leaving if client.process.returncode or client.told[-1].get("left", 0)]
        if wrong:
            raise Broken(f"clients ended otherwise than well: {wrong[:3]}")
        await self.empty(1.0)

    async def empty(self, seconds: float = PATIENCE) -> None:
        """That nothing of the directory runs, or soon will not."""
        deadline = asyncio.get_running_loop().time() + seconds
        while left := self.processes():
            if asyncio.get_running_loop().time() > deadline:
                raise Broken(f"left running: {[_shown(process) for process in left]}")
            await asyncio.sleep(0.05)

    def processes(self, *, clients: bool = True) -> list[psutil.Process]:
        """Every process that names the directory or works in it."""
        place = str(self.directory)
        own = {client.process.pid for client in self.clients}
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                named = any(place in word for word in process.cmdline())
                works = process.name() == "postgres" and process.cwd().startswith(place)
                if (named or works) and (clients or process.pid not in own):
                    found.append(process)
        return found

    def postgres(self) -> list[psutil.Process]:
        """The database's processes, the first one first."""
        found = [process for process in self.processes(clients=False) if _is_postgres(process)]
        return sorted(found, key=lambda process: process.pid not in (self._postmaster(), None))

    def kill(self, processes: Iterable[psutil.Process], number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to processes of the directory."""
        for process in processes:
            with suppress(psutil.Error):
                process.send_signal(number)

    def servers(self) -> list[psutil.Process]:
        """The clients' servers that run."""
        found: list[psutil.Process] = []
        for client in self.living():
            if (pid := client.server()) is not None:
                with suppress(psutil.Error):
                    found.append(psutil.Process(pid))
        return found

    async def power_cut(self) -> None:
        """All of them at once, and again what had been started meanwhile."""
        while left := self.processes():
            self.kill(left)
            await asyncio.sleep(0.01)
        for client in self.clients:
            assert client.listening is not None
            await client.listening

    def logs(self, words: Sequence[str]) -> list[str]:
        """Lines of the servers' logs that hold one of the words."""
        found: list[str] = []
        for log in sorted(self.directory.glob("*.log")):
            lines = log.read_text("utf-8", "replace").splitlines()
            found += [f"{log.name}: {line}" for line in lines if any(word in line for word in words)]
        return found

    async def remove(self, *, keep: bool) -> None:
        """End what is left, and the directory unless somebody should look at it."""
        await self.power_cut()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _postmaster(self) -> int | None:
        with suppress(OSError, ValueError, IndexError):
            return int((self.data / "postgres" / "postmaster.pid").read_text().split()[0])
        return None


@asynccontextmanager
async def estate() -> AsyncGenerator[Estate]:
    """A fresh data directory; kept where something went wrong."""
    for module in ("muniment_storage_postgres", "muniment_transport_mcp"):
        if find_spec(module) is None:
            not_run(f"{module} is not installed")
    if not Path("/proc/self/status").exists():
        not_run("this system does not tell where its processes work")
    made = Estate()
    failed = True
    try:
        yield made
        assert made.logs(["Traceback"]) == []
        failed = False
    finally:
        if failed:
            say(f"see {made.directory}")
        await made.remove(keep=failed)


def say(words: str) -> None:
    """Tell who watches a long run."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {words}\n")
    sys.stderr.flush()


def _is_postgres(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == "postgres"
    return False


def _shown(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} {' '.join(process.cmdline())[:160]} ({process.status()})"
    return f"{process.pid}"
