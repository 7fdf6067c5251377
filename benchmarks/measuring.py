"""How long calls take, one after the other or from several clients at once, and the processor time that they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter
from typing import TypeAlias

from processes import Processors

Call: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of calls: calls a second, p10 and p50 in milliseconds, milliseconds of processor time a call."""

    rate: float
    p10: float
    p50: float
    cpu: float


async def measured(calls: Sequence[Call], clients: int, process: int) -> Measured:
    """Run the calls, each client taking the next; ``process`` is the server's process id."""
    waiting = iter(calls)
    times: list[float] = []

    async def client() -> None:
        for call in waiting:
            began = perf_counter()
            await call()
            times.append(perf_counter() - began)

    processors = Processors(process)
    began = perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = perf_counter() - began
    cpu = processors.milliseconds() / len(calls)
    return Measured(len(calls) / seconds, quantiles(times, n=10)[0] * 1e3, median(times) * 1e3, cpu)
