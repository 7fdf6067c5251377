"""What a server costs before it does anything: its memory at rest, how soon it answers, and how soon the demo shows.

Each server is ``muniment serve`` over standard input and output on the embedded PostgreSQL, without a model; at rest is
REST seconds after the handshake and one write. PostgreSQL's processes are counted apart: of what they share each has
its part in PSS, and in RSS all of it. A figure is the median of ROUNDS, with the least and the most beside it; on a
machine with other work the processor time of the serving process says more than the clock. The demo has the model, so
it runs DEMOS times. Linux only, which alone tells PSS.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil

ROUNDS = int(os.environ.get("ROUNDS", "5"))
DEMOS = int(os.environ.get("DEMOS", "1"))
REST = 3.0
EMBEDDERS = ("none", "hash:")
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
Figures = defaultdict[str, list[float]]


class Served:
    """A server process over its standard streams, started when this is made."""

    def __init__(self, data: Path, embedder: str) -> None:
        self.begun = time.perf_counter()
        self._number = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "muniment", "serve", "--data-dir", str(data), "--embedder", embedder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=data.parent,
            env={name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")},
        )
        self.ask("initialize", INITIALIZE)
        self.answered = time.perf_counter() - self.begun
        used = psutil.Process(self.process.pid).cpu_times()
        self.processor = used.user + used.system
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self) -> float:
        """Write a memory; seconds from the start until it was acknowledged."""
        answer = self.ask("tools/call", {"name": "memory_write", "arguments": {"content": "a memory"}})
        assert not answer.get("isError"), answer
        return time.perf_counter() - self.begun

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer["result"]
        raise AssertionError("the server has ended")

    def leave(self) -> None:
        """As a client ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait() == 0

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


def main() -> None:
    """Measure and print."""
    memory, processes, seconds = Figures(list), Figures(list), Figures(list)
    for _ in range(ROUNDS):
        for embedder in EMBEDDERS:
            with fresh_directory() as directory:
                one_round(directory / "data", embedder, memory, processes, seconds)
    for _ in range(DEMOS):
        demo(seconds)
    print("| what | median | least | most |\n| --- | --- | --- | --- |")
    for figures, unit, digits in ((memory, " MB", 1), (processes, "", 0), (seconds, " s", 2)):
        for what, values in figures.items():
            once = " (one run)" if len(values) == 1 else ""
            shown = (f"{value:.{digits}f}{unit}" for value in (median(values), min(values), max(values)))
            print(f"| {what}{once} | {' | '.join(shown)} |")


def one_round(data: Path, embedder: str, memory: Figures, processes: Figures, seconds: Figures) -> None:
    """A first start, a second one on the same data, and one beside it."""
    first = Served(data, embedder)
    seconds[f"start to handshake, fresh directory, {embedder}"].append(first.answered)
    seconds[f"start to first write, fresh directory, {embedder}"].append(first.write())
    seconds[f"processor time of the serving process until the handshake, fresh directory, {embedder}"].append(
        first.processor
    )
    at_rest(first, data, f"fresh directory, {embedder}", memory, processes)
    first.leave()
    again = Served(data, embedder)
    seconds[f"start to handshake, data there, {embedder}"].append(again.answered)
    seconds[f"start to first write, data there, {embedder}"].append(again.write())
    seconds[f"processor time of the serving process until the handshake, data there, {embedder}"].append(
        again.processor
    )
    at_rest(again, data, f"data there, {embedder}", memory, processes)
    beside = Served(data, embedder)
    seconds[f"start to handshake, beside another server, {embedder}"].append(beside.answered)
    seconds[f"start to first write, beside another server, {embedder}"].append(beside.write())
    beside.leave()
    again.leave()


def at_rest(served: Served, data: Path, which: str, memory: Figures, processes: Figures) -> None:
    """The memory of a server that does nothing; the one that made the tables holds what that took."""
    time.sleep(REST)
    ours = psutil.Process(served.process.pid).memory_full_info()
    postgres = [process.memory_full_info() for process in postgres_in(data)]
    for kind in ("rss", "pss", "uss"):
        memory[f"serving process, {which}, {kind.upper()}"].append(getattr(ours, kind) / 1e6)
        memory[f"its PostgreSQL, {which}, {kind.upper()}"].append(sum(getattr(one, kind) for one in postgres) / 1e6)
    processes[f"processes of its PostgreSQL, {which}"].append(len(postgres))


def postgres_in(data: Path) -> Iterator[psutil.Process]:
    """The database's processes of a data directory."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "postgres" and process.cwd().startswith(str(data)):
                yield process


def demo(seconds: Figures) -> None:
    """The demo on the fresh directory that it makes: its first result is that all documents are stored and embedded."""
    begun = time.perf_counter()
    results = iter(("its first result", "the answer to its first search"))
    process = subprocess.Popen([sys.executable, "-m", "muniment", "demo"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.lstrip().startswith("ok:") and (result := next(results, None)):
            seconds[f"muniment demo, start to {result}"].append(time.perf_counter() - begun)
    assert process.wait() == 0
    seconds["muniment demo, start to its end"].append(time.perf_counter() - begun)


@contextmanager
def fresh_directory() -> Generator[Path]:
    """A directory that PostgreSQL's account may enter, removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="muniment-bench-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
