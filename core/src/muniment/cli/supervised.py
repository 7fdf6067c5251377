"""Work that foreign code runs along with, in a child process, so that its end is believed only if it says so itself.

A plugin can end the process that judges it at any moment and with any exit code, such as by ``os._exit(0)``. The child
tells its exit code over a pipe once everything is written; without that there is none. It has the standard streams, the
terminal and with it Ctrl-C of its parent, and ends when its parent does.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import NoReturn

from muniment.errors import PluginError

LEAVING = 30
"""Whole seconds that a plugin's exit functions have."""


def supervised(what: str, work: Callable[[], int]) -> int:
    """The exit code of ``work``, as the command line gives it. Raises PluginError where its process ended before.

    ``what`` begins the refusal. Without ``fork`` the work is done in this process.
    """
    if not hasattr(os, "fork"):
        return work()
    (told, tell), (alive, living) = _pipe(), _pipe()
    _flush()
    child = os.fork()
    if child == 0:
        os.close(living)
        _be_child(work, tell, alive)
    os.close(tell)
    os.close(alive)
    try:
        with _interrupts_passed_on(child):
            _, status = os.waitpid(child, 0)
        os.set_blocking(told, False)
        with suppress(BlockingIOError):
            if code := os.read(told, 8):
                return int(code)
    finally:
        os.close(told)
        os.close(living)
    raise PluginError(
        f"{what}: the process that did it {_ended(os.waitstatus_to_exitcode(status))} before it was finished; "
        f"see what in the plugin, or in its target, ends the process."
    )


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are no standard streams, of which one may be closed: what is printed would go into it."""
    import fcntl

    ends = os.pipe()
    reading, writing = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    for end in ends:
        os.close(end)
    return reading, writing


def _ended(code: int) -> str:
    return f"ended with {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"


@contextmanager
def _interrupts_passed_on(child: int) -> Generator[None]:
    """While entered, Ctrl-C is the child's; its terminal sends it to both, anybody else to one of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _: object) -> None:
        if not _in_foreground():
            os.kill(child, number)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_foreground() -> bool:
    for stream in range(3):
        with suppress(OSError):
            if os.tcgetpgrp(stream) == os.getpgrp():
                return True
    return False


def _be_child(work: Callable[[], int], tell: int, alive: int) -> NoReturn:
    """Do the work, tell its exit code and leave, although a worker thread may hang.

    The parent's exit functions are the parent's; those of a plugin stop its servers and remove its files.
    """
    from muniment import cli

    code = cli.FAILED
    try:
        atexit._clear()  # pyright: ignore[reportPrivateUsage]
        threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()

        def written() -> int:
            code = work()
            _flush()
            return code

        code = cli.exit_code_of(written)
        os.write(tell, f"{code}".encode())
        _end_within(LEAVING)
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    finally:
        os._exit(code)


def _end_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _end_within(seconds: int) -> None:
    """End this process then at the latest, whatever holds it up: its exit code is told."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def _flush() -> None:
    """Both streams; one that is closed is None."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # pyright: ignore[reportUnnecessaryComparison]
            stream.flush()
