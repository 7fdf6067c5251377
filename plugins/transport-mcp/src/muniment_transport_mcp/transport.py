"""The transport's seat: which carrier the configuration asks for, and serving one client over the standard streams.

The standard streams and their end are this module's; what is said in between is ``session``'s. HTTP is ``http``'s.
Opening and closing the engine is the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment import standard_streams
from muniment.errors import ConfigurationError
from muniment.models import CallContext, ProjectPolicy
from muniment.ports import Callers, PluginContext, Transport
from muniment.serving.signals import end_on_signals
from muniment_transport_mcp.server import build_server
from muniment_transport_mcp.session import converse
from muniment_transport_mcp.wire import Wire

if TYPE_CHECKING:
    from muniment.engine import Engine

SURFACE = "mcp"
"""What the audit trail calls this transport."""
POLICY = ProjectPolicy.REQUIRE_EXISTING
"""A project is registered by ``project_identify`` alone, so that a typo makes no near-miss."""


def over_mcp(local: CallContext) -> CallContext:
    """The configured caller as one who calls by this transport."""
    return local.model_copy(update={"surface": SURFACE, "project_policy": POLICY})


class StdioTransport:
    """The Model Context Protocol over stdio. One client, one process, ``serve`` once."""

    async def serve(self, engine: Engine, callers: Callers) -> None:
        """Serve until the client closes its end, SIGTERM or SIGINT arrives, or the task is cancelled.

        Requests that came in by then are answered first, for at most ``session.FINISH_SECONDS``. Standard
        output stays with standard error afterwards, and the two signals stay caught so that the caller can
        close the engine in peace; the third one kills. Where the process handles SIGTERM itself, both are
        left to it. Raises ConfigurationError if a standard stream is closed.
        """
        context = over_mcp(callers.local)
        wire = Wire(*standard_streams.claim())
        end_on_signals(wire.end)
        await converse(build_server(engine, lambda _request: context, local=True), wire)


def create(context: PluginContext) -> Transport:
    """The transport for ``mcp``, ``mcp:stdio`` or ``mcp:http://HOST:PORT``.

    Raises ConfigurationError for all else, and for options.
    """
    if context.options:
        raise ConfigurationError(f"transport-mcp has no setting {min(context.options)!r}; remove it.")
    _, _, carrier = context.spec.partition(":")
    if carrier.startswith("http:"):
        # What only HTTP needs is not paid for by a client that starts a server over stdio.
        from muniment_transport_mcp.http import HttpTransport

        return HttpTransport.at(carrier)
    if carrier not in ("", "stdio"):
        raise ConfigurationError(
            f"transport: {context.spec!r} is not served; use 'mcp' (stdio) or 'mcp:http://127.0.0.1:8765'."
        )
    return StdioTransport()
