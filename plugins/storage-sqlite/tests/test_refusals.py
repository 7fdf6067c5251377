"""What cannot be a storage's file is refused with its path and the remedy, and stays as it was."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from muniment import access
from muniment.errors import ConfigurationError, MunimentError, NotFound, StorageUnavailable
from muniment.ports import Audience, Create, Passages, PluginContext, Storage
from muniment_storage_sqlite.place import FILE, locate
from muniment_storage_sqlite.refusals import refusal
from muniment_storage_sqlite.schema import APPLICATION, STEPS
from muniment_storage_sqlite.storage import create

Opened = Callable[..., AbstractAsyncContextManager[Storage]]
Creation = Callable[[str, str], Create]
OWNER = "alice"
NOBODY = 65_534


def a_directory(path: Path) -> None:
    path.mkdir()


def a_text(path: Path) -> None:
    path.write_text("These are notes, and no database at all. " * 200, encoding="utf-8")


def another_program_s(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")


def a_newer_one(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")


def a_device(path: Path) -> None:
    path.symlink_to(os.devnull)


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (a_directory, f"memories.db/{FILE}"),
        (a_text, "name another file"),
        (another_program_s, "name another file"),
        (a_newer_one, "upgrade"),
        (a_device, "name another one"),
    ],
)
async def test_what_is_no_file_of_muniment_is_left_alone(
    path: Path, make: Callable[[Path], None], remedy: str, opened: Opened
) -> None:
    """The refusal names the path and the remedy, and not a byte is changed."""
    make(path)
    before = path.read_bytes() if path.is_file() else b""

    with pytest.raises(ConfigurationError) as refused:
        async with opened(path):
            pass

    assert str(path) in refused.value.message
    assert remedy in refused.value.message
    assert (path.read_bytes() if path.is_file() else b"") == before


async def test_a_directory_that_is_not_there_is_not_made_up(path: Path, opened: Opened) -> None:
    """A typing error in a path gives a refusal, not a new and empty storage."""
    with pytest.raises(ConfigurationError, match=r"create it, or name a file somewhere else"):
        async with opened(path.parent / "typo" / path.name):
            pass

    assert not (path.parent / "typo").exists()


async def test_a_directory_that_may_not_be_written_is_refused(path: Path, opened: Opened) -> None:
    """With the path and what to allow."""
    with without_rights(path.parent), pytest.raises(ConfigurationError, match=r"let this user write it") as refused:
        async with opened(path):
            pass

    assert str(path) in refused.value.message


async def test_a_file_that_may_not_be_written_is_refused(path: Path, opened: Opened) -> None:
    """When it is opened, before anything is read."""
    async with opened(path):
        pass
    path.chmod(0o400)
    with without_rights(path.parent), pytest.raises(ConfigurationError, match=r"let this user write it") as refused:
        async with opened(path):
            pass

    assert str(path) in refused.value.message


async def test_a_link_to_where_no_file_is_makes_it(path: Path, opened: Opened, creation: Creation) -> None:
    """The file is made where the link points, its owner's alone."""
    target = path.with_name("target.db")
    path.symlink_to(target)
    async with opened(path) as storage:
        await storage.apply(creation("m-1", "one"))

    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert path.is_symlink()


@pytest.mark.parametrize("spec", ["sqlite::memory:", "sqlite:~no-such-user-31f0c5/memories.db"])
def test_a_path_that_means_no_file_is_refused(spec: str, tmp_path: Path) -> None:
    """As soon as it is configured."""
    with pytest.raises(ConfigurationError, match=spec):
        create(PluginContext(spec=spec, data_dir=tmp_path))


@pytest.mark.parametrize("options", [{"busy_timout": 1}, {"busy_timeout": 0}, {"busy_timeout": "soon"}])
def test_an_option_that_means_nothing_is_refused(options: dict[str, object], tmp_path: Path) -> None:
    """By its name, before anything is opened."""
    with pytest.raises(ConfigurationError, match="busy_tim"):
        create(PluginContext(spec="sqlite:", data_dir=tmp_path, options=options))


async def test_a_file_that_another_process_keeps_locked_is_waited_for(
    path: Path, opened: Opened, creation: Creation
) -> None:
    """For so long as was asked; then the refusal says so. Reads go on, and so do writes once it is let go."""
    async with opened(path, busy_timeout=0.1) as storage:
        await storage.apply(creation("m-1", "one"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageUnavailable, match=r"locked by another process for more than 0\.1 s") as refused:
                await storage.apply(creation("m-2", "two"))
            assert await storage.load(Audience(OWNER), "m-1") is not None
        assert str(path) in refused.value.message
        assert (await storage.apply(creation("m-2", "two"))).version == 1


def test_a_full_disk_is_named(path: Path) -> None:
    """SQLite's own error for a file that may not grow becomes a refusal with the path and the remedy."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE rows (text TEXT)")
        connection.execute("PRAGMA max_page_count = 3")
        with pytest.raises(sqlite3.OperationalError) as full:
            connection.execute("INSERT INTO rows VALUES (?)", ("x" * 100_000,))

    made = refusal(full.value, path, wait=1.0)

    assert isinstance(made, StorageUnavailable)
    assert made.message.startswith(f"{path} cannot grow, its disk is full; free space")


async def test_a_storage_that_is_closed_says_so(path: Path, opened: Opened, creation: Creation) -> None:
    """Calls end in a refusal; it can be opened again, and closed twice."""
    async with opened(path) as storage:
        await storage.close()
        with pytest.raises(StorageUnavailable, match="not open"):
            await storage.apply(creation("m-1", "one"))
        await storage.open()
        assert (await storage.apply(creation("m-1", "one"))).version == 1
        await storage.close()


async def test_the_data_directory_is_made(tmp_path: Path, creation: Creation) -> None:
    """``sqlite:`` needs nothing; what it makes is its owner's alone."""
    data = tmp_path / "data" / "muniment"
    storage = create(PluginContext(spec="sqlite:", data_dir=data))
    try:
        await storage.open()
        await storage.apply(creation("m-1", "one"))
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in data.iterdir()}
    finally:
        await storage.close()

    assert modes[FILE] == 0o600
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


async def test_a_failure_inside_is_a_refusal(path: Path, opened: Opened, creation: Creation) -> None:
    """Nothing of SQLite's own leaves the plugin, and the failed write leaves nothing behind."""
    async with opened(path) as storage:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TRIGGER t BEFORE INSERT ON audit BEGIN SELECT raise(ABORT, 'no'); END")
        with pytest.raises(MunimentError) as refused:
            await storage.apply(creation("m-1", "one"))
        assert isinstance(refused.value, StorageUnavailable)
        assert await storage.load(Audience(OWNER), "m-1") is None


async def test_what_a_write_refers_to_must_be_there(path: Path, opened: Opened, creation: Creation) -> None:
    """A project or a space that is not there is named, and nothing is stored."""
    made = creation("m-1", "one")
    nowhere = replace(made, placement=access.project_placement("p-1"))
    passages = Passages("s-1", frozenset(), (), complete=True)
    async with opened(path) as storage:
        with pytest.raises(NotFound, match="p-1"):
            await storage.apply(nowhere)
        with pytest.raises(ConfigurationError, match="s-1 is not registered"):
            await storage.apply(replace(made, index=replace(made.index, passages=passages)))
        assert await storage.load(Audience(OWNER), "m-1") is None


@contextmanager
def without_rights(directory: Path) -> Generator[None]:
    """While it is entered, this process may not write in ``directory``; root becomes somebody else for that time."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    directory.chmod(0o500)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        directory.chmod(mode)


@pytest.mark.parametrize("named", ["a\0b.db", "a\ud800.db"])
def test_a_path_that_no_system_takes_is_refused(named: str, tmp_path: Path) -> None:
    """Before anything is looked for."""
    with pytest.raises(ConfigurationError, match="write another one"):
        locate(f"sqlite:{named}", tmp_path)


async def test_a_schema_that_is_no_text_is_damage(path: Path, opened: Opened) -> None:
    """Python's module cannot even decode what SQLite says of it."""
    async with opened(path):
        pass
    path.write_bytes(path.read_bytes().replace(b"team TEXT NOT NULL, share", b"team TEXT N\xf7T NULL, share"))
    with pytest.raises(ConfigurationError, match="damaged"):
        async with opened(path):
            pass


async def test_a_directory_that_a_link_points_into_is_named(path: Path, opened: Opened) -> None:
    """It is the one that is missing, not the link's own."""
    path.symlink_to(path.parent / "missing" / "memories.db")
    with pytest.raises(ConfigurationError, match="missing is no directory"):
        async with opened(path):
            pass
