"""``muniment conform`` in its process: an exit code comes with a finished report, whatever a plugin does to it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muniment import cli
from muniment.cli.supervised import supervised
from muniment.errors import PluginError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="without fork the judge is not supervised")

SCRIPT = """
import asyncio, atexit, os, signal, sys, time
from contextlib import asynccontextmanager
from pathlib import Path
from muniment import cli
from muniment.cli import conform
from muniment.conformance.reference_target import ReferenceTarget
from muniment.reference import ReferenceStorage

class Ends(ReferenceStorage):
    async def apply(self, *positional, **named):
        {does}

class Target(ReferenceTarget):
    @asynccontextmanager
    async def open(self):
        async with super().open() as subject:
            try:
                yield subject
            finally:
                await asyncio.sleep(0.1)
                Path("closed").touch()

def target_of(name, url):
    {first}
    return Target(Ends)

conform.target_of = target_of
sys.exit(cli.run(["conform", "reference", "--only", "READ-02", *sys.argv[1:]]))
"""
WAITS = """print("waits", flush=True); await asyncio.sleep(60)"""


def script(does: str = "raise ValueError", first: str = "pass") -> list[str]:
    """The command line of a judge whose plugin does this in a write, and its target when it is made."""
    return [sys.executable, "-c", SCRIPT.format(does=does, first=first)]


def judged(
    does: str = "raise ValueError", first: str = "pass", *arguments: str, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """The judge, run to its end."""
    command = [*script(does, first), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


@pytest.mark.parametrize("arguments", [(), ("--self-test",)])
@pytest.mark.parametrize(
    ("does", "first", "said"),
    [
        ("os._exit(0)", "pass", "ended with 0 before it was finished"),
        ("os._exit(7)", "pass", "ended with 7 before it was finished"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "pass", "was ended by SIGKILL before it was finished"),
        ("pass", "os._exit(0)", "ended with 0 before it was finished"),
    ],
)
def test_a_plugin_that_ends_the_judge_is_not_judged(
    does: str, first: str, said: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """Exit code 2 with one line, however the process ended; no file is written."""
    report = () if arguments else ("--json", "report.json")
    done = judged(does, first, *arguments, *report, cwd=tmp_path)

    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("muniment: reference was not judged: the process that did it ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "report.json").exists()


def test_what_ends_the_process_after_the_report_changes_nothing(tmp_path: Path) -> None:
    """The exit code is that of the report, which is whole."""
    done = judged("raise ValueError", "atexit.register(os._exit, 0)", "--json", "report.json", cwd=tmp_path)

    assert done.returncode == 1
    assert done.stdout.endswith("s)\n")
    assert "not conformant (1 error" in done.stdout
    assert (tmp_path / "report.json").exists()


def test_exit_functions_of_a_plugin_are_run(tmp_path: Path) -> None:
    """They stop its servers and remove its files, once the report is there."""
    done = judged("raise ValueError", 'atexit.register(Path("stopped").touch)', cwd=tmp_path)

    assert done.returncode == 1
    assert (tmp_path / "stopped").exists()


def begun(tmp_path: Path, **how: object) -> subprocess.Popen[str]:
    """A judge that waits in a check, in a session of its own."""
    judge: subprocess.Popen[str] = subprocess.Popen(  # pyright: ignore[reportCallIssue]
        script(WAITS),
        cwd=tmp_path,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how},  # pyright: ignore[reportArgumentType]
    )
    return judge


def test_an_interrupt_ends_the_judge_as_it_should(tmp_path: Path) -> None:
    """Sent to the process alone, it reaches the check, whose subject is closed; the exit code is 130."""
    judge = begun(tmp_path, start_new_session=True)
    assert judge.stdout
    assert judge.stdout.readline() == "waits\n"
    judge.send_signal(signal.SIGINT)
    out, err = judge.communicate(timeout=30)

    assert (judge.returncode, out, err) == (cli.INTERRUPTED, "", "")
    assert (tmp_path / "closed").exists()


def test_ctrl_c_at_a_terminal_ends_the_judge_once(tmp_path: Path) -> None:
    """The terminal tells both processes, and the subject is closed all the same."""
    ours, theirs = os.openpty()
    stream = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    judge = begun(tmp_path, preexec_fn=lambda: os.login_tty(theirs), **stream)
    os.close(theirs)
    seen = b""
    while b"waits" not in seen:
        seen += os.read(ours, 1_000)
    os.write(ours, b"\x03")

    assert judge.wait(timeout=30) == cli.INTERRUPTED
    assert (tmp_path / "closed").exists()
    os.close(ours)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_judge_ends_with_whom_it_was_started_by(number: signal.Signals, tmp_path: Path) -> None:
    """Nobody is left who would write to the streams."""
    judge = begun(tmp_path, start_new_session=True)
    assert judge.stdout
    assert judge.stdout.readline() == "waits\n"
    judge.send_signal(number)
    judge.communicate(timeout=30)

    assert judge.returncode == -number


def test_the_judge_has_the_streams(tmp_path: Path) -> None:
    """A plugin may ask its author something, and what is printed goes where it would."""
    command = script("raise ValueError", 'print("asked", input())')
    done = subprocess.run(
        command, input="said\n", capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )

    assert done.stdout.startswith("asked said\n")


@pytest.mark.parametrize(("work", "code"), [(lambda: 0, 0), (lambda: 1, 1), (lambda: int("x"), cli.FAILED)])
def test_the_exit_code_is_that_of_the_work(work: Callable[[], int], code: int) -> None:
    """An exception is told on standard error, as everywhere, and is an exit code too."""
    assert supervised("it was not done", work) == code


def test_without_an_exit_code_there_is_none() -> None:
    """A process that leaves before is a refusal."""
    with pytest.raises(PluginError, match="it was not done: the process that did it ended with 0"):
        supervised("it was not done", lambda: os._exit(0))


def test_an_exit_function_that_hangs_is_cut_off(tmp_path: Path) -> None:
    """The report is there, and its exit code counts."""
    hangs = "from muniment.cli import supervised; supervised.LEAVING = 1; atexit.register(time.sleep, 50)"
    started = time.monotonic()
    done = judged("raise ValueError", hangs, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (1, "")
    assert "not conformant (1 error" in done.stdout
    assert time.monotonic() - started < 40


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_skipped(closed: str, tmp_path: Path) -> None:
    """The exit code is that of the report, which nobody wanted to read; what a plugin prints is no part of it."""
    command = script("raise ValueError", 'os.system("echo printed")')
    done = subprocess.run(
        f"{shlex.join(command)} {closed}",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 1
    assert "failed inside" not in done.stderr
