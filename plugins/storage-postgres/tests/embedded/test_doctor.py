"""What ``muniment doctor`` says of an embedded server, in the states that it is found in."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from muniment.errors import StorageUnavailable
from muniment.hookspecs import DoctorContext
from muniment.ports import PluginContext
from muniment_storage_postgres import doctor, muniment_doctor
from muniment_storage_postgres.storage import create


def told(data_dir: Path) -> tuple[bool, str]:
    """Whether all is well, and all that is said."""
    found = muniment_doctor(DoctorContext(storage="embedded:", embedder="none", data_dir=str(data_dir)))
    return all(one.ok for one in found), "\n".join(one.detail for one in found)


async def test_nothing_is_made_by_looking(new_place: Any) -> None:
    """A directory that nobody has used stays as it is."""
    assert told(new_place.data_dir) == (True, "a server may keep its data there\nnobody has used it yet; the first "
                                        "start makes the data")  # fmt: skip
    assert list(new_place.data_dir.iterdir()) == []


async def test_who_uses_the_server_is_told(place: Any) -> None:
    """A running server with its users, one whose users were killed, one that was killed, and one that is stopped."""
    first, second = await place.opened(), await place.opened()
    well, said = told(place.data_dir)
    assert well
    assert f"runs as process {place.server()} (postgres), used by 2 (processes " in said
    assert {str(one.process.pid) for one in (first, second)} <= set(said.replace(")", ",").replace(",", " ").split())
    assert await second.end() == 0
    assert "used by 1" in told(place.data_dir)[1]
    server = psutil.Process(place.server())
    server.kill()
    psutil.wait_procs([server], timeout=10)
    killed = f"its server, process {server.pid}, was killed or crashed without a shutdown; the next start recovers"
    assert killed in told(place.data_dir)[1]
    assert await first.ask("count") == "0"
    assert await first.end() == 0
    assert "its server is stopped, and was shut down cleanly; used by nobody" in told(place.data_dir)[1]


async def test_what_was_found_is_told_before_it_is_mended(place: Any) -> None:
    """After a power cut: that the server was killed, which processes were its users, and then what was done."""
    client = await place.opened()
    server = place.server()
    place.kill_all()
    await client.process.wait()
    command = ("-m", "muniment", "doctor", "--data-dir", str(place.data_dir), "--embedder", "none")
    done = await asyncio.to_thread(subprocess.run, (sys.executable, *command), capture_output=True, text=True)
    assert done.returncode == 0, done
    sentences = (
        f"process {client.process.pid} was killed while using it, and not counted out; that is done now",
        f"its server, process {server}, was killed or crashed without a shutdown; the next start recovers what",
        "storage embedded:: server PostgreSQL",
        "it was started again, and has recovered what was committed, within",
        "its server is stopped, and was shut down cleanly; used by nobody",
    )
    found = [done.stdout.find(sentence) for sentence in sentences]
    assert found == sorted(found), done.stdout
    assert found[0] > 0, done.stdout
    assert done.stdout.count("a server may keep its data there") == 1


async def test_a_server_that_crashed_and_cleaned_up_is_told(place: Any) -> None:
    """An immediate shutdown removes the note of the server; the data themselves tell."""
    client = await place.opened()
    server = psutil.Process(place.server())
    await client.kill()
    server.send_signal(signal.SIGQUIT)
    psutil.wait_procs([server], timeout=20)
    assert await place.empty()
    assert "its server was killed or crashed without a shutdown" in told(place.data_dir)[1]


async def test_who_holds_the_lock_is_told(place: Any, monkeypatch: pytest.MonkeyPatch, held: Any) -> None:
    """Doctor waits for nobody for long, and not a second time where it opens the storage."""
    assert await (await place.opened()).end() == 0
    monkeypatch.setattr(doctor, "_PATIENCE", 0.5)
    with held(place.beside / "lock") as pid:
        well, said = told(place.data_dir)
        assert not well
        assert f"Process {pid} (" in said
        assert f"`kill {pid}`" in said
        begun = time.monotonic()
        with pytest.raises(StorageUnavailable, match=f"Process {pid} "):
            await create(PluginContext("embedded:", place.data_dir)).open()
        assert time.monotonic() - begun < 5
        assert told(place.data_dir) == (well, said)


async def test_a_deleted_directory_whose_server_runs_is_told(place: Any) -> None:
    """With its process."""
    client = await place.opened_idle()
    server = place.server()
    shutil.rmtree(place.directory)
    assert f"the directory was deleted while its server ran, as process {server}" in told(place.data_dir)[1]
    assert "it holds no data; the next start makes them" in told(place.data_dir)[1]
    assert await client.end() == 0


async def test_what_is_not_well_is_told(place: Any) -> None:
    """Interrupted data are no trouble; data of another version are."""
    assert await (await place.opened()).end() == 0
    (place.directory / "PG_VERSION").write_text("17\n")
    assert told(place.data_dir)[0] is False
    assert "made by PostgreSQL 17" in told(place.data_dir)[1]
    place.directory.rename(place.data_dir / "aside")
    (place.directory / ".making-0badcafe").mkdir(parents=True)
    assert told(place.data_dir) == (True, "a server may keep its data there\nmaking the data was interrupted; the "
                                    "next start makes them")  # fmt: skip
