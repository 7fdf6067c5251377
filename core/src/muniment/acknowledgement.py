"""The rules of acknowledgement: what a token is worth, and what an acknowledgement or a read marks as seen.

Pure. The token is looked at before the status; the revision that counts is the one that the delivery persisted, never
one that a client names. That status and raise are one transaction is the storage's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from muniment.agent_models import AckOutcome


def outcome(*, latest: str | None, shown: str, acked: bool) -> AckOutcome:
    """What an acknowledgement with the token ``shown`` is for an event whose latest token is ``latest``."""
    if latest is None or shown != latest:
        return AckOutcome.STALE_RECEIPT
    return AckOutcome.ALREADY_ACKED if acked else AckOutcome.ACKNOWLEDGED


def raised(last_seen: int, delivered: int | None) -> int:
    """The last seen revision after an acknowledged delivery: it only rises, and not for one without a digest."""
    return last_seen if delivered is None else max(last_seen, delivered)


def seen_by_reading(last_seen: int, stored: Sequence[int], held: Collection[int]) -> int:
    """The last seen revision after a reply that held the revisions ``held`` of those ``stored``.

    Up to the contiguous oldest part of what is unseen: an entry that was not in the reply ends it.
    """
    for revision in sorted(stored):
        if revision <= last_seen:
            continue
        if revision not in held:
            break
        last_seen = revision
    return last_seen
