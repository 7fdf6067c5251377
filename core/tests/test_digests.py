"""The pure rules of the digest and of takeaways."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muniment import digests, limits
from muniment.agent_models import Exchange, ExchangeKind
from muniment.digests import StoredExchange

WORST = "𝕏" * limits.TAKEAWAY_MAX
NOW = datetime(2026, 2, 3, 4, 5, 6, 789_999, tzinfo=UTC)


def stored(
    revision: int, takeaway: str = "done", peers: tuple[str, ...] = ("ada/1",), label: str = ""
) -> StoredExchange:
    exchange = Exchange(
        revision=revision,
        ts=NOW,
        kind=ExchangeKind.DM_CONCLUSION,
        surface_pod_id="p" * 64,
        surface_label=label,
        peers=peers,
        takeaway=takeaway,
    )
    size = digests.entry_size(exchange.kind, exchange.surface_pod_id, label, peers, takeaway)
    return StoredExchange(exchange, size)


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@given(st.lists(st.text(max_size=limits.TAKEAWAY_MAX), max_size=60), st.integers(0, 70))
def test_a_digest_is_the_oldest_unseen_that_fit(takeaways: list[str], last_seen: int) -> None:
    """As many as fit in 2,500 bytes by the stored sizes, oldest first; one more would not; the counts add up."""
    everything = [stored(number, text) for number, text in enumerate(takeaways, start=1)]
    kept = everything[-limits.EXCHANGES_KEPT :]
    revision = len(everything)
    last_seen = min(last_seen, revision)
    digest = digests.choose(revision, last_seen, list(reversed(kept)))
    unseen = [one for one in kept if one.exchange.revision > last_seen]
    count = len(digest.entries)
    assert list(digest.entries) == [one.exchange for one in unseen[:count]]
    assert len(compact([digests.entry_json(entry) for entry in digest.entries])) <= limits.DIGEST_BYTES_MAX
    if count < len(unseen):
        more = [digests.entry_json(one.exchange) for one in unseen[: count + 1]]
        assert len(compact(more)) > limits.DIGEST_BYTES_MAX
    assert digest.pending == len(unseen) - count
    assert digest.evicted == (revision - last_seen) - len(unseen)
    assert digest.delivered == (digest.entries[-1].revision if digest.entries else None)
    assert bool(digest.entries) == bool(unseen)


def test_the_worst_entry_fits() -> None:
    """By the limits of its fields no entry is larger than a digest can carry."""
    peers = tuple("x" * limits.ID_MAX for _ in range(limits.PEERS_MAX))
    worst = stored(1, '"' + WORST[1:], peers, "𝕐" * limits.SURFACE_LABEL_MAX)
    assert worst.size <= limits.EXCHANGE_BYTES_MAX
    assert len(digests.choose(1, 0, [worst]).entries) == 1


def test_a_payload_says_what_it_carries() -> None:
    """The revision always; the digest, what waits and what the cap took only where there is something to say."""
    nothing = digests.payload({"content": "hi"}, digests.choose(3, 3, []), cue=True)
    assert nothing == {"content": "hi", "memoryRevision": 3}
    carried = digests.payload(
        {"content": "hi"}, digests.choose(60, 0, [stored(n, WORST) for n in range(11, 61)]), cue=False
    )
    assert carried["content"] == "hi"
    assert carried["memoryDigest"][0]["takeaway"] == WORST
    assert carried["memoryDigestPending"] == 50 - len(carried["memoryDigest"])
    assert carried["memoryDigestEvicted"] == 10
    assert carried["memoryDigest"][0]["ts"] == "2026-02-03T04:05:06.789Z"


def test_the_cue_counts_what_is_new_and_leaves_other_content_alone() -> None:
    """One line before a text; a content that is no text is delivered as it is."""
    digest = digests.choose(2, 0, [stored(1), stored(2)])
    cued = digests.payload({"content": "hello"}, digest, cue=True)
    assert cued["content"] == "[memory: 2 new exchanges since your last turn]\nhello"
    assert digests.payload({"content": [1]}, digest, cue=True)["content"] == [1]
    assert "content" not in digests.payload({}, digest, cue=True)


@pytest.mark.parametrize("length", [279, 280, 281, 1_000])
def test_a_message_is_its_first_280_characters(length: int) -> None:
    """Up to 280 as it is; longer, 279 and an ellipsis."""
    text = "".join(chr(97 + number % 26) for number in range(length))
    takeaway = digests.dm_takeaway(["before", text])
    assert takeaway == (text if length <= 280 else text[:279] + "…")


def test_no_reply_is_passed_over() -> None:
    """The last message that is not NO_REPLY counts; none is empty; white space is folded first."""
    assert digests.dm_takeaway(["a  b\n\tc", "NO_REPLY", " NO_REPLY "]) == "a b c"
    assert digests.dm_takeaway(["NO_REPLY"]) == digests.dm_takeaway([]) == ""
    assert digests.dm_takeaway(["", "x\x00y\u2028z"]) == "x y z"


@given(st.text(max_size=400))
def test_a_shortened_text_never_ends_inside_a_sequence(text: str) -> None:
    """Never over the limit; what is kept is a beginning of the text, and the character after it starts a new one."""
    made = digests.shortened(text, 20)
    assert len(made) <= 20
    if len(text) > 20:
        assert made.endswith("…")
        assert text.startswith(made[:-1])


@pytest.mark.parametrize("tail", ["\u0301", "\u200d👧", "\ufe0f", "🏽"])
def test_combining_sequences_stay_whole(tail: str) -> None:
    """A base whose marks would be cut off goes with them."""
    text = "a" * 18 + "👩" + tail + "b" * 20
    made = digests.shortened(text, 20)
    assert made == "a" * 18 + "…"


def test_a_long_title_is_shortened_before_the_arrow() -> None:
    """The result is never cut; the takeaway is exactly at the limit."""
    result = "https://forge.example/acme/pulls/12345"
    made = digests.task_takeaway("t" * 500, result)
    assert len(made) == limits.TAKEAWAY_MAX
    assert made.endswith(f"…{' → '}{result}")
    assert digests.task_takeaway("Fix  the\nlogin", "done") == "Fix the login → done"


def test_a_guard_speaks_in_its_numbers() -> None:
    """The text of the design, with the guard's own numbers."""
    assert digests.loop_takeaway(8, 30) == "8 consecutive bot turns within 30 min — guard tripped"
