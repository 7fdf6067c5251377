"""How much and how long: every limit of the product, once, the same on every path.

Lengths of text are in code points unless a name says bytes. The operations' input models and the engine read
these; no plugin repeats them.
"""

from __future__ import annotations

from datetime import timedelta

CONTENT_MAX = 64_000
"""A memory's content, after the edit."""
TAGS_MAX = 32
TAG_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
PROJECT_KEY_PATTERN = r"^[A-Za-z0-9._/-]{1,200}$"
AGENT_NAME_PATTERN = r"^[A-Za-z0-9._:@/+-]{1,64}$"
NAME_MAX = 200
"""A user's or a group's name, as an authenticator gives it."""
ID_MAX = 64
IDEMPOTENCY_KEY_MAX = 200
IDEMPOTENCY_KEPT = timedelta(hours=24)
CURSOR_MAX = 1_000

QUERY_MAX = 2_000
LIST_LIMIT_DEFAULT = 20
LIST_LIMIT_MAX = 200
SEARCH_LIMIT_DEFAULT = 10
SEARCH_LIMIT_MAX = 50
PAGE_CONTENT_MAX = 48_000
"""Characters of content in one page of list or search; one item always fits."""

DIMENSIONS_MIN = 8
DIMENSIONS_MAX = 4_096
"""Numbers of a vector that a storage keeps."""

PATCH_ATTEMPTS = 8
"""How often the engine tries an unversioned patch before a race ends in version_conflict."""

TAKEAWAY_MAX = 280
SURFACE_LABEL_MAX = 80
PEERS_MAX = 8
EXCHANGES_KEPT = 50
EXCHANGE_BYTES_MAX = 2_400
"""An exchange as it stands in a digest, in bytes of JSON; the limits of its fields keep every one below this."""
DIGEST_BYTES_MAX = 2_500
DEDUPE_KEY_MAX = 200
PODS_MAX = 64
SENDER_MESSAGES_MAX = 20

SECTION_BYTES_MAX = 1_000_000
SECTION_BYTES_WARNED = 256_000
SECTIONS_WRITABLE = 7
"""How many sections a sync may hold."""
SECTION_ENTRIES_MAX = 1_000
CYCLES_KEPT = 40
CYCLE_MAX = 500

EVENT_PAYLOAD_BYTES_MAX = 64_000
CLAIM_MAX = 20
LEASE_SECONDS_DEFAULT = 60
LEASE_SECONDS_MAX = 3_600
ATTEMPTS_MAX = 5
"""Deliveries of one event; after the last lease ran out it is dead."""

JSON_ESCAPE_MAX = 6
"""Bytes that JSON may take for one of a value. The worst is an escape, \\uXXXX, of a character of one byte, as some
encoders write DEL; one of two bytes takes three times as many, one of three or four twice and three times."""
BODY_MAX = SECTIONS_WRITABLE * SECTION_BYTES_MAX * JSON_ESCAPE_MAX + 1_000_000
"""Bytes of a request over a network. The largest is a sync of every section, each at its limit and escaped throughout;
the rest is for what is around the values."""
