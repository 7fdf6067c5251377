"""The embedded server: shared by processes, stopped by the last, recovered after a kill, refused in a wrong place."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from muniment.errors import ConfigurationError
from muniment.ports import Audience, PluginContext
from muniment_storage_postgres import directories
from muniment_storage_postgres.storage import create

SCRIPT = Path(__file__).with_name("client_process.py")
Soon = Callable[..., Awaitable[bool]]


class Client:
    """A process of ``client_process``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, data_dir: Path) -> Client:
        """Started, not waited for."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                str(SCRIPT),
                str(data_dir),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def hear(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 60)).decode().strip()

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
        return await asyncio.wait_for(self.process.wait(), 60)


def server_pid(data_dir: Path) -> int | None:
    """The running server's process."""
    pid_file = data_dir / "postgres" / "postmaster.pid"
    return int(pid_file.read_text().split()[0]) if pid_file.exists() else None


async def test_two_processes_share_one_server_and_the_last_stops_it(fresh_dir: Path) -> None:
    """Two that start at once both work, and see each other's writes; nothing runs after both ended."""
    first, second = await asyncio.gather(Client.start(fresh_dir), Client.start(fresh_dir))
    assert [await first.hear(), await second.hear()] == ["open", "open"]
    assert await first.ask("write one") == "written"
    assert await second.ask("count") == "1"
    pid = server_pid(fresh_dir)
    assert await first.end() == 0
    assert server_pid(fresh_dir) == pid
    assert await second.ask("write two") == "written"
    assert await second.end("leave") == 0
    assert server_pid(fresh_dir) is None


async def test_a_killed_client_does_not_keep_the_server_for_ever(fresh_dir: Path) -> None:
    """The lock of a process that was killed is free, so the next clean end stops the server."""
    killed = await Client.start(fresh_dir)
    assert await killed.hear() == "open"
    assert await killed.ask("write one") == "written"
    killed.process.kill()
    await killed.process.wait()
    assert server_pid(fresh_dir) is not None
    clean = await Client.start(fresh_dir)
    assert await clean.hear() == "open"
    assert await clean.ask("count") == "1"
    assert await clean.end() == 0
    assert server_pid(fresh_dir) is None


async def test_a_recycled_process_id_is_not_taken_for_the_server(fresh_dir: Path) -> None:
    """A lock file that names a process which is no PostgreSQL does not keep a server from starting."""
    client = await Client.start(fresh_dir)
    assert await client.hear() == "open"
    assert await client.ask("write one") == "written"
    pid_file = fresh_dir / "postgres" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    os.kill(int(lines[0]), signal.SIGKILL)
    client.process.kill()
    await client.process.wait()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    again = await Client.start(fresh_dir)
    assert await again.hear() == "open"
    assert await again.ask("count") == "1"
    assert await again.end() == 0


async def test_a_directory_of_other_files_is_refused(tmp_path: Path) -> None:
    """A directory that is no data directory stays as it is."""
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "diary.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="holds other files"):
        await create(PluginContext("embedded:", tmp_path)).open()
    assert [entry.name for entry in (tmp_path / "postgres").iterdir()] == ["diary.txt"]


async def test_a_directory_of_another_postgresql_is_refused(tmp_path: Path) -> None:
    """Data of another major version are named, with the way out."""
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("14\n")
    with pytest.raises(ConfigurationError, match=r"PostgreSQL 14.*pg_dump"):
        await create(PluginContext("embedded:", tmp_path)).open()


async def test_a_file_is_refused(tmp_path: Path) -> None:
    """A file in the place of the data directory is named."""
    (tmp_path / "postgres").write_text("")
    with pytest.raises(ConfigurationError, match="is a file"):
        await create(PluginContext("embedded:", tmp_path)).open()


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: what root may not do is tested as root")
def test_root_opens_nobodys_home() -> None:
    """As root, a directory below a home is refused before anything is made there."""
    with pytest.raises(ConfigurationError, match="/var/lib/muniment"):
        directories.check_place(Path.home() / "never-made" / "postgres")
    assert not (Path.home() / "never-made").exists()


async def test_a_server_that_was_killed_is_started_again(fresh_dir: Path) -> None:
    """The same storage goes on after kill -9 of its server, and can be closed right after another one."""
    storage = create(PluginContext("embedded:", fresh_dir, {"partitions": 1}))
    await storage.open()
    try:
        pid = server_pid(fresh_dir)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.5)  # the connections outlive the first process for a moment, and still answer
        assert await storage.find_projects(Audience("ann"), "none") == []
        again = server_pid(fresh_dir)
        assert again is not None
        assert again != pid
        os.kill(again, signal.SIGKILL)
    finally:
        await storage.close()
    await storage.open()
    await storage.close()
    assert server_pid(fresh_dir) is None
