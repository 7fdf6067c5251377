"""What the steps of every act share: how one deviates, and how a promised refusal is checked."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from muniment.demo.clients import Refused


class Deviation(Exception):
    """A step did not do what it promises."""


def check(held: bool, otherwise: str) -> None:
    """Go on if a promise held. Raises Deviation."""
    if not held:
        raise Deviation(otherwise)


async def refused(attempt: Awaitable[Any], code: str) -> Refused:
    """The refusal of a call that must be refused with ``code``. Raises Deviation."""
    try:
        await attempt
    except Refused as refusal:
        check(refusal.code == code, f"refused with {refusal.code}, not {code}")
        return refusal
    raise Deviation(f"it was not refused; {code} was promised")
