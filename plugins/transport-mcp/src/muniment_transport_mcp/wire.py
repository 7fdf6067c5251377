"""Lines over two file descriptors. ``frames`` reads them.

Reading and writing block, so each has a thread. Both are daemons and neither is ever joined: a thread that
waits in ``read`` for a client that says nothing must not keep the process.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable

_CHUNK = 65_536


class Wire:
    """A client at the other end of ``source`` and ``sink``, in lines. Belongs to the running event loop."""

    def __init__(self, source: int, sink: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._sink = sink
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._outgoing: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"muniment-mcp{work.__name__}", daemon=True).start()

    async def receive(self) -> bytes | None:
        """The next line, without its end; None once the client has left or ``end`` was called."""
        return await self._lines.get()

    async def send(self, line: bytes) -> None:
        """Write ``line`` whole. Raises OSError if the client no longer reads."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._outgoing.put((line, written))
        await written

    def end(self) -> None:
        """Let ``receive`` answer None after the lines that have arrived by now."""
        self._lines.put_nowait(None)

    def close(self) -> None:
        """Let the thread that writes leave, once it has written what was sent."""
        self._outgoing.put(None)

    def _read(self) -> None:
        parts: list[bytes] = []
        while chunk := self._next_chunk():
            first, *others = chunk.split(b"\n")
            parts.append(first)
            if others:
                self._deliver(b"".join(parts))
                for line in others[:-1]:
                    self._deliver(line)
                parts = [others[-1]]
        self._deliver(b"".join(parts))
        self._on_loop(self.end)

    def _next_chunk(self) -> bytes:
        try:
            return os.read(self._source, _CHUNK)
        except OSError:
            return b""

    def _deliver(self, line: bytes) -> None:
        if stripped := line.strip():
            self._on_loop(lambda: self._lines.put_nowait(stripped))

    def _write(self) -> None:
        while (item := self._outgoing.get()) is not None:
            line, written = item
            error: OSError | None = None
            try:
                _write_all(self._sink, line)
            except OSError as problem:
                error = problem
            self._on_loop(lambda written=written, error=error: _settle(written, error))

    def _on_loop(self, action: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:
            # The loop is closed: the process is leaving, and nobody waits for this any more.
            return


def _write_all(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _settle(written: asyncio.Future[None], error: OSError | None) -> None:
    if written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
