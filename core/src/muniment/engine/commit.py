"""The last step of every mutation: its audit entry, and telling the observers that it is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from muniment.models import AuditRecord, CallContext, PatchEffect, Receipt
from muniment.ports import AuditDraft

log = logging.getLogger(__name__)

Observer = Callable[[Receipt, AuditRecord], object]
"""Called after commit; what it raises is logged, and never undoes the write."""


class Committed:
    """Tells every observer of a committed mutation."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def __call__(self, receipt: Receipt, audit: AuditDraft) -> None:
        """Tell the observers; never raises."""
        if not self._observers:
            return
        record = audit.record(receipt.updated_at)
        for observer in self._observers:
            try:
                observer(receipt, record)
            except Exception:
                log.exception("an observer of committed mutations failed; the write stands")


def editor(context: CallContext) -> str:
    """Who a change is attributed to, as ``last_edited_by`` shows it: the user, and the agent that acted for it."""
    agent = context.principal.agent
    return context.principal.user if agent is None else f"{context.principal.user} ({agent.name}/{agent.instance})"


def draft(
    context: CallContext,
    *,
    action: str,
    version: int,
    changed: Sequence[str],
    scope_key: str,
    audit_id: str | None = None,
    memory_id: str | None = None,
    project_id: str | None = None,
    moved_to: str | None = None,
    patch: PatchEffect | None = None,
    details: Mapping[str, Any] | None = None,
) -> AuditDraft:
    """The audit entry of a change that ``context`` makes."""
    agent = context.principal.agent
    return AuditDraft(
        id=audit_id or str(uuid4()),
        actor=context.principal.user,
        agent=f"{agent.name}/{agent.instance}" if agent else None,
        surface=context.surface,
        action=action,
        memory_id=memory_id,
        project_id=project_id,
        version=version,
        changed=tuple(changed),
        scope_key=scope_key,
        moved_to=moved_to,
        patch=patch,
        details=details,
    )
