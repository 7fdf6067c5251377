"""Which refusals are worth another attempt. The client makes the attempts, with its backoff and the server's
``Retry-After``; here is only what it cannot know: when the call's time is over, and that a used-up quota stays so.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Final

import httpx2

from muniment_embed_openai.said import Said, said_in

_USED_UP: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})


@dataclass(slots=True)
class Call:
    """A call with all its attempts: when it must end, in the event loop's time, and the status that came last."""

    ends: float
    status: int | None = None


CALL: ContextVar[Call] = ContextVar("muniment_embed_openai_call")


async def judge(response: httpx2.Response) -> None:
    """Tell the client not to try again, where that cannot help within the call's time; a hook for responses."""
    if response.status_code < 400:
        return
    call = CALL.get()
    call.status = response.status_code
    wait = seconds_to_wait(response.headers)
    too_long = wait is not None and asyncio.get_running_loop().time() + wait >= call.ends
    if not too_long and response.status_code == 429:
        await response.aread()
        too_long = is_used_up(said_in(response))
    if too_long or not is_worth_it(response.status_code):
        response.headers["x-should-retry"] = "false"
    elif response.headers.get("x-should-retry") == "true":
        del response.headers["x-should-retry"]


def is_worth_it(status: int) -> bool:
    """Whether the same request may be answered later, whatever the server says of it."""
    return status in (408, 409, 429) or status >= 500


def is_used_up(said: Said) -> bool:
    """Whether a refusal is for a quota that waiting does not fill."""
    return bool(said.codes & _USED_UP)


def seconds_to_wait(headers: httpx2.Headers) -> float | None:
    """What ``Retry-After`` asks for (RFC 9110, 10.2.3: seconds or a date); None where it asks for nothing usable."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        return seconds if seconds > 0 and not math.isnan(seconds) else None
    date = parsedate_tz(headers.get("retry-after", ""))
    try:
        return max(0.0, mktime_tz(date) - time.time()) if date else None
    except (OverflowError, ValueError):
        return None
