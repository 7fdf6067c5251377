"""A wait for another process, which is told: whom it is for and how long it still goes on.

Every wait of this plugin for somebody else speaks by a ``Wait``. Here is also who holds a lock, and what to do about a
process that does not get on; no process is touched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

_log = logging.getLogger(__name__)

_PROMPT = 3.0
"""Seconds after which a wait is told first; each later time it is told when it has become twice as long."""


class Wait:
    """A wait of at most ``patience`` seconds, or for as long as it takes."""

    def __init__(self, patience: float | None = None) -> None:
        self.patience = patience
        self._begun = time.monotonic()
        self._next = _PROMPT

    @property
    def seconds(self) -> float:
        """How long it has gone on."""
        return time.monotonic() - self._begun

    @property
    def left(self) -> float:
        """Seconds that it may still go on."""
        return float("inf") if self.patience is None else self.patience - self.seconds

    @property
    def is_due(self) -> bool:
        """Whether it should be told now."""
        return self.seconds >= self._next

    def tell(self, whom: str) -> None:
        """Warn that ``whom`` is being waited for."""
        waited = self.seconds
        self._next = 2 * waited
        bound = "for as long as it takes" if self.patience is None else f"for {max(self.left, 0):.0f} s more at most"
        _log.warning("waiting for %s; %.0f s so far, %s", whom, waited, bound)


def holders(lock: Path) -> tuple[int, ...]:
    """The processes that hold a lock file, as far as this system tells its user."""
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for opened in (process / "fd").iterdir():
                held = opened.readlink() == lock and "lock:" in (process / "fdinfo" / opened.name).read_text()
                if held:
                    found.add(int(process.name))
    return tuple(sorted(found))


def named(pids: Sequence[int]) -> str:
    """Processes, with their programs and whether they are stopped."""
    return " and ".join(map(_named, pids)) or "another process"


def remedy(pids: Sequence[int], lock: Path) -> str:
    """What to do about processes that hold a lock and do not get on."""
    if not pids:
        return f"end that process (`fuser {lock}` names it)"
    numbers = " ".join(map(str, pids))
    if any(map(is_stopped, pids)):
        return f"let it go on (`kill -CONT {numbers}`) or end it (`kill -KILL {numbers}`)"
    return f"wait until it is done, or end it (`kill {numbers}`, and `kill -KILL {numbers}` where that does nothing)"


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, and does nothing until it is let go on."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def _named(pid: int) -> str:
    with suppress(psutil.Error):
        return f"process {pid} ({psutil.Process(pid).name()}{', which is stopped' if is_stopped(pid) else ''})"
    return f"process {pid}"
