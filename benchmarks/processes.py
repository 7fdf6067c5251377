"""The processor time of this process and of a PostgreSQL server, from the kernel's own counters (Linux)."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path


class Processors:
    """Counts from when it is made; a server's processes that end meanwhile keep what they had used when last seen."""

    def __init__(self, data_directory: Path) -> None:
        self._root = int((data_directory / "postmaster.pid").read_text().split()[0])
        self._seen = self._server()
        self._base = dict(self._seen)
        self._client = time.process_time()

    def milliseconds(self) -> float:
        """Milliseconds used so far, client and server together."""
        self._seen.update(self._server())
        server = sum(used - self._base.get(pid, 0) for pid, used in self._seen.items())
        return (time.process_time() - self._client) * 1e3 + server / 1e6

    def _server(self) -> dict[int, int]:
        """Nanoseconds by process of the server."""
        used: dict[int, int] = {}
        children = Path(f"/proc/{self._root}/task/{self._root}/children").read_text().split()
        for pid in (self._root, *map(int, children)):
            with suppress(OSError):
                used[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        return used
