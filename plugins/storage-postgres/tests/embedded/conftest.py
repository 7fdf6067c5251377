"""Processes that use an embedded server, started as whoever runs the tests or as an ordinary user."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from muniment.conformance.pytest_front import not_run
from muniment_storage_postgres import postmaster

SCRIPT = Path(__file__).with_name("client_process.py")
NOBODY = 65534
IDLE = "autovacuum = off\nwal_writer_delay = 10s\nbgwriter_delay = 10s\n"
HOLD = "import sys, filelock\nwith filelock.FileLock(sys.argv[1]):\n    print('held', flush=True)\n    sys.stdin.read()"


class Client:
    """A process of ``client_process``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, data_dir: Path, *, before: Sequence[str] = (), apart: bool = False) -> Client:
        """Started, not waited for; ``before`` is a command that runs the one that follows it."""
        return cls(
            await asyncio.create_subprocess_exec(
                *(*before, sys.executable, str(SCRIPT), str(data_dir)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=apart,
            )
        )

    async def hear(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 120)).decode().strip()

    async def ask(self, order: str) -> str:
        """Its answer to an order."""
        self.tell(order)
        return await self.hear()

    def tell(self, order: str) -> None:
        """Give an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n".encode())

    async def end(self, order: str = "close") -> int:
        """Its exit status after a last order."""
        self.tell(order)
        return await asyncio.wait_for(self.process.wait(), 120)

    async def kill(self) -> None:
        """As the system kills one that takes too much memory."""
        self.process.kill()
        await self.process.wait()


class Place:
    """A data directory, the processes that use it, and what runs in it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.directory = data_dir / "postgres"
        self.beside = data_dir / ".postgres-muniment"
        self.clients: list[Client] = []

    async def start(self, *, before: Sequence[str] = (), apart: bool = False) -> Client:
        """A process, not waited for; ``before`` is a command that runs another, ``apart`` gives it a group."""
        self.clients.append(await Client.start(self.data_dir, before=before, apart=apart))
        return self.clients[-1]

    async def opened(self, **how: Any) -> Client:
        """A process that has opened the storage."""
        client = await self.start(**how)
        assert await client.hear() == "open"
        return client

    async def opened_idle(self) -> Client:
        """A process that has opened the storage, whose server writes nothing but what it is asked to. Others write in
        the background while their directory is deleted: a file is left then, or they end before they are looked at."""
        with (self.directory / "postgresql.auto.conf").open("a") as settings:
            settings.write(IDLE)
        return await self.opened()

    def server(self) -> int | None:
        """The process of the server that runs."""
        found = postmaster.running(self.directory.resolve())
        return None if found is None else found.pid

    def processes(self) -> list[psutil.Process]:
        """Whatever runs for the directory and is no client: the server's processes, what started it, who watches."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                named = any(str(self.data_dir) in word for word in process.cmdline())
                works = process.name() == "postgres" and Path(process.cwd()).is_relative_to(self.data_dir)
                if (named or works) and process.pid not in [client.process.pid for client in self.clients]:
                    found.append(process)
        return found

    def kill_all(self) -> None:
        """As a power cut would, of all that runs for the directory."""
        for client in self.clients:
            if client.process.returncode is None:
                client.process.kill()
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()

    async def empty(self, seconds: float = 60.0) -> bool:
        """Whether nothing runs for the directory any more, or soon will not."""
        for _ in range(int(seconds * 20)):
            if not self.processes():
                return True
            await asyncio.sleep(0.05)
        return False


@pytest.fixture(scope="session")
def made_data() -> Generator[Path]:
    """A data directory in which a process has made the tables; it is copied, and never used itself."""
    data_dir = Path(tempfile.mkdtemp(prefix="mt-"))
    command = [sys.executable, str(SCRIPT), str(data_dir)]
    told = subprocess.run(command, input="close\n", stdout=subprocess.PIPE, text=True, timeout=240)
    assert told.stdout.splitlines() == ["open", "closed"]
    yield data_dir / "postgres"
    shutil.rmtree(data_dir, ignore_errors=True)


@pytest.fixture
async def new_place(fresh_dir: Path) -> AsyncGenerator[Place]:
    """A place without a data directory; nothing of it runs when the test is over."""
    made = Place(fresh_dir)
    yield made
    for client in made.clients:
        if client.process.returncode is None:
            await client.kill()
    if not await made.empty():
        made.kill_all()
        pytest.fail("something was left running")


@pytest.fixture
def place(new_place: Place, made_data: Path) -> Place:
    """A place with a data directory in which the tables are made, and nothing else is."""
    new_place.data_dir.chmod(0o755)
    subprocess.run(["cp", "--archive", str(made_data), str(new_place.directory)], check=True)
    return new_place


@contextmanager
def held(lock: Path) -> Generator[int]:
    """While another process holds a lock and does nothing else; that process."""
    lock.parent.mkdir(exist_ok=True)
    pipe = subprocess.PIPE
    with subprocess.Popen((sys.executable, "-c", HOLD, str(lock)), stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder.pid
        finally:
            holder.kill()


@pytest.fixture(name="held")
def held_fixture() -> Callable[[Path], AbstractContextManager[int]]:
    """``held`` for tests."""
    return held


@cache
def _as_nobody() -> tuple[str, ...] | None:
    """What runs a command as an ordinary user. Where that user may not read this Python's files, it gets the right to
    read what it likes, and no other."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        return None
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    probe = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import json, psycopg'], check=True)"
    for rights in ((), ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")):
        tried = (*user, *rights, sys.executable, "-c", probe)
        if subprocess.run(tried, capture_output=True).returncode == 0:
            return (*user, *rights)
    return None


@pytest.fixture
def as_ordinary(fresh_dir: Path) -> Sequence[str]:
    """What runs a command as an ordinary user, to whom the test's directory belongs."""
    found = _as_nobody()
    if found is None:
        not_run("there is no way to run a process as an ordinary user here; install util-linux")
    if os.geteuid() == 0:
        subprocess.run(["chown", "--recursive", f"{NOBODY}:{NOBODY}", str(fresh_dir)], check=True)
    return found or ()
