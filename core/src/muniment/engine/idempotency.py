"""Idempotency keys: the same request gives its first receipt again, another request with the key is refused.

A key belongs to the principal. Its claim is stored with the write that it protects, so a key is taken exactly when its
write was applied. What a replay has to check again, and what it answers, is the operation's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from muniment import mutations
from muniment.errors import IdempotencyConflict
from muniment.models import CallContext, Principal
from muniment.operations.agents import EventEnqueue, ExchangeDmConcluded, ExchangeLoopTripped, ExchangeTaskCompleted
from muniment.operations.memories import MemoryPatch, MemoryWrite
from muniment.ports import ReceiptClaim, Storage, StoredReceipt

Keyed: TypeAlias = (
    MemoryWrite | MemoryPatch | ExchangeDmConcluded | ExchangeLoopTripped | ExchangeTaskCompleted | EventEnqueue
)
"""The inputs that may carry a key."""


def _principal_id(principal: Principal) -> str:
    """The whole identity as one string that no other principal's can equal."""
    agent = principal.agent
    return json.dumps([principal.user, agent and agent.name, agent and agent.instance], ensure_ascii=False)


def _body_hash(operation: str, sent: Keyed) -> str:
    return mutations.body_hash(operation, sent.model_dump(mode="json", exclude={"idempotency_key"}))


class Idempotency:
    """Looks receipts up and makes claims."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def find(self, context: CallContext, operation: str, sent: Keyed) -> StoredReceipt | None:
        """What was stored with this request, if it was applied before. Raises IdempotencyConflict."""
        if sent.idempotency_key is None:
            return None
        stored = await self._storage.find_receipt(_principal_id(context.principal), sent.idempotency_key)
        if stored is not None and stored.body_hash != _body_hash(operation, sent):
            raise IdempotencyConflict
        return stored

    def claim(
        self, context: CallContext, operation: str, sent: Keyed, subject: str, receipt: Mapping[str, Any]
    ) -> ReceiptClaim | None:
        """The claim to store with the write, if the request carries a key.

        ``subject`` is the id of what was written; ``receipt`` is the answer without its time, which is the storage's.
        """
        if sent.idempotency_key is None:
            return None
        return ReceiptClaim(
            principal=_principal_id(context.principal),
            key=sent.idempotency_key,
            body_hash=_body_hash(operation, sent),
            subject=subject,
            receipt=receipt,
        )
