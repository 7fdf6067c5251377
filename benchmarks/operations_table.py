"""The table of the benchmark of operations: what ours is of the driver's, and the goals beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeAlias

from event_sides import DRIVER, Whole
from measuring import Measured

CLIENTS = (1, 16)
OURS = Whole.name
OPERATIONS = ("get", "list", "write", "patch", "update", "replace", "delete")
SEARCHES = ("search 1,000", "search 10,000")
BESIDE = " beside others"
OF_AGENTS = ("append", "claim + ack")
GOALS: Mapping[str, float] = {
    "get": 1.6,
    "write": 1.3,
    "patch": 1.4,
    "update": 1.4,
    **dict.fromkeys(SEARCHES, 1.25),
}
"""Times of the driver's, at most, by p10 or by processor time."""
THROUGHPUT = 0.8
"""Of the driver's calls a second, at least, with 16 clients."""
ITSELF = 1.2
"""Times of a search with the readable memories alone, at most."""

Found: TypeAlias = dict[tuple[str, int, str], list[Measured]]
"""Every round's, by operation, clients and side."""


def report(backend: str, found: Found, *, rounds: int, calls: int, foreign: int) -> None:
    """Print everything about a storage."""
    print(f"\n{backend}: engine and bare driver, medians of {rounds} rounds of {calls} calls; ms, and calls/s")
    few, many = CLIENTS
    print(f"{'':<14}{'ours':^16}{'driver':^16}{'CPU':^16}{'ratio':^22}{f'{many} clients':^34}")
    _row(
        "", ["p10", "p50", "p10", "p50", "ours", "driver", "p10", "CPU", "goal", "ours/s", "driver/s", "ratio", "goal"]
    )
    for operation in (*OPERATIONS, *SEARCHES, *OF_AGENTS):
        _compared(operation, operation, found)
    print(f"with {foreign:,} memories of others in the tables:")
    for operation in SEARCHES:
        _compared(operation, operation + BESIDE, found)
    print(f"the same over itself without them, at most {ITSELF} by p10 or CPU:")
    for operation in SEARCHES:
        for side in (OURS, DRIVER):
            alone, beside = (found[name, few, side] for name in (operation, operation + BESIDE))
            p10, cpu = _ratio(beside, alone, lambda one: one.p10), _ratio(beside, alone, lambda one: one.cpu)
            verdict = _verdict(min(p10, cpu) <= ITSELF) if side == OURS else ""
            print(f"{operation:<14}{side:<8} p10 {p10:.2f}  CPU {cpu:.2f}  {verdict}")


def _compared(title: str, operation: str, found: Found) -> None:
    few, many = CLIENTS
    ours, raw = found[operation, few, OURS], found[operation, few, DRIVER]
    of_many = [found[operation, many, side] for side in (OURS, DRIVER)]
    p10, cpu = _ratio(ours, raw, lambda one: one.p10), _ratio(ours, raw, lambda one: one.cpu)
    rate = _ratio(of_many[0], of_many[1], lambda one: one.rate)
    goal = GOALS.get(title)
    _row(
        title,
        [
            *(f"{median(values):.2f}" for side in (ours, raw) for values in _times(side)),
            *(f"{median(one.cpu for one in side):.2f}" for side in (ours, raw)),
            f"{p10:.2f}",
            f"{cpu:.2f}",
            "" if goal is None else f"<={goal} {_verdict(min(p10, cpu) <= goal)}",
            *(f"{median(one.rate for one in side):,.0f}" for side in of_many),
            f"{rate:.2f}",
            f">={THROUGHPUT} {_verdict(rate >= THROUGHPUT)}",
        ],
    )


def _times(side: Sequence[Measured]) -> tuple[list[float], list[float]]:
    return [one.p10 for one in side], [one.p50 for one in side]


def _ratio(ours: Sequence[Measured], theirs: Sequence[Measured], figure: Callable[[Measured], float]) -> float:
    """The median of the rounds' own."""
    return median(figure(one) / figure(other) for one, other in zip(ours, theirs, strict=True))


def _verdict(met: bool) -> str:
    return "met" if met else "no"


def _row(title: str, figures: Sequence[str]) -> None:
    widths = (8, 8, 8, 8, 8, 8, 7, 7, 11, 9, 10, 7, 11)
    print(f"{title:<14}" + "".join(f"{one:>{width}}" for one, width in zip(figures, widths, strict=True)))
