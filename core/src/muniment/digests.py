"""The rules of the digest: what of an envelope's exchanges rides in one event, and what a payload says about the rest.

Pure. A digest holds the oldest unseen entries, as many as fit in ``limits.DIGEST_BYTES_MAX`` of compact UTF-8 JSON.
Sizes are those stored with the entries, so nothing is built to be measured. A storage reads what it needs in one
snapshot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from muniment import limits
from muniment.agent_models import Exchange, ExchangeKind

REVISION = "memoryRevision"
DIGEST = "memoryDigest"
PENDING = "memoryDigestPending"
EVICTED = "memoryDigestEvicted"
RESERVED = (REVISION, DIGEST, PENDING, EVICTED)
"""The names that a delivery adds to a payload; an event's own payload may not have them."""

NO_REPLY = "NO_REPLY"
_ELLIPSIS = "…"
_ARROW = " → "
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff]+")
_JOINED = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e3a"
    "\u0e47-\u0e4e\u1ab0-\u1aff\u1dc0-\u1dff\u200d\u20d0-\u20ff\u3099\u309a\ufe00-\ufe0f\ufe20-\ufe2f"
    "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
)
"""Characters that belong to the one before them."""


@dataclass(frozen=True, slots=True)
class StoredExchange:
    """An exchange with its ``size`` in a digest, in bytes."""

    exchange: Exchange
    size: int


@dataclass(frozen=True, slots=True)
class Digest:
    """What one delivery says: the envelope's ``revision``, the entries that it carries, how many unseen ones did not
    fit, and how many the cap took unseen."""

    revision: int
    entries: tuple[Exchange, ...]
    pending: int
    evicted: int

    @property
    def delivered(self) -> int | None:
        """The revision up to which an acknowledgement of this delivery marks entries as seen; None for none."""
        return self.entries[-1].revision if self.entries else None


def choose(revision: int, last_seen: int, stored: Sequence[StoredExchange]) -> Digest:
    """The digest of an envelope from its stored entries, in any order, read in one snapshot with both numbers."""
    unseen = sorted(
        (entry for entry in stored if entry.exchange.revision > last_seen), key=lambda entry: entry.exchange.revision
    )
    fitting = fit([entry.size for entry in unseen])
    return Digest(
        revision=revision,
        entries=tuple(entry.exchange for entry in unseen[:fitting]),
        pending=len(unseen) - fitting,
        evicted=revision - last_seen - len(unseen),
    )


def fit(sizes: Sequence[int]) -> int:
    """How many entries of these sizes, from the first on, make an array of at most ``DIGEST_BYTES_MAX`` bytes.

    An array of n entries has its brackets and n - 1 commas besides them.
    """
    total = 1
    for count, size in enumerate(sizes):
        total += size + 1
        if total > limits.DIGEST_BYTES_MAX:
            return count
    return len(sizes)


def payload(given: dict[str, Any], digest: Digest, *, cue: bool) -> dict[str, Any]:
    """An event's payload as it is delivered. With ``cue`` a text ``content`` begins with one line about the digest."""
    made = {**given, REVISION: digest.revision}
    if not digest.entries:
        return made
    made[DIGEST] = [entry_json(entry) for entry in digest.entries]
    if digest.pending:
        made[PENDING] = digest.pending
    if digest.evicted:
        made[EVICTED] = digest.evicted
    content = given.get("content")
    if cue and isinstance(content, str):
        count = len(digest.entries) + digest.pending
        made["content"] = f"[memory: {count} new exchanges since your last turn]\n{content}"
    return made


def entry_json(exchange: Exchange) -> dict[str, Any]:
    """An exchange in the field names of a payload; ``ts`` always has the same width."""
    return {
        "ts": moment(exchange.ts),
        "kind": exchange.kind.value,
        "surfacePodId": exchange.surface_pod_id,
        "surfaceLabel": exchange.surface_label,
        "peers": list(exchange.peers),
        "takeaway": exchange.takeaway,
    }


def entry_size(kind: ExchangeKind, surface_pod_id: str, surface_label: str, peers: Sequence[str], takeaway: str) -> int:
    """An exchange's size in a digest, in bytes of compact UTF-8 JSON; every ``ts`` has the same."""
    entry = Exchange(
        revision=0,
        ts=datetime.min.replace(tzinfo=UTC),
        kind=kind,
        surface_pod_id=surface_pod_id,
        surface_label=surface_label,
        peers=tuple(peers),
        takeaway=takeaway,
    )
    return len(json.dumps(entry_json(entry), ensure_ascii=False, separators=(",", ":")).encode())


def moment(at: datetime) -> str:
    """A time in ISO 8601, UTC, to the millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def one_line(text: str) -> str:
    """Runs of white space and control characters become one space; none at the ends."""
    return _BLANK.sub(" ", text).strip()


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning and ``…``, ``limit`` characters in all; a combining sequence is never cut, and then
    it is that much shorter."""
    if len(text) <= limit:
        return text
    end = limit - len(_ELLIPSIS)
    while end > 0 and (_JOINED.match(text[end]) or text[end - 1] == "\u200d"):
        end -= 1
    return text[:end] + _ELLIPSIS


def dm_takeaway(messages: Sequence[str]) -> str:
    """The last of a sender's messages, oldest first, that is not ``NO_REPLY``; empty when there was none."""
    said = (one_line(message) for message in reversed(messages))
    return shortened(next((text for text in said if text != NO_REPLY), ""), limits.TAKEAWAY_MAX)


def loop_takeaway(turns: int, minutes: int) -> str:
    """What a guard against loops did, in the guard's numbers."""
    return f"{turns} consecutive bot turns within {minutes} min — guard tripped"


def task_takeaway(title: str, result: str) -> str:
    """``<title> → <pr url or status>``; when too long the title is shortened."""
    title, result = one_line(title), one_line(result)
    room = limits.TAKEAWAY_MAX - len(_ARROW) - len(result)
    return f"{shortened(title, max(room, 1))}{_ARROW}{result}"


def kind_is_recorded(kind: ExchangeKind) -> bool:
    """Whether anything records this kind."""
    return kind is not ExchangeKind.CROSS_POD_MENTION
