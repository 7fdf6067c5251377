"""Root and the embedded server: refused outside containers unless it is asked for by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muniment.errors import ConfigurationError
from muniment.ports import PluginContext
from muniment_storage_postgres import accounts, settings
from muniment_storage_postgres.storage import create

MACHINE = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n28 27 0:25 / /var/lib/x rw - overlay overlay rw\n"


def _on_a_machine(_root: Path) -> bool:
    return False


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a system that is no container's."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, content in {
        "proc/1/environ": "HOME=/\0TERM=linux\0",
        "proc/1/cgroup": "0::/init.scope\n",
        "proc/self/mountinfo": MACHINE,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".dockerenv", ""),
        ("run/.containerenv", ""),
        ("run/systemd/container", "systemd-nspawn"),
        ("proc/1/environ", "HOME=/root\0container=podman\0"),
        ("proc/1/cgroup", "12:pids:/kubepods/besteffort/pod1\n"),
        ("proc/self/mountinfo", "27 1 0:26 / / rw,relatime - overlay overlay rw,lowerdir=/l\n"),
    ],
)
def test_containers_are_known(system: Path, name: str, content: str) -> None:
    """By what their engines leave, one mark at a time; a machine has none of them."""
    assert not accounts.in_container(system)
    (system / name).parent.mkdir(parents=True, exist_ok=True)
    (system / name).write_text(content)
    assert accounts.in_container(system)


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: what root may not do is tested as root")
def test_root_is_refused_outside_containers(system: Path) -> None:
    """The refusal says what would be done and how it is allowed; in a container, and where it is allowed, it is not
    there."""
    with pytest.raises(ConfigurationError, match=r"pgserver.*as_root = true in the table .*MUNIMENT_PLUGINS="):
        accounts.check(False, system)
    accounts.check(True, system)
    (system / ".dockerenv").touch()
    accounts.check(False, system)


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: what root may not do is tested as root")
async def test_the_refusal_comes_before_anything_is_made(new_place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage asks for root's permission first, and takes the option for it."""
    monkeypatch.setattr(accounts, "in_container", _on_a_machine)
    with pytest.raises(ConfigurationError, match="as_root"):
        await create(PluginContext("embedded:", new_place.data_dir)).open()
    assert list(new_place.data_dir.iterdir()) == []
    allowed = settings.parse(PluginContext("embedded:", new_place.data_dir, {"as_root": True})).options
    accounts.check(allowed.as_root)
