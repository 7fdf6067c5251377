"""Every state in which a data directory cannot be used is told in a sentence with the remedy, and nothing runs then."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muniment.conformance.pytest_front import not_run
from muniment.errors import ConfigurationError, MunimentError, StorageUnavailable
from muniment.ports import Audience, PluginContext, Space
from muniment_storage_postgres.storage import PostgresStorage, create

SPACE = Space("test:8", "test", "test", 8, "mean", True, 100)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can mount what is needed")


def in_every_file_of(folder: str, pattern: str, content: bytes | None) -> Callable[[Path], None]:
    """Overwrites or removes files of a data directory."""

    def spoil(directory: Path) -> None:
        for file in (directory / folder).glob(pattern):
            if content is None:
                file.unlink()
            else:
                file.write_bytes(content)

    return spoil


def with_a_setting(line: str) -> Callable[[Path], None]:
    """Adds a line to the server's settings."""

    def spoil(directory: Path) -> None:
        with (directory / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"{line}\n")

    return spoil


def closed(directory: Path) -> None:
    """Nobody may enter a part of the data."""
    (directory / "global").chmod(0)


def open_to_a_group(directory: Path) -> None:
    """PostgreSQL itself would allow it."""
    directory.chmod(0o750)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(in_every_file_of("global", "pg_control", b"-" * 8192), "pg_control.*damaged.*backup", id="junk"),
        pytest.param(in_every_file_of("global", "pg_control", bytes(8192)), "pg_control.*damaged.*backup", id="zeros"),
        pytest.param(in_every_file_of("global", "pg_control", b""), "pg_control is damaged.*backup", id="emptied"),
        pytest.param(in_every_file_of("global", "pg_control", None), "pg_control is damaged or missing", id="missing"),
        pytest.param(in_every_file_of("pg_wal", "0*", None), "pg_wal is damaged or incomplete.*backup", id="no WAL"),
        pytest.param(in_every_file_of("", "PG_VERSION", b"19\n"), "made by PostgreSQL 19.*pg_dump", id="newer"),
        pytest.param(in_every_file_of("", "PG_VERSION", b""), "PG_VERSION is damaged", id="no version"),
        pytest.param(with_a_setting("no_such_setting = 1"), '"no_such_setting".*look at .*log', id="setting"),
        pytest.param(with_a_setting("huge_pages = on"), "gets no memory", id="memory"),
        pytest.param(closed, "permission denied", id="closed"),
        pytest.param(open_to_a_group, "mode 0750.*chmod 700", id="open to a group"),
    ],
)
async def test_a_spoiled_directory(place: Any, spoil: Callable[[Path], None], words: str) -> None:
    """The sentence names the file or the setting, and what to do; nothing is left running."""
    spoil(place.directory)
    with pytest.raises(MunimentError, match=words):
        await create(PluginContext("embedded:", place.data_dir)).open()
    assert await place.empty(5)


async def test_a_directory_that_may_not_be_written_to(new_place: Any, as_ordinary: Sequence[str]) -> None:
    """An ordinary user is told whose the directory is, and nothing is made."""
    new_place.data_dir.chmod(0o500)
    client = await new_place.start(before=as_ordinary)
    assert "cannot be used by this user (permission denied" in await client.hear()
    assert list(new_place.data_dir.iterdir()) == []


async def test_a_directory_of_another_user(place: Any, as_ordinary: Sequence[str]) -> None:
    """An ordinary user is told whose it is, and as whom to run."""
    if os.geteuid() != 0:
        not_run("giving a directory to another user needs root")
    os.chown(place.directory, 1, 1)
    client = await place.start(before=as_ordinary)
    assert "belongs to the user daemon, and an embedded PostgreSQL would run as this user" in await client.hear()


async def test_an_ordinary_user_s_server(new_place: Any, as_ordinary: Sequence[str]) -> None:
    """Without root there is no other account: sockets and data are closed to everybody else, and what is killed is
    stopped as well."""
    client = await new_place.opened(before=as_ordinary)
    assert await client.ask("write one") == "written"
    assert new_place.directory.stat().st_mode & 0o077 == 0
    assert (new_place.directory / ".s.PGSQL.5432").is_socket()
    await client.kill()
    assert await new_place.empty()
    again = await new_place.opened(before=as_ordinary)
    assert await again.ask("count") == "1"
    assert await again.end() == 0


@pytest.fixture
async def small_disk(new_place: Any) -> AsyncGenerator[Path]:
    """The test's data directory on a small disk of its own."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=160m,mode=755", "none", str(new_place.data_dir)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        not_run("this system lets nobody mount a disk")
    yield new_place.data_dir
    subprocess.run(["umount", "--lazy", str(new_place.data_dir)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    with (filling := disk / "filling").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"-" * 65536):
            pass
    assert shutil.disk_usage(disk).free < 65536
    return filling


@as_root
async def test_a_full_disk_at_the_first_start(small_disk: Path, new_place: Any) -> None:
    """It is called so, nothing is left, and the start works once there is room."""
    filling = fill(small_disk)
    with pytest.raises(StorageUnavailable, match="disk is full; free space"):
        await create(PluginContext("embedded:", small_disk)).open()
    filling.unlink()
    client = await new_place.opened()
    assert await client.end() == 0


@as_root
async def test_a_disk_that_fills_up(small_disk: Path, new_place: Any, writer: Any) -> None:
    """A write is refused as such, also by a server that does not survive it; what was acknowledged is there when there
    is room again."""
    storage: PostgresStorage = create(PluginContext("embedded:", small_disk, {"partitions": 2}))
    await storage.open()
    await storage.register_space(SPACE, np.eye(8, dtype=np.float32)[:2])
    acknowledged: list[str] = []
    refusals: list[str] = []
    filling = fill(small_disk)
    try:
        for number in range(400):
            try:
                await storage.apply(writer.create(f"m{number}", "word " * 2000, index=writer.index("word", ())))
                acknowledged.append(f"m{number}")
            except MunimentError as refusal:
                refusals.append(str(refusal))
                if len(refusals) == 3:
                    break
        assert refusals, "the disk did not fill up"
        assert any("disk is full" in refusal or "has a full disk" in refusal for refusal in refusals), refusals
        filling.unlink()
        for memory_id in acknowledged:
            assert await storage.load(Audience("ann"), memory_id) is not None
    finally:
        await storage.close()


async def test_a_file_in_the_place_of_a_data_directory(fresh_dir: Path) -> None:
    """It is called so, and stays as it is."""
    file = fresh_dir / "file"
    file.write_text("kept")
    with pytest.raises(ConfigurationError, match=r"file is a file, so .* cannot be in it; choose another"):
        await create(PluginContext("embedded:", file)).open()
    assert file.read_text() == "kept"


@as_root
@pytest.mark.parametrize("used", [False, True])
async def test_a_read_only_volume(place: Any, used: bool) -> None:
    """It is called so, before anything is started."""
    if used:
        assert await (await place.opened()).end() == 0
    if subprocess.run(["mount", "--bind", str(place.data_dir), str(place.data_dir)]).returncode != 0:
        not_run("this system lets nobody mount a disk")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place.data_dir)], check=True)
        with pytest.raises(MunimentError, match="read-only file system; mount it for writing"):
            await create(PluginContext("embedded:", place.data_dir)).open()
    finally:
        subprocess.run(["umount", "--lazy", str(place.data_dir)], check=True)
