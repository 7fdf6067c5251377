"""The pure rules of acknowledgement."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muniment import acknowledgement
from muniment.agent_models import AckOutcome


def test_the_token_is_looked_at_before_the_status() -> None:
    """An earlier token is stale whether or not the event was acknowledged; the latest one repeats harmlessly."""
    outcome = acknowledgement.outcome
    assert outcome(latest="b", shown="a", acked=False) is AckOutcome.STALE_RECEIPT
    assert outcome(latest="b", shown="a", acked=True) is AckOutcome.STALE_RECEIPT
    assert outcome(latest=None, shown="a", acked=False) is AckOutcome.STALE_RECEIPT
    assert outcome(latest="b", shown="b", acked=False) is AckOutcome.ACKNOWLEDGED
    assert outcome(latest="b", shown="b", acked=True) is AckOutcome.ALREADY_ACKED


def test_last_seen_only_rises() -> None:
    """By max, and not at all for a delivery that carried nothing."""
    assert acknowledgement.raised(5, 7) == 7
    assert acknowledgement.raised(7, 5) == 7
    assert acknowledgement.raised(7, None) == 7


@given(st.integers(0, 30), st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)))
def test_reading_sees_the_contiguous_oldest_part(last_seen: int, stored: set[int], held: set[int]) -> None:
    """Whatever is stored, unseen and at or below the result was in the reply; the next one was not."""
    held &= stored
    seen = acknowledgement.seen_by_reading(last_seen, list(stored), held)
    assert seen >= last_seen
    assert {revision for revision in stored if last_seen < revision <= seen} <= held
    following = min((revision for revision in stored if revision > seen), default=None)
    assert following is None or following not in held
