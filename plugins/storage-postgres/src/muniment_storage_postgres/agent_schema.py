"""The tables of agent memory, in the metadata of ``schema``; how a database gets them is the migrations'.

Every key begins with the agent's, so these tables can be distributed by it. Values and payloads are JSON as text:
nothing asks inside them, ``jsonb`` would give back an integer for a float such as 1e23, and a text is neither parsed
nor built again. An event that waits is in ``event_pending``, one that is out in ``event_leased``; one that is
acknowledged is in neither, so a claim costs what waits and not what ever was.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from muniment_storage_postgres.schema import metadata

__all__ = ["AGENT", "envelope", "event", "exchange", "exchange_key", "metadata", "section"]

AGENT = ("agent_name", "instance_id")
"""The agent's key."""


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text(collation="C"), nullable=nullable)


def _integer(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False)


def _number(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _moment(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _texts(name: str) -> Column[Any]:
    return Column(name, ARRAY(Text(collation="C")), nullable=False)


def _agent() -> tuple[Column[str], ...]:
    return tuple(_text(name) for name in AGENT)


envelope = Table(
    "envelope",
    metadata,
    *_agent(),
    _number("revision"),
    _number("last_seen"),
    _number("oldest"),
    _text("sync_key", nullable=True),
    _texts("pods"),
    PrimaryKeyConstraint(*AGENT, name="envelope_pkey"),
)
"""``oldest`` is the lowest revision that the cap has left; an exchange below it is gone, also where its row is not."""

section = Table(
    "section",
    metadata,
    *_agent(),
    _text("name"),
    _text("value"),
    _text("visibility"),
    _integer("version"),
    _integer("byte_size"),
    _moment("updated_at"),
    PrimaryKeyConstraint(*AGENT, "name", name="section_pkey"),
)

exchange = Table(
    "exchange",
    metadata,
    *_agent(),
    _number("revision"),
    _moment("at"),
    _text("kind"),
    _text("surface_pod_id"),
    _text("surface_label"),
    _texts("peers"),
    _text("takeaway"),
    _integer("size"),
    PrimaryKeyConstraint(*AGENT, "revision", name="exchange_pkey"),
)

exchange_key = Table(
    "exchange_key",
    metadata,
    *_agent(),
    _text("dedupe_key"),
    _number("revision"),
    PrimaryKeyConstraint(*AGENT, "dedupe_key", name="exchange_key_pkey"),
)
"""Every dedupe key that an agent has had, kept for ever, with the revision that it got."""

event = Table(
    "event",
    metadata,
    *_agent(),
    _text("id"),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    _text("payload"),
    _moment("enqueued_at"),
    Column("acked", Boolean, nullable=False),
    _integer("attempts"),
    _text("token", nullable=True),
    _moment("lease_until", nullable=True),
    _number("delivered", nullable=True),
    PrimaryKeyConstraint(*AGENT, "id", name="event_pkey"),
    Index("event_pending", *AGENT, "number", postgresql_where=text("token IS NULL")),
    Index("event_leased", *AGENT, "attempts", "lease_until", postgresql_where=text("token IS NOT NULL AND NOT acked")),
)
"""``number`` is its place in the queue; ``token`` and what follows it are the latest delivery's."""
