"""One thread that does blocking work for an event loop, the urgent first.

Owns the order, cancellation and the end of the work; what the work is belongs to the caller. The thread is
a daemon: work that cannot be interrupted, such as loading a model, keeps neither ``stop`` nor the
interpreter waiting for long, which the executors of the standard library cannot promise, since they join
their threads at exit.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, TypeVar

from muniment.errors import EmbedderUnavailable

T = TypeVar("T")

EXIT_SECONDS: Final = 10.0
"""How long the end of the interpreter waits for work that is under way."""


class Priority(IntEnum):
    """The order of work; within one priority the first come is the first served."""

    STOP = 0
    QUERY = 1
    COUNT = 2
    PASSAGES = 3


@dataclass(order=True, slots=True)
class _Job:
    priority: Priority
    number: int
    work: Callable[[], Any] = field(compare=False)
    future: Future[Any] = field(compare=False)


class Worker:
    """Runs blocking functions one after the other in a thread of its own, which starts with the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._at_exit: weakref.finalize[..., Worker] | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called; work in several steps looks at it between them."""
        return self._stopped

    async def run(self, priority: Priority, work: Callable[[], T]) -> T:
        """The result of ``work``, done in the thread. Cancelling the caller takes back work that has not
        begun.

        Raises EmbedderUnavailable once the worker is stopped, and what ``work`` raises.
        """
        return await asyncio.wrap_future(self._submit(priority, work))

    async def stop(self, *, patience: float) -> None:
        """Take no more work, refuse what waits, and wait at most ``patience`` seconds for what is under way."""
        thread = self._request_stop()
        if thread is not None:
            await asyncio.to_thread(thread.join, patience)

    def _submit(self, priority: Priority, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._stopped:
                raise _closed()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
                # Not atexit: what a library imported meanwhile leaves to finalize then still runs after this.
                self._at_exit = weakref.finalize(self, self._leave)
            self._jobs.put(_Job(priority, next(self._numbers), work, future))
        return future

    def _request_stop(self) -> threading.Thread | None:
        with self._lock:
            if self._thread is not None and not self._stopped:
                self._jobs.put(_Job(Priority.STOP, next(self._numbers), lambda: None, Future()))
            self._stopped = True
            if self._at_exit is not None:
                self._at_exit.detach()
            return self._thread

    def _leave(self) -> None:
        thread = self._request_stop()
        if thread is not None:
            thread.join(EXIT_SECONDS)

    def _serve(self) -> None:
        while (job := self._jobs.get()).priority is not Priority.STOP:
            _do(job)
        while not self._jobs.empty():
            waiting = self._jobs.get().future
            if waiting.set_running_or_notify_cancel():
                waiting.set_exception(_closed())


def _do(job: _Job) -> None:
    if not job.future.set_running_or_notify_cancel():
        return
    try:
        result = job.work()
    except BaseException as error:
        job.future.set_exception(error)
    else:
        job.future.set_result(result)


def _closed() -> EmbedderUnavailable:
    return EmbedderUnavailable("The local embedder is closed; open it again before it is used.")
