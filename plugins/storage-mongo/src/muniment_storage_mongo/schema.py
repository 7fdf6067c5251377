"""What a collection is made of, as code: its indexes and the validator that keeps foreign shapes out.

Owns the collections of projects and memories; those of agent memory are ``agent_schema``'s. Indexes of hot queries
begin with the scope key, which is the shard key. No field is ever named by a user's text, so any text may be stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pymongo import ASCENDING, DESCENDING, IndexModel

from muniment import limits

VERSION = 3
"""The schema of this release. A database that has a higher one is not used."""
STANDING = "muniment"
"""The collection whose one document says which version a database has."""

_TTL_GRACE = 3_600
"""Seconds that a receipt outlives its time, so that the server's clean-up never takes one that still counts."""


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection: its indexes, and the fields that every document has, with their types."""

    name: str
    indexes: tuple[IndexModel, ...] = ()
    required: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def validator(self) -> dict[str, Any]:
        """The validator as the server takes it; empty where nothing is asked for."""
        if not self.required and not self.properties:
            return {}
        return {
            "$jsonSchema": {
                "bsonType": "object",
                "required": list(self.required),
                "properties": dict(self.properties),
            }
        }


def index(*keys: str, **options: Any) -> IndexModel:
    """An index of ascending keys; a key with a minus before it descends."""
    ordered = [(key.removeprefix("-"), DESCENDING if key.startswith("-") else ASCENDING) for key in keys]
    return IndexModel(ordered, **options)


TEXT: Mapping[str, Any] = {"bsonType": "string"}
NUMBER: Mapping[str, Any] = {"bsonType": ["int", "long"], "minimum": 0}
MOMENT: Mapping[str, Any] = {"bsonType": "date"}

MEMORIES = "memories"
PASSAGES = "passages"
DEPARTURES = "departures"
LANES = "lanes"
GATES = "gates"
PROJECTS = "projects"
AUDIT = "audit"
RECEIPTS = "receipts"
SPACES = "spaces"
API_TOKENS = "api_tokens"

WORDS_INDEX = "words"
"""Holds a term's memories with their counts, so that its keys alone answer."""
LENGTHS_INDEX = "lengths"
"""Holds the lengths of what is live, so that its keys alone answer."""
EMBEDDED_INDEX = "embedded"
"""Holds what is live by the set of spaces that it is embedded in, which has few different values, and by id."""
SPACE_INDEX = "space_scope"
"""Holds the passages of a space, scope by scope."""
OPEN_LANES_INDEX = "open"
"""Holds the lanes that are open to a space."""
TRAIL_INDEX = "trail"
"""Holds a scope's audit entries that belong to no memory, in the order in which they are read."""

_FLAG = {"bsonType": "bool"}
_LIST = {"bsonType": "array"}
_OBJECT = {"bsonType": "object"}

COLLECTIONS = (
    Collection(
        MEMORIES,
        (
            index("scope_key", "deleted", "-created_at", "_id", name="newest"),
            index("scope_key", "deleted", "tags", "-created_at", "_id", name="tags"),
            index("scope_key", "terms.t", "terms.n", "_id", name=WORDS_INDEX),
            index("scope_key", "deleted", "length", "_id", name=LENGTHS_INDEX),
            index("scope_key", "lane", "rev", name="changes"),
            index("deleted", "embedded_in", "_id", name=EMBEDDED_INDEX),
            index("deleted", "analyser", name="outdated"),
        ),
        ("scope_key", "content", "tags", "version", "created_at", "updated_at", "deleted", "lane", "rev", "terms"),
        {
            "scope_key": TEXT,
            "content": TEXT,
            "tags": _LIST,
            "version": NUMBER,
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "deleted": _FLAG,
            "lane": NUMBER,
            "rev": NUMBER,
            "terms": _LIST,
            "embedded_in": _OBJECT,
            "leases": _LIST,
        },
    ),
    Collection(
        PASSAGES,
        (
            index("scope_key", "memory", "space", "hash", unique=True, name="memory"),
            index("space", "scope_key", name=SPACE_INDEX),
        ),
        ("scope_key", "memory", "space", "hash", "vector"),
        {"scope_key": TEXT, "memory": TEXT, "space": TEXT, "hash": TEXT, "vector": {"bsonType": "binData"}},
    ),
    Collection(
        LANES,
        (index("scope_key", "lane", "rev", name="scope"), index("spaces", name=OPEN_LANES_INDEX)),
        ("scope_key", "lane", "rev"),
        {"scope_key": TEXT, "lane": NUMBER, "rev": NUMBER, "spaces": _LIST},
    ),
    Collection(GATES, (index("space", name="space"),), ("space", "passed"), {"space": TEXT, "passed": NUMBER}),
    Collection(
        DEPARTURES,
        (
            index("scope_key", "memory", unique=True, name="memory"),
            index("scope_key", "lane", "rev", name="changes"),
        ),
        ("scope_key", "memory", "lane", "rev"),
        {"scope_key": TEXT, "memory": TEXT, "lane": NUMBER, "rev": NUMBER},
    ),
    Collection(
        PROJECTS,
        (
            index("owner", "key", unique=True, name="owner"),
            index("shares.group", name="shares"),
            index("key", name="key"),
        ),
        ("key", "owner", "version", "shares", "created_at", "updated_at"),
        {"key": TEXT, "owner": TEXT, "version": NUMBER, "shares": _LIST, "created_at": MOMENT, "updated_at": MOMENT},
    ),
    Collection(
        AUDIT,
        (
            index("memory_id", "-version", name="history"),
            index("scope_key", "-at", "_id", name=TRAIL_INDEX, partialFilterExpression={"memory_id": None}),
        ),
        ("at", "actor", "action", "version", "scope_key"),
        {"at": MOMENT, "actor": TEXT, "action": TEXT, "version": NUMBER, "scope_key": TEXT},
    ),
    Collection(
        RECEIPTS,
        (index("at", name="expiry", expireAfterSeconds=int(limits.IDEMPOTENCY_KEPT.total_seconds()) + _TTL_GRACE),),
        ("body_hash", "subject", "receipt", "at"),
        {"body_hash": TEXT, "subject": TEXT, "receipt": TEXT, "at": MOMENT},
    ),
    Collection(
        SPACES,
        (),
        ("dimensions", "probes", "registration", "registered_at"),
        {
            "dimensions": NUMBER,
            "probes": _LIST,
            "registration": {"bsonType": "objectId"},
            "registered_at": MOMENT,
            "activated_at": {"bsonType": ["date", "null"]},
        },
    ),
    Collection(
        API_TOKENS,
        (index("digest", unique=True, name="digest"), index("-created_at", "_id", name="newest")),
        ("digest", "user", "groups", "scopes", "created_at"),
        {"digest": TEXT, "user": TEXT, "groups": _LIST, "scopes": _LIST, "created_at": MOMENT},
    ),
)
"""What this module owns."""

RETIRED: Mapping[str, tuple[str, ...]] = {MEMORIES: ("unembedded",), PASSAGES: ("space",)}
"""Indexes of earlier releases, by collection; their names are not used again."""
