"""The README: its requests are sent as they are written, and its tables are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from muniment_transport_http.routes import ROUTES
from muniment_transport_http.transport import Options

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
COMMANDS: list[str] = re.findall(r"```sh\n(.+?)\n```", README, re.DOTALL)
ADDRESS = "http://127.0.0.1:8765"

STATUSES = ("201", None, "200", "200", "200", "200", None, None, None, None)
"""What each request that shows its status is answered with."""


@contextmanager
def serving(directory: Path) -> Generator[str]:
    """The server of the README, in memory and at a port of its own; its address."""
    command = COMMANDS[0].removesuffix(" &").replace(ADDRESS.removeprefix("http://"), "127.0.0.1:0").split()
    assert command[0] == "muniment"
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}
    log = directory / "log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, "--storage", "memory:", "--embedder", "hash:"],
            cwd=directory,
            env=inherited,
            stdin=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"serving HTTP at (\S+)", log.read_text(encoding="utf-8"))):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield found[1]
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_the_requests_work(tmp_path: Path) -> None:
    """Each in its order, word for word but for the port: what it answers is what the text says."""
    said: list[str] = []
    with serving(tmp_path) as address:
        memory = ""
        for command, status in zip(COMMANDS[1:], STATUSES, strict=True):
            asked = command.replace(ADDRESS, address)
            done = subprocess.run(
                ["sh", "-c", asked],
                env={**os.environ, "ID": memory, "no_proxy": "127.0.0.1"},
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            )
            said.append(done.stdout)
            found = re.match(r"HTTP/1\.1 (\d+)", done.stdout)
            assert (found and found[1]) == status, done.stdout
            assert '"code"' not in done.stdout
            if not memory and (location := re.search(r"location: /v1/memories/(\S+)", done.stdout)):
                memory = location[1]

    written, found, listed, read, patched, merged, shared, history, deleted, restored = said
    assert 'etag: "v1"' in written
    assert memory in found
    assert memory in listed
    assert "on Tuesdays" in read
    assert 'etag: "v2"' in patched
    assert 'etag: "v3"' in merged
    assert '"action":"project.share"' in shared
    assert history.count('"action"') == 3
    assert '"version":4' in deleted
    assert '"version":5' in restored


def test_every_operation_is_listed() -> None:
    """The table is the route table."""
    rows = re.findall(r"^\| `(\w+\.\w+)` \| `(\w+) (\S+)` \|$", README, re.MULTILINE)

    assert rows == [(route.operation.name, route.method, route.path) for route in ROUTES]


def test_every_setting_is_listed() -> None:
    """The table of settings is complete."""
    table = README.split("key of `[plugins.transport-http]`")[1].split("\n\n")[0]

    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(Options.model_fields)
