"""How often a principal may call: the bucket by a clock of the test's own, and what the configuration says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from muniment.errors import RateLimited
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Callers
from muniment.serving.rates import Rates
from muniment.serving.settings import LimitSettings

ANN = Principal(user="ann")


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def admitted(admit: Callable[[Principal], None], principal: Principal, times: int) -> int:
    """How many of so many requests at once are let through."""
    through = 0
    for _ in range(times):
        try:
            admit(principal)
        except RateLimited:
            continue
        through += 1
    return through


def test_a_burst_and_then_the_rate() -> None:
    """As many at once as the burst; then as many as the time that went by has earned, and never more than a burst."""
    clock = Clock()
    rates = Rates(60, 5, clock=clock)

    assert admitted(rates.admit, ANN, 20) == 5
    clock.now += 3
    assert admitted(rates.admit, ANN, 20) == 3
    clock.now += 3_600
    assert admitted(rates.admit, ANN, 20) == 5


@pytest.mark.parametrize(("per_minute", "wait"), [(60, 1), (1, 60), (7, 9), (100_000, 1)])
def test_whoever_waits_as_long_as_it_says_is_let_through(per_minute: int, wait: int) -> None:
    """Whole seconds, at least one; however often it was tried meanwhile."""
    clock = Clock()
    rates = Rates(per_minute, 1, clock=clock)
    rates.admit(ANN)
    with pytest.raises(RateLimited, match=f"wait {wait} s") as refusal:
        rates.admit(ANN)
    assert refusal.value.retry_after == refusal.value.details["retry_after"] == wait
    assert admitted(rates.admit, ANN, 50) == 0
    clock.now += wait
    rates.admit(ANN)


def test_each_principal_has_its_own() -> None:
    """Another user, and each agent instance of one user's, whatever their groups are."""
    clock = Clock()
    rates = Rates(60, 2, clock=clock)
    ada = Principal(user="ann", agent=Agent(name="ada", instance="1"))
    others = [ada, ada.model_copy(update={"agent": Agent(name="ada", instance="2")}), Principal(user="bob")]

    assert admitted(rates.admit, ANN, 9) == 2
    assert [admitted(rates.admit, other, 9) for other in others] == [2, 2, 2]
    assert admitted(rates.admit, Principal(user="ann", groups=frozenset({"new"})), 9) == 0


def test_buckets_are_bounded_in_number() -> None:
    """Whoever has been away longest is forgotten first, and never whoever is calling."""
    clock = Clock()
    rates = Rates(1, 1, clock=clock, kept=3)
    users = [Principal(user=f"user {number}") for number in range(50)]
    rates.admit(ANN)
    for user in users:
        rates.admit(user)
        assert admitted(rates.admit, ANN, 1) == 0

    assert admitted(rates.admit, users[-1], 1) == 0
    assert admitted(rates.admit, users[0], 1) == 1


async def test_a_request_is_counted_and_a_look_at_who_calls_is_not() -> None:
    """``Callers`` asks for each request, for whoever is proved."""
    asked: list[Principal] = []
    callers = Callers(CallContext(principal=ANN), anybody=True, admit=asked.append)

    assert (await callers.proved(None)).principal == ANN
    assert asked == []
    assert (await callers.context(None)).principal == ANN
    assert asked == [ANN]


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        (LimitSettings(), None),
        (LimitSettings(requests_per_minute=600), (600, 100)),
        (LimitSettings(requests_per_minute=1), (1, 1)),
        (LimitSettings(requests_per_minute=60, burst=2), (60, 2)),
    ],
)
def test_a_burst_is_ten_seconds_worth_unless_it_is_set(settings: LimitSettings, rate: tuple[int, int] | None) -> None:
    """And at least one request; without a rate nothing is limited."""
    assert settings.rate == rate
