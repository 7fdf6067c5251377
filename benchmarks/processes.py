"""The processor time of this process and of a server, with its children and threads, from the kernel (Linux)."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path


class Processors:
    """Counts from when it is made; threads of the server that end meanwhile keep what they had used when last seen."""

    def __init__(self, process: int) -> None:
        self._root = process
        self._seen = self._server()
        self._base = dict(self._seen)
        self._client = time.process_time()

    def milliseconds(self) -> float:
        """Milliseconds used so far, client and server together."""
        client = time.process_time() - self._client  # before it is spent on looking
        self._seen.update(self._server())
        server = sum(used - self._base.get(thread, 0) for thread, used in self._seen.items())
        return client * 1e3 + server / 1e6

    def _server(self) -> dict[int, int]:
        """Nanoseconds by thread of the server."""
        used: dict[int, int] = {}
        children = Path(f"/proc/{self._root}/task/{self._root}/children").read_text().split()
        for process in (self._root, *map(int, children)):
            with suppress(OSError):
                for thread in Path(f"/proc/{process}/task").iterdir():
                    used[int(thread.name)] = int((thread / "schedstat").read_text().split()[0])
        return used
