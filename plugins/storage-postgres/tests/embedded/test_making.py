"""A first start that is killed: the data directory comes to be whole or not at all, and the next start works."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from muniment_storage_postgres import embedded, making, postmaster

Soon = Callable[..., Awaitable[bool]]


@pytest.mark.parametrize(
    ("moment", "everything"), [("PG_VERSION", True), ("pg_control", False), ("postmaster.pid", True), ("log", False)]
)
async def test_killed_at_moments_of_a_first_start(new_place: Any, soon: Soon, moment: str, everything: bool) -> None:
    """Killed with -9, alone or with all that it had started, while its server's data are made: nothing is left running,
    and the next start makes them anew."""
    client = await new_place.start()
    assert await soon(lambda: any(new_place.directory.glob(f".making-*/**/{moment}")), 120)
    if everything:
        new_place.kill_all()
    await client.kill()
    assert await new_place.empty()
    again = await new_place.opened()
    assert await again.ask("count") == "0"
    assert await again.end() == 0
    assert list(new_place.directory.glob(".ma*")) == []


@pytest.mark.parametrize("moved", [0, 7, 1000])
async def test_killed_while_the_data_are_moved_up(place: Any, moved: int) -> None:
    """What was made and partly moved is moved by the next start."""
    made = place.directory / ".made"
    aside = place.data_dir / "aside"
    place.directory.rename(aside)
    place.directory.mkdir(mode=0o700)
    aside.rename(made)
    for entry in sorted(entry for entry in made.iterdir() if entry.name != "PG_VERSION")[:moved]:
        entry.rename(place.directory / entry.name)
    client = await place.opened()
    assert await client.ask("write one") == "written"
    assert await client.end() == 0
    assert not made.exists()


def test_only_what_was_made_here_is_removed(new_place: Any) -> None:
    """What a start that failed had begun goes; the directory stays, and so does what lies beside."""
    new_place.directory.mkdir()
    (new_place.directory / "log").write_text("mine")

    def fail(begun: Path) -> None:
        (begun / "base").mkdir()
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        making.make(new_place.directory, fail, postmaster.stop)
    assert [entry.name for entry in new_place.directory.iterdir()] == ["log"]


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root's server runs as another account")
def test_a_directory_that_somebody_closes_meanwhile(new_place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test runners close their directories when they start, and root's server needs those above its data open: what
    failed for that is begun again, and where it fails for good its cause is told, though there is no log."""
    over = threading.Event()

    def close(times: int) -> None:
        while times and not over.wait(0.001):
            if new_place.data_dir.stat().st_mode & 0o077:
                new_place.data_dir.chmod(0o700)
                times -= 1

    def started(times: int) -> str:
        closing = threading.Thread(target=close, args=(times,))
        closing.start()
        try:
            return embedded.server(new_place.directory).start()
        finally:
            over.set()
            closing.join()
            over.clear()

    with pytest.raises(Exception, match=f"chmod o.x {new_place.data_dir}"):
        started(-1)
    assert "host=" in started(1)
    embedded.server(new_place.directory).stop()


async def test_many_that_start_at_once_make_one_directory(new_place: Any) -> None:
    """One of them makes the data, the others wait for it; half of them are killed meanwhile."""
    clients = [await new_place.start() for _ in range(6)]
    await asyncio.sleep(0.5)
    for client in clients[::2]:
        await client.kill()
    assert [await client.hear() for client in clients[1::2]] == ["open"] * 3
    for client in clients[1::2]:
        assert await client.end() == 0
    assert await new_place.empty(5)
