"""How a thing ended, in a word of which there are few: what metrics are counted by."""

from __future__ import annotations

import asyncio

from muniment.errors import Internal, MunimentError
from muniment.ports import ReceiptTaken

OK = "ok"
CANCELLED = "cancelled"
RECEIPT_TAKEN = "receipt_taken"
"""How a storage says that an idempotency key was used before; no refusal that a caller sees."""


def outcome_of(error: BaseException) -> str:
    """The code of a refusal; of what is none, ``internal``, as callers learn it."""
    if isinstance(error, MunimentError):
        return error.code
    if isinstance(error, ReceiptTaken):
        return RECEIPT_TAKEN
    return CANCELLED if isinstance(error, asyncio.CancelledError) else Internal.code


def is_failure(error: BaseException) -> bool:
    """Whether it is the server's fault, and no answer to what was asked."""
    if isinstance(error, MunimentError):
        return error.http_status >= 500
    return not isinstance(error, ReceiptTaken | asyncio.CancelledError)
