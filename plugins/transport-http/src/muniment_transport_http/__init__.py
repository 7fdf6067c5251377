"""HTTP as a transport of Muniment: the plugin's descriptor. It imports no framework."""

from __future__ import annotations

from collections.abc import Sequence

from muniment.hookspecs import Descriptor, hookimpl


@hookimpl
def muniment_plugins() -> Sequence[Descriptor]:
    """The descriptor of this distribution's transport."""
    return (
        Descriptor(
            name="transport-http",
            kind="transport",
            schemes=("http",),
            factory="muniment_transport_http.transport:create",
            conformance="muniment_transport_http.conformance:target",
            contract="1.2",
            summary="Every operation as an HTTP request, described by an OpenAPI document.",
        ),
    )
