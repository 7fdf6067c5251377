"""A storage in a process of its own, for the conformance suite: without a server, what can be killed is a client.

``Apart`` has the methods of the port and passes each call on, pickled, over a socket pair. The child runs the plugin as
any process would. What was under way when it is killed ends in StorageUnavailable here.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import pickle
import socket
import struct
from collections.abc import Awaitable, Callable
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, cast

from muniment import cancellation
from muniment.errors import StorageUnavailable
from muniment.ports import PluginContext, Storage
from muniment_storage_sqlite.storage import create

_LENGTH: Final = struct.Struct("!I")
_PATIENCE: Final = 60.0
"""Seconds in which a child has to open, and to end; one that does not is killed."""


class Apart:
    """The client in the child's process. Its methods are those of ``Storage``."""

    def __init__(self, process: BaseProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._writer = writer
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def start(cls, path: Path) -> tuple[Apart, Storage]:
        """A child whose storage is open at ``path``: the handle on it, and itself as a storage."""
        context = _context()
        ours, theirs = socket.socketpair()
        process = context.Process(target=_child, args=(theirs, path), daemon=True)
        await asyncio.to_thread(process.start)
        theirs.close()
        apart = cls(process, *await asyncio.open_connection(sock=ours))
        storage = cast("Storage", apart)
        try:
            await asyncio.wait_for(storage.open(), _PATIENCE)
        except BaseException:
            await apart.kill()
            raise
        return apart, storage

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What a method of the child's storage returns. Cancelled, it ends when the child's has ended."""
        if self._reading.done():
            if method == "close":
                return None
            raise StorageUnavailable("The process of this client has ended; open another one.")
        self._count += 1
        answer = self._calls[self._count] = asyncio.get_running_loop().create_future()
        _send(self._writer, (self._count, method, args, kwargs))
        try:
            await asyncio.wait((answer,))
        except asyncio.CancelledError:
            await cancellation.over(answer)
            raise
        returned, raised = answer.result()
        if raised is not None:
            raise _error(raised)
        return returned

    async def end(self) -> None:
        """Let the child close and end; safe where it has ended already."""
        self._writer.close()
        await self._reading
        await asyncio.to_thread(self._process.join, _PATIENCE)
        self._process.kill()

    async def kill(self) -> None:
        """``kill -9``."""
        self._process.kill()
        await self.end()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                number, answer = await _receive(reader)
                self._calls.pop(number).set_result(answer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for call in self._calls.values():
                call.set_result((None, _parts(StorageUnavailable("The process of this client was killed."))))


def _context() -> ForkServerContext | SpawnContext:
    """How a child is started: from a process that has imported everything and has no threads, where that can be."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _forwarding(method: str) -> Callable[..., Awaitable[Any]]:
    async def forward(self: Apart, *args: Any, **kwargs: Any) -> Any:
        return await self.call(method, *args, **kwargs)

    return forward


for _name, _ in inspect.getmembers(Storage, inspect.iscoroutinefunction):
    setattr(Apart, _name, _forwarding(_name))


def _child(end: socket.socket, path: Path) -> None:
    asyncio.run(_serve(end, path))


async def _serve(end: socket.socket, path: Path) -> None:
    """Run what is asked for, side by side, until the other end leaves."""
    storage = create(PluginContext(spec=f"sqlite:{path}", data_dir=path.parent))
    reader, writer = await asyncio.open_connection(sock=end)
    running: set[asyncio.Task[None]] = set()

    async def answer(number: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            returned, raised = await getattr(storage, method)(*args, **kwargs), None
        except Exception as error:
            returned, raised = None, _parts(error)
        _send(writer, (number, (returned, raised)))

    try:
        while True:
            task = asyncio.create_task(answer(*await _receive(reader)))
            running.add(task)
            task.add_done_callback(running.discard)
    except (OSError, asyncio.IncompleteReadError):
        await asyncio.gather(*running)
    finally:
        await storage.close()
        writer.close()


def _send(writer: asyncio.StreamWriter, value: object) -> None:
    frame = pickle.dumps(value)
    writer.write(_LENGTH.pack(len(frame)) + frame)


async def _receive(reader: asyncio.StreamReader) -> Any:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))


def _parts(error: Exception) -> tuple[type[Exception], tuple[Any, ...], dict[str, Any]]:
    """An exception as it can be pickled: one whose arguments are not those of its class cannot be by itself."""
    return type(error), error.args, dict(vars(error))


def _error(parts: tuple[type[Exception], tuple[Any, ...], dict[str, Any]]) -> Exception:
    kind, args, attributes = parts
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error
