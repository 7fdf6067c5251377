"""The storage's one clock: this machine's, in microseconds since 1970, UTC, as all columns have it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def now() -> int:
    """The time."""
    return time.time_ns() // 1_000


def length(duration: timedelta) -> int:
    """A duration in microseconds."""
    return duration // _MICROSECOND


def stored(at: datetime) -> int:
    """A time as it is stored."""
    return length(at - _EPOCH)


def moment(at: int) -> datetime:
    """A stored time."""
    return _EPOCH + timedelta(microseconds=at)
