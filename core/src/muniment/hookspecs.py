"""The whole extension surface: three hooks, and the descriptor by which a plugin presents itself.

Hooks are for what is one-to-many. Which storage, embedder or transport runs is decided by configuration; the rules
themselves are never hooks, so no plugin can weaken one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pluggy

from muniment.models import AuditRecord, Receipt

GROUP = "muniment"
"""The entry-point group, and pluggy's project name."""

CONTRACT = (1, 2)
"""The core's contract version, major and minor."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)

Kind = Literal["storage", "embedder", "transport"]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a plugin is, without importing it.

    ``schemes`` are the prefixes of a configured value that it serves (``postgresql`` for ``postgresql://…``,
    ``local`` for ``local:NAME``). ``factory`` and ``conformance`` are dotted paths ``package.module:name``:
    a callable from ``PluginContext`` to the seat, and one that makes the suite's target. ``contract`` is the version
    that it was written for, ``capabilities`` the optional ones that it has. ``exporter`` is the dotted path, for an
    embedder whose models ``muniment embeddings export`` can write, of a callable that fills a directory: from the
    configured value and an empty ``Path`` to facts about what it wrote, by name.
    """

    name: str
    kind: Kind
    schemes: tuple[str, ...]
    factory: str
    summary: str
    conformance: str | None = None
    contract: str = "1.0"
    capabilities: frozenset[str] = field(default_factory=frozenset[str])
    exporter: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of ``muniment doctor``: what was looked at, whether it is well, and what to do where it is not."""

    subject: str
    ok: bool
    detail: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """What a doctor hook may look at: the configured values, secrets redacted; as ``options`` the plugin's own table of
    the configuration, as it is."""

    storage: str
    embedder: str
    data_dir: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@hookspec
def muniment_plugins() -> Sequence[Descriptor]:  # type: ignore[empty-body]
    """The descriptors of this distribution's plugins. Must import no driver and no model."""


@hookspec
def muniment_committed(receipt: Receipt, audit: AuditRecord) -> None:
    """Called after a mutation is committed. An exception is logged and never undoes the write."""


@hookspec
def muniment_doctor(context: DoctorContext) -> Sequence[Finding]:  # type: ignore[empty-body]
    """What this plugin finds about its own installation.

    Called before the storage is opened and again after, then with ``none`` as the embedder.
    """
