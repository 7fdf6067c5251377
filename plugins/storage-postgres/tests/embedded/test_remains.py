"""What a killed server, or somebody else's, leaves in a data directory: numbers of processes are never believed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from muniment.conformance.pytest_front import not_run
from muniment_storage_postgres import embedded, postmaster
from muniment_storage_postgres.presence import Presence

Lines = list[str]


@pytest.fixture
async def killed(place: Any) -> Path:
    """The lock file of a server that was killed, with its users and all else; ``one`` had been written."""
    client = await place.opened()
    assert await client.ask("write one") == "written"
    kept = (place.directory / "postmaster.pid").read_bytes()
    place.kill_all()
    assert await place.empty()
    (place.directory / "postmaster.pid").write_bytes(kept)
    return place.directory / "postmaster.pid"


@pytest.fixture
async def strangers(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Callable[[str], Awaitable[int]]]:
    """Makes processes that have nothing to do with the directory: ``test`` this one, ``postgres`` one of that name,
    ``zombie`` one that has ended and that nobody waits for."""
    program = tmp_path_factory.mktemp("program") / "postgres"
    shutil.copy("/bin/sleep", program)
    started: list[asyncio.subprocess.Process] = []

    async def make(kind: str) -> int:
        if kind == "test":
            return os.getpid()
        if kind == "zombie":
            script = "import os, time; pid = os.fork(); pid or os._exit(0); print(pid, flush=True); time.sleep(600)"
            pipe = asyncio.subprocess.PIPE
            started.append(await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=pipe))
            assert started[-1].stdout is not None
            return int(await started[-1].stdout.readline())
        started.append(await asyncio.create_subprocess_exec(program, "600"))
        return started[-1].pid

    yield make
    for process in started:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("kind", ["test", "postgres", "zombie"])
async def test_a_recycled_process_id_is_not_taken_for_the_server(
    place: Any, killed: Path, strangers: Callable[[str], Awaitable[int]], kind: str
) -> None:
    """A lock file that names a process which lives as something else keeps no server from starting, and that process
    is left alone."""
    stranger = psutil.Process(await strangers(kind))
    _, *rest = killed.read_text().splitlines()
    killed.write_text("\n".join([str(stranger.pid), *rest]) + "\n")
    assert place.server() is None
    again = await place.opened()
    assert await again.ask("count") == "1"
    assert await again.end() == 0
    assert stranger.is_running()


async def test_the_memory_of_a_killed_server_stays_noted(place: Any, killed: Path) -> None:
    """What keeps two servers from the same data is PostgreSQL's own look at the shared memory that the file names."""
    before = killed.read_text().splitlines()
    postmaster.clear_remains(place.directory, place.directory)
    after = killed.read_text().splitlines()
    assert before[6].split() == after[6].split()
    assert not psutil.pid_exists(int(after[0]))


@pytest.mark.parametrize("rest", ["junk\n", "", "123\n/somewhere\n"])
async def test_a_damaged_pid_file_keeps_no_server_from_starting(
    place: Any, caplog: pytest.LogCaptureFixture, rest: str
) -> None:
    """Where no PostgreSQL works in the directory, what claims so is removed, and that is told."""
    server = embedded.server(place.directory)
    server.start()
    server.stop()
    (place.directory / "postmaster.pid").write_text(rest)
    server.start()
    server.stop()
    assert "postmaster.pid is damaged" in caplog.text


async def test_a_server_whose_place_of_work_is_hidden_is_known_by_its_start(place: Any) -> None:
    """Root in a container may not see where another account's processes work; a second process there joins, stops it
    as the last one, and a recycled number is seen through."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        not_run("taking the right to look at others from root needs root and util-linux")
    blind = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
    first = await place.opened(before=blind)
    server = place.server()
    second = await place.opened(before=blind)
    assert await second.ask("write one") == "written"
    assert await first.ask("count") == "1"
    assert place.server() == server
    assert await first.end() == 0
    os.kill(server, signal.SIGKILL)
    await asyncio.sleep(0.5)
    assert await second.ask("count") == "1"
    revived = place.server()
    assert revived not in (None, server)
    assert await second.end() == 0
    assert await place.empty(5)


async def test_a_server_of_another_container_is_left_alone(place: Any) -> None:
    """A server that answers, and is not among the processes that are seen, is refused in words, and goes on."""
    unshare = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    tried = await asyncio.create_subprocess_exec(*unshare, "true", stderr=asyncio.subprocess.DEVNULL)
    if await tried.wait() != 0:
        not_run("this user may not make a container's view of processes")
    here = await place.opened()
    server = place.server()
    there = await place.start(before=unshare)
    assert "cannot be seen from here" in await there.hear()
    assert place.server() == server
    assert await here.ask("count") == "0"
    assert await here.end() == 0


async def test_a_recycled_number_does_not_count_as_a_user(place: Any) -> None:
    """A user is counted by a lock and not by a number, so the file of one that was killed is no user, whoever has its
    number now."""
    client = await place.opened()
    dead = place.beside / f"user-{os.getpid()}-0badcafe"
    dead.touch(0o600)
    presence = Presence(place.directory)
    with presence.exclusive():
        assert presence.others() == (client.process.pid,)
    assert not dead.exists()
    dead.touch(0o600)
    assert await client.end() == 0
    assert await place.empty(5)
