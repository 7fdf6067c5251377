"""Idempotency keys: the same request gives its first receipt again, another request with the key is refused.

A key belongs to the principal. Its claim is stored with the write that it protects, so a key is taken exactly when its
write was applied; a replay checks access as if it wrote.
"""

from __future__ import annotations

import json

from muniment import access, mutations
from muniment.errors import IdempotencyConflict
from muniment.models import Access, CallContext, Principal, Receipt
from muniment.operations import MemoryPatch, MemoryWrite
from muniment.ports import ReceiptClaim, Storage


def _principal_id(principal: Principal) -> str:
    """The whole identity as one string that no other principal's can equal."""
    agent = principal.agent
    return json.dumps([principal.user, agent and agent.name, agent and agent.instance], ensure_ascii=False)


def _body_hash(operation: str, sent: MemoryWrite | MemoryPatch) -> str:
    return mutations.body_hash(operation, sent.model_dump(mode="json", exclude={"idempotency_key"}))


class Idempotency:
    """Looks receipts up and makes claims."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def replay(self, context: CallContext, operation: str, sent: MemoryWrite | MemoryPatch) -> Receipt | None:
        """The first receipt of this request, if it was applied before.

        Raises IdempotencyConflict, and NotFound or AccessDenied where the principal may no longer write there.
        """
        if sent.idempotency_key is None:
            return None
        stored = await self._storage.find_receipt(_principal_id(context.principal), sent.idempotency_key)
        if stored is None:
            return None
        if stored.body_hash != _body_hash(operation, sent):
            raise IdempotencyConflict
        facts = await self._storage.load(access.audience(context.principal), stored.memory_id)
        access.require(context.principal, facts, Access.WRITE, f"memory {stored.memory_id}")
        return Receipt.model_validate({**stored.receipt, "updated_at": stored.updated_at})

    def claim(
        self, context: CallContext, operation: str, sent: MemoryWrite | MemoryPatch, receipt: Receipt
    ) -> ReceiptClaim | None:
        """The claim to store with the write, if the request carries a key; the receipt's time is the storage's."""
        if sent.idempotency_key is None:
            return None
        return ReceiptClaim(
            principal=_principal_id(context.principal),
            key=sent.idempotency_key,
            body_hash=_body_hash(operation, sent),
            memory_id=receipt.id,
            receipt=receipt.model_dump(mode="json", exclude={"updated_at"}, exclude_none=True),
        )
