"""SIGTERM and SIGINT, caught: the first one asks for the end, the third one kills."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)

_IMPATIENT = 3


class Caught:
    """Calls ``first`` with the first signal since it was made, in the handler; outside the main thread with none."""

    def __init__(self, first: Callable[[int], None], numbers: Sequence[signal.Signals] = ENDING) -> None:
        self._first = first
        self._arrived = 0
        caught = numbers if threading.current_thread() is threading.main_thread() else ()
        self._before = {number: signal.signal(number, self._on_signal) for number in caught}

    def give_back(self) -> None:
        """Put the handlers back that were there before, unless others are by now."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._arrived += 1
        if self._arrived == 1:
            self._first(number)
        elif self._arrived >= _IMPATIENT:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def end_on_signals(end: Callable[[], None]) -> Caught:
    """Call ``end`` on the running loop at the first signal. A process that handles SIGTERM itself keeps both."""
    loop = asyncio.get_running_loop()

    def first(_number: int) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(end)

    return Caught(first, ENDING if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else ())
