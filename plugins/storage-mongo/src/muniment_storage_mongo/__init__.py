"""MongoDB as the storage of Muniment: the descriptor and the hook.

Imports no driver; what runs is behind the dotted paths of the descriptor.
"""

from __future__ import annotations

from collections.abc import Sequence

from muniment.hookspecs import Descriptor, hookimpl

__version__ = "0.1.0"


@hookimpl
def muniment_plugins() -> Sequence[Descriptor]:
    """The one storage of this distribution."""
    return (
        Descriptor(
            name="storage-mongo",
            kind="storage",
            schemes=("mongodb", "mongodb+srv"),
            factory="muniment_storage_mongo.storage:create",
            conformance="muniment_storage_mongo.conformance:target",
            contract="1.2",
            summary="MongoDB, on a replica set or a sharded cluster",
        ),
    )
