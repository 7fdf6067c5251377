"""One SQLite file as the storage of Muniment: the descriptor and its hooks.

Imports neither SQLite nor numpy; the factory that it names does.
"""

from __future__ import annotations

from collections.abc import Sequence

from muniment.hookspecs import Descriptor, DoctorContext, Finding, hookimpl

DESCRIPTOR = Descriptor(
    name="storage-sqlite",
    kind="storage",
    schemes=("sqlite",),
    factory="muniment_storage_sqlite.storage:create",
    conformance="muniment_storage_sqlite.conformance:target",
    contract="1.2",
    summary="Memories in one SQLite file, for one machine; starts at once and needs no server.",
)


@hookimpl
def muniment_plugins() -> Sequence[Descriptor]:
    """The one storage of this distribution."""
    return (DESCRIPTOR,)


@hookimpl
def muniment_doctor(context: DoctorContext) -> Sequence[Finding]:
    """Where the configured file is, without opening it."""
    from muniment_storage_sqlite.doctor import findings

    return findings(context)
