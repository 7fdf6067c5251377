"""Idempotency keys: claimed within the transaction that they protect, found again for as long as they are kept."""

from __future__ import annotations

import json
from datetime import datetime

from muniment import limits
from muniment.ports import ReceiptClaim, StoredReceipt
from muniment_storage_mongo import records
from muniment_storage_mongo.database import Database, Document, Session
from muniment_storage_mongo.schema import RECEIPTS

_KEPT = int(limits.IDEMPOTENCY_KEPT.total_seconds() * 1_000)
_OLDEST: Document = {"$subtract": ["$$NOW", _KEPT]}


def key(principal: str, name: str) -> Document:
    """The ``_id`` of a receipt."""
    return {"principal": principal, "key": name}


async def claim(database: Database, session: Session, wanted: ReceiptClaim | None, at: datetime) -> None:
    """Store a claim, if there is one. Raises DuplicateKeyError where its key is taken, or was and is too old."""
    if wanted is None:
        return
    document = {
        "_id": key(wanted.principal, wanted.key),
        "body_hash": wanted.body_hash,
        "subject": wanted.subject,
        "receipt": json.dumps(dict(wanted.receipt), ensure_ascii=False),
        "at": at,
    }
    await database.collection(RECEIPTS).insert_one(document, session=session)


async def find(database: Database, principal: str, name: str, session: Session | None = None) -> StoredReceipt | None:
    """The receipt kept for this key, by the server's clock."""
    condition = {"_id": key(principal, name), "$expr": {"$gt": ["$at", _OLDEST]}}
    found = await database.collection(RECEIPTS).find_one(condition, session=session)
    return records.receipt(found) if found else None


async def expire(database: Database, wanted: ReceiptClaim) -> bool:
    """Clear away a receipt that is too old and stands in the way of this claim; whether the way is free now."""
    condition = {"_id": key(wanted.principal, wanted.key)}
    receipts = database.collection(RECEIPTS)
    too_old = {**condition, "$expr": {"$lte": ["$at", _OLDEST]}}
    await database.write(lambda: receipts.delete_one(too_old))
    return await database.read(lambda: receipts.find_one(condition, {"_id": 1})) is None
