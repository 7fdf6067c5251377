"""How often each principal may call: token buckets, kept in the process.

A bucket holds at most ``burst`` tokens, gains them at an even rate, and each request takes one. A request that is
refused takes none, so that whoever waits as long as the refusal says is let through.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from muniment.errors import RateLimited
from muniment.models import Principal

PRINCIPALS_KEPT = 10_000
"""Principals whose buckets are kept; that of who has been away longest, which is the fullest, is the first to go."""

MINUTE = 60.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Rates:
    """The buckets. ``clock`` counts seconds and never goes back; ``kept`` is how many buckets there may be."""

    def __init__(
        self,
        requests_per_minute: int,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        kept: int = PRINCIPALS_KEPT,
    ) -> None:
        self._per_minute = requests_per_minute
        self._burst = burst
        self._clock = clock
        self._kept = kept
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def admit(self, principal: Principal) -> None:
        """Take a token of a principal's. Raises RateLimited."""
        now, per_second = self._clock(), self._per_minute / MINUTE
        bucket = self._bucket(principal.caller, now)
        bucket.tokens = min(float(self._burst), bucket.tokens + (now - bucket.at) * per_second)
        bucket.at = now
        if bucket.tokens < 1:
            wait = max(1, math.ceil((1 - bucket.tokens) / per_second))
            raise RateLimited(
                f"You may send {self._per_minute:,} requests a minute, and {self._burst:,} at once; wait {wait} s and "
                "try again.",
                limit=self._per_minute,
                retry_after=wait,
            )
        bucket.tokens -= 1

    def _bucket(self, owner: Hashable, now: float) -> _Bucket:
        bucket = self._buckets.get(owner)
        if bucket is None:
            bucket = self._buckets[owner] = _Bucket(float(self._burst), now)
            if len(self._buckets) > self._kept:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(owner)
        return bucket
