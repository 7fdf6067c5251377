"""The Model Context Protocol as a transport of Muniment: the plugin's descriptor. It imports no SDK."""

from __future__ import annotations

from collections.abc import Sequence

from muniment.hookspecs import Descriptor, hookimpl


@hookimpl
def muniment_plugins() -> Sequence[Descriptor]:
    """The descriptor of this distribution's transport."""
    return (
        Descriptor(
            name="transport-mcp",
            kind="transport",
            schemes=("mcp",),
            factory="muniment_transport_mcp.transport:create",
            conformance="muniment_transport_mcp.conformance:target",
            contract="1.2",
            summary="Every operation as a tool of the Model Context Protocol, over stdio and streamable HTTP.",
        ),
    )
