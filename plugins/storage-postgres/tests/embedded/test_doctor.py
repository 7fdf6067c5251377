"""What ``muniment doctor`` says of an embedded server, in the states that it is found in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

from muniment.hookspecs import DoctorContext
from muniment_storage_postgres import muniment_doctor


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
    assert f"runs as process {place.server()}, used by 2 (processes " in said
    assert {str(one.process.pid) for one in (first, second)} <= set(said.replace(")", ",").replace(",", " ").split())
    assert await second.end() == 0
    assert "used by 1" in told(place.data_dir)[1]
    server = psutil.Process(place.server())
    server.kill()
    psutil.wait_procs([server], timeout=10)
    assert "its server was killed, the next start recovers; used by 1" in told(place.data_dir)[1]
    assert await first.ask("count") == "0"
    assert await first.end() == 0
    assert "its server is stopped; used by nobody" in told(place.data_dir)[1]


async def test_a_start_that_goes_on_is_told(place: Any) -> None:
    """Doctor waits for nobody for long."""
    client = await place.opened()
    with FileLock(place.beside / "lock"):
        assert told(place.data_dir) == (True, "a server may keep its data there\nanother process is starting or "
                                        "stopping the server just now")  # fmt: skip
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
