"""PostgreSQL with pgvector as the storage of Muniment: the descriptor and the hooks.

Imports no driver; what runs is behind the dotted paths of the descriptor.
"""

from __future__ import annotations

from collections.abc import Sequence

from muniment.hookspecs import Descriptor, DoctorContext, Finding, hookimpl

__version__ = "0.1.0"


@hookimpl
def muniment_plugins() -> Sequence[Descriptor]:
    """The one storage of this distribution."""
    return (
        Descriptor(
            name="storage-postgres",
            kind="storage",
            schemes=("postgresql", "postgres", "embedded"),
            factory="muniment_storage_postgres.storage:create",
            conformance="muniment_storage_postgres.conformance:target",
            contract="1.2",
            summary="PostgreSQL with pgvector, on a server or embedded in the data directory",
        ),
    )


@hookimpl
def muniment_doctor(context: DoctorContext) -> Sequence[Finding]:
    """Whether an embedded server could keep its data where the configuration says."""
    if context.storage.partition(":")[0] != "embedded":
        return ()
    from muniment_storage_postgres.doctor import findings

    return findings(context)
