"""The reference plugins: an in-memory storage and a deterministic hash embedder.

They are the oracle of the conformance suite and the quickest start for a test. Nothing outlives the process.
"""

from __future__ import annotations

from collections.abc import Sequence

from muniment.hookspecs import Descriptor, hookimpl
from muniment.reference.embedder import HashEmbedder
from muniment.reference.rows import ReferenceData
from muniment.reference.storage import ReferenceStorage

__all__ = ["HashEmbedder", "ReferenceData", "ReferenceStorage", "muniment_plugins"]


@hookimpl
def muniment_plugins() -> Sequence[Descriptor]:
    """The two descriptors."""
    return (
        Descriptor(
            name="reference",
            kind="storage",
            schemes=("memory",),
            factory="muniment.reference.storage:create",
            conformance="muniment.conformance.reference_target:storage",
            contract="1.2",
            summary="In memory, gone when the process ends; for tests.",
        ),
        Descriptor(
            name="hash",
            kind="embedder",
            schemes=("hash",),
            factory="muniment.reference.embedder:create",
            contract="1.2",
            conformance="muniment.conformance.reference_target:embedder",
            summary="Hashed words, no meaning, no model; for tests.",
        ),
    )
