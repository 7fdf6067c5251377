"""How a thing ended, in a word of which there are few: what metrics are counted by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from muniment.errors import Internal, MunimentError
from muniment.ports import ReceiptTaken

OK = "ok"
CANCELLED = "cancelled"
RECEIPT_TAKEN = "receipt_taken"
"""How a storage says that an idempotency key was used before; no refusal that a caller sees."""


@contextmanager
def ending(note: Callable[[str, float], None]) -> Generator[None]:
    """Around one thing: ``note`` is told how it ended, and after how many seconds."""
    began = time.perf_counter()
    outcome = OK
    try:
        yield
    except BaseException as error:
        outcome = outcome_of(error)
        raise
    finally:
        note(outcome, time.perf_counter() - began)


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
