"""Local sentence-transformers models as the embedder of Muniment: the descriptor and its hooks.

Imports no model library; what the factory names does, at the model's first use.
"""

from __future__ import annotations

from collections.abc import Sequence

from muniment.hookspecs import Descriptor, DoctorContext, Finding, hookimpl

DESCRIPTOR = Descriptor(
    name="embed-local",
    kind="embedder",
    schemes=("local",),
    contract="1.2",
    factory="muniment_embed_local.embedder:create",
    conformance="muniment_embed_local.conformance:target",
    exporter="muniment_embed_local.export:export",
    summary="sentence-transformers models that run in this process, by name, directory or weights package.",
)


@hookimpl
def muniment_plugins() -> Sequence[Descriptor]:
    """The one embedder of this distribution."""
    return (DESCRIPTOR,)


@hookimpl
def muniment_doctor(context: DoctorContext) -> Sequence[Finding]:
    """What the configured model needs and whether it is there, without loading it."""
    from muniment_embed_local.doctor import findings

    return findings(context.embedder, context.options)
