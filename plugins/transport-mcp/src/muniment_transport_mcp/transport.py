"""The transport's seat: serves one client over the process's standard streams, for the configured caller.

It owns the standard streams and the end of the process that a host asks for; what is said in between is
``session``'s. Opening and closing the engine is the caller's.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from muniment import standard_streams
from muniment.errors import ConfigurationError
from muniment.models import CallContext, ProjectPolicy
from muniment.ports import PluginContext
from muniment_transport_mcp.server import build_server
from muniment_transport_mcp.session import converse
from muniment_transport_mcp.wire import Wire

if TYPE_CHECKING:
    from muniment.engine import Engine

SURFACE = "mcp"
"""What the audit trail calls this transport."""

_IMPATIENT = 3


class McpTransport:
    """The Model Context Protocol over stdio. One client, one process, ``serve`` once."""

    async def serve(self, engine: Engine, local: CallContext) -> None:
        """Serve until the client closes its end, SIGTERM or SIGINT arrives, or the task is cancelled.

        Requests that came in by then are answered first, for at most ``session.FINISH_SECONDS``. Standard
        output stays with standard error afterwards, and the two signals stay caught so that the caller can
        close the engine in peace; the third one kills. Where the process handles SIGTERM itself, both are
        left to it. Raises ConfigurationError if a standard stream is closed.
        """
        context = local.model_copy(update={"surface": SURFACE, "project_policy": ProjectPolicy.REQUIRE_EXISTING})
        wire = Wire(*standard_streams.claim())
        _end_on_signals(wire.end)
        await converse(build_server(engine, lambda _request: context), wire)


def create(context: PluginContext) -> McpTransport:
    """The transport for ``mcp`` or ``mcp:stdio``. Raises ConfigurationError for all else, and for options."""
    if context.spec not in ("mcp", "mcp:", "mcp:stdio"):
        raise ConfigurationError(f"transport: {context.spec!r} is not served; use 'mcp' (stdio).")
    if context.options:
        raise ConfigurationError(f"transport-mcp has no setting {min(context.options)!r}; remove it.")
    return McpTransport()


def _end_on_signals(end: Callable[[], None]) -> None:
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
