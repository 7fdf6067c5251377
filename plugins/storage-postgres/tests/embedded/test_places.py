"""Where an embedded server keeps its data: any name works, nothing of others is touched, a refusal leaves nothing."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from muniment.errors import ConfigurationError
from muniment.ports import PluginContext
from muniment_storage_postgres import directories, embedded
from muniment_storage_postgres.storage import create

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="not run: what root may not do is tested as root")


async def refused(data_dir: Path, words: str) -> None:
    """Opening is refused with these words."""
    with pytest.raises(ConfigurationError, match=words):
        await create(PluginContext("embedded:", data_dir)).open()


async def test_a_directory_of_other_files_is_refused(tmp_path: Path) -> None:
    """A directory that is no data directory stays as it is, and so does the one around it."""
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "diary.txt").write_text("mine")
    await refused(tmp_path, "holds other files")
    assert [entry.name for entry in (tmp_path / "postgres").iterdir()] == ["diary.txt"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["postgres"]


async def test_a_directory_of_another_postgresql_is_refused(tmp_path: Path) -> None:
    """Data of another major version are named, with the way out."""
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("14\n")
    await refused(tmp_path, r"PostgreSQL 14.*pg_dump")
    assert [entry.name for entry in tmp_path.iterdir()] == ["postgres"]


async def test_a_file_is_refused(tmp_path: Path) -> None:
    """A file in the place of the data directory is named."""
    (tmp_path / "postgres").write_text("")
    await refused(tmp_path, "is a file")


async def test_a_directory_that_is_open_to_others_is_refused(tmp_path: Path) -> None:
    """PostgreSQL would refuse it in other words; the command that mends it is named."""
    (tmp_path / "postgres").mkdir(mode=0o755)
    (tmp_path / "postgres" / "PG_VERSION").write_text("18\n")
    await refused(tmp_path, r"mode 0755.*chmod 700")


@as_root
def test_root_opens_nobodys_home() -> None:
    """As root, a directory below a home is refused before anything is made there."""
    with pytest.raises(ConfigurationError, match="/var/lib/muniment"):
        directories.check_place(Path.home() / "never-made" / "postgres")
    assert not (Path.home() / "never-made").exists()


def give_data_directory(data_dir: Path, owner: int) -> None:
    """All of it is the other user's."""
    (data_dir / "postgres").mkdir(mode=0o700)
    (data_dir / "postgres" / "PG_VERSION").write_text("18\n")
    for place in (data_dir / "postgres" / "PG_VERSION", data_dir / "postgres", data_dir):
        os.chown(place, owner, -1)


def give_data(data_dir: Path, owner: int) -> None:
    """A directory that was taken over already, around data of the other user's."""
    give_data_directory(data_dir, owner)
    for place in (data_dir / "postgres", data_dir):
        os.chown(place, 0, -1)


def give_parent(data_dir: Path, owner: int) -> None:
    """Nothing is there yet but the other user's directory."""
    os.chown(data_dir, owner, -1)


@as_root
@pytest.mark.parametrize("give", [give_data_directory, give_data, give_parent])
async def test_root_takes_nobodys_data(fresh_dir: Path, give: Callable[[Path, int], None]) -> None:
    """As root, what belongs to another user is refused by that user's name, before anything of it is touched."""
    give(fresh_dir, pwd.getpwnam("nobody").pw_uid)

    def look() -> list[tuple[Path, int, int]]:
        return [(at, at.stat().st_uid, at.stat().st_mode) for at in (fresh_dir, *sorted(fresh_dir.rglob("*")))]

    before = look()
    await refused(fresh_dir, "belongs to the user nobody.*run Muniment as the user nobody")
    assert look() == before


@pytest.mark.parametrize(
    "name",
    [
        "a&touch PWNED&b",
        "sp ace, 'q' \"d\" ü ; `touch PWNED` $(touch PWNED) $HOME %s #\\",
        "deep" * 40,
    ],
)
def test_any_name_of_a_directory_works(fresh_dir: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is a path, never a command, and may be longer than a socket's; both starts of a server use it."""
    fresh_dir.chmod(0o777)
    monkeypatch.chdir(fresh_dir)
    server = embedded.server(fresh_dir / name / "postgres")
    for _ in range(2):
        assert "host=" in server.start()
        server.stop()
    assert list(fresh_dir.rglob("PWNED")) == []
    assert [entry.name for entry in fresh_dir.iterdir()] == [name]
    assert not (fresh_dir / name / "postgres" / "postmaster.pid").exists()


def test_a_name_that_cannot_work_is_refused_before_anything_is_made(
    fresh_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain path to a link needs a plain temporary directory."""
    (odd := fresh_dir / "t m p").mkdir()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    with pytest.raises(ConfigurationError, match="TMPDIR"):
        embedded.server(fresh_dir / "sp ace" / "postgres").start()
    assert not (fresh_dir / "sp ace").exists()
