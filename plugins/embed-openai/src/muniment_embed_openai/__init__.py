"""OpenAI's embeddings, and those of servers with the same API, as the embedder of Muniment: descriptor and hooks.

Does not import the client; the factory it names does, at the first use.
"""

from __future__ import annotations

from collections.abc import Sequence

from muniment.hookspecs import Descriptor, DoctorContext, Finding, hookimpl

DESCRIPTOR = Descriptor(
    name="embed-openai",
    kind="embedder",
    schemes=("openai",),
    factory="muniment_embed_openai.embedder:create",
    conformance="muniment_embed_openai.conformance:target",
    summary="Embedding models of OpenAI, and of servers with the same API.",
    contract="1.2",
)


@hookimpl
def muniment_plugins() -> Sequence[Descriptor]:
    """The one embedder of this distribution."""
    return (DESCRIPTOR,)


@hookimpl
def muniment_doctor(context: DoctorContext) -> Sequence[Finding]:
    """The client's version, and whether the provider gives vectors for the configured model."""
    from muniment_embed_openai.doctor import findings

    return findings(context)
