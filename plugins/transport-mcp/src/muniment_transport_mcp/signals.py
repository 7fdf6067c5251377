"""How a process that handles no signals itself is asked to end: by SIGTERM or SIGINT, once; the third one kills."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType

_IMPATIENT = 3


def end_on_signals(end: Callable[[], None]) -> None:
    """Call ``end`` on the loop at the first SIGTERM or SIGINT, unless the process handles SIGTERM already."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    loop = asyncio.get_running_loop()
    arrived = 0

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 1 and not loop.is_closed():
            loop.call_soon_threadsafe(end)
        elif arrived >= _IMPATIENT:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
