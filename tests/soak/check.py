"""Whether what is there after a soak is what its callers were told: read through the server, and around it.

``look`` gathers; ``check`` compares, and says of the first difference what it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from muniment import access, lexical, limits
from muniment.conformance.places import PlacedSubject
from muniment.conformance.stored import Stored, StoredAgents
from muniment.engine.cutting import cut_all
from muniment.reference import HashEmbedder
from muniment_storage_postgres.conformance import PostgresTarget
from tests.abuse.estate import Broken
from tests.soak.processes import AGENTS, USERS, Site
from tests.soak.told import Delivered, Told, kept
from tests.soak.worker import LEASE

SCHEMA = "muniment"
AT_ONCE = 8
TOLERANCE = 1e-5
PATIENCE = 60
"""Seconds that vectors which were not made while the database was away have to come."""


@dataclass
class Seen:
    """What there is in the end."""

    memories: dict[str, dict[str, Any]]
    """Every record by id, with ``user`` and ``deleted``."""
    trails: dict[str, list[tuple[int, str]]]
    """The version and the action of every entry of a memory, oldest first."""
    notes: dict[str, dict[str, Any]]
    """The sections of an agent."""
    stored: Stored
    agents: StoredAgents
    texts: dict[str, dict[str, str]]
    """The passages by hash that each live memory's content has."""


async def look(site: Site) -> Seen:
    """Read everything, of a site that nobody disturbs."""
    memories = {record["id"]: record for user in USERS for record in await _memories(site, user)}
    turns = asyncio.Semaphore(AT_ONCE)

    async def trail(memory: str) -> tuple[str, list[tuple[int, str]]]:
        async with turns:
            return memory, await _trail(site, memories[memory]["user"], memory)

    trails = dict(await asyncio.gather(*map(trail, memories)))
    notes = {agent: await _sections(site, agent) for agent in AGENTS}
    embedder = HashEmbedder()
    live = [one for one in memories.values() if not one["deleted"]]
    limit = (await embedder.space()).passage_tokens
    cut = await cut_all([one["content"] for one in live], embedder, limit)
    texts = {one["id"]: parts for one, parts in zip(live, cut, strict=True)}
    stored = await _stored(site, texts)
    assert stored.agents is not None
    return Seen(memories, trails, notes, stored, stored.agents, texts)


async def _memories(site: Site, user: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for deleted in (False, True):
        more: dict[str, Any] = {}
        while True:
            sent = {"deleted": deleted, "limit": limits.LIST_LIMIT_MAX, **more}
            page = await site.callers[user].certain("memory.list", **sent)
            found += [{**record, "user": user, "deleted": deleted} for record in page["items"]]
            if not page["cursor"]:
                break
            more = {"cursor": page["cursor"]}
    return found


async def _trail(site: Site, user: str, memory: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    more: dict[str, Any] = {}
    while True:
        page = await site.callers[user].certain("memory.history", id=memory, limit=limits.LIST_LIMIT_MAX, **more)
        found += [(entry["version"], entry["action"]) for entry in page["items"]]
        if not page["cursor"]:
            return found[::-1]
        more = {"cursor": page["cursor"]}


async def _sections(site: Site, agent: str) -> dict[str, Any]:
    view = await site.callers[agent].certain("section.read", sections=["long_term", "cycles"])
    return view["sections"]


async def _stored(site: Site, texts: Mapping[str, Collection[str]]) -> Stored:
    """What is stored once no vector is missing any more, or what there is when patience ends."""
    target = PostgresTarget(site.conninfo, site.at.data)
    subject = PlacedSubject(target.client(SCHEMA), SCHEMA)
    wanted = sum(map(len, texts.values()))
    for _ in range(PATIENCE):
        stored = await target.probe(subject)
        if len(stored.passages) >= wanted:
            return stored
        await asyncio.sleep(1)
    return await target.probe(subject)


def check(told: Told, delivered: Delivered, seen: Seen) -> None:
    """Raises Broken."""
    _memories_are_as_told(told, seen)
    _trails_are_complete(told, seen)
    _search_entries_are_right(seen)
    _notes_are_intact(told, seen)
    _exchanges_are_as_told(told, delivered, seen)
    _events_are_as_told(told, delivered, seen)
    _no_event_comes_again(delivered)


def _memories_are_as_told(told: Told, seen: Seen) -> None:
    _same("memories", set(seen.memories), set(told.memories))
    for memory in told.memories.values():
        record = seen.memories[memory.id]
        _same(f"version of {memory.id}", record["version"], memory.version)
        _same(f"deletion of {memory.id}", record["deleted"], memory.deleted)
        _same(f"user of {memory.id}", record["user"], memory.user)
        if memory.marks:
            lines = record["content"].splitlines()[2:-1]
            _same(f"lines of {memory.id}", sorted(lines), sorted(memory.marks))
        else:
            _same(f"content of {memory.id}", record["content"], memory.content)


def _trails_are_complete(told: Told, seen: Seen) -> None:
    """Each change has its one entry, and no entry is of anything else."""
    for memory in told.memories.values():
        _same(f"trail of {memory.id}", seen.trails[memory.id], list(enumerate(memory.actions, start=1)))
    stored = Counter(entry.memory_id for entry in seen.stored.audit if entry.memory_id is not None)
    _same("audit entries by memory", stored, Counter({one.id: one.version for one in told.memories.values()}))
    _same("receipts", seen.stored.receipts, told.keyed)


def _search_entries_are_right(seen: Seen) -> None:
    """Live memories have their content's passages and terms, with the embedder's vectors; deleted ones have none."""
    vectors: defaultdict[str, dict[str, tuple[float, ...]]] = defaultdict(dict)
    for one in seen.stored.passages:
        if one.hash in vectors[one.memory_id] or one.scope_key != access.user_key(seen.memories[one.memory_id]["user"]):
            raise Broken(f"passage {one.hash} of {one.memory_id} is stored twice, or elsewhere")
        vectors[one.memory_id][one.hash] = one.vector
    _same("memories with vectors", set(vectors), set(seen.texts))
    embedder = HashEmbedder()
    for memory, texts in seen.texts.items():
        _same(f"passages of {memory}", set(vectors[memory]), set(texts))
        made = np.array([embedder.vector(text) for text in texts.values()])
        off = float(np.abs(made - np.array([vectors[memory][key] for key in texts])).max())
        if off > TOLERANCE:
            raise Broken(f"a vector of {memory} is {off:g} off the embedder's")
    terms: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for one in seen.stored.terms:
        terms[one.memory_id][one.term] = one.frequency
    _same("memories with terms", set(terms), set(seen.texts))
    for memory in seen.texts:
        wanted = lexical.analyse(seen.memories[memory]["content"]).frequencies
        _same(f"terms of {memory}", terms[memory], dict(wanted))


def _notes_are_intact(told: Told, seen: Seen) -> None:
    for agent, notes in told.notes.items():
        text, cycles = seen.notes[agent]["long_term"], seen.notes[agent]["cycles"]
        _same(f"long_term of {agent}", (text["version"], text["value"] or ""), (notes.saves, notes.long_term))
        lines = [line["text"] for line in cycles["value"]]
        _same(f"cycles of {agent}", (cycles["version"], lines), (notes.logged, list(notes.cycles)))


def _exchanges_are_as_told(told: Told, delivered: Delivered, seen: Seen) -> None:
    """Revisions have no gap, the newest are kept, and what counts as seen was carried."""
    envelopes = {f"{one.agent.name}/{one.agent.instance}": one for one in seen.agents.envelopes}
    stored: defaultdict[str, list[int]] = defaultdict(list)
    for one in seen.agents.exchanges:
        stored[f"{one.agent.name}/{one.agent.instance}"].append(one.revision)
    claims = {one["token"]: one for fact in delivered.of("claimed") for one in fact["claimed"]}
    for agent, revisions in told.revisions.items():
        _same(f"revisions of {agent}", sorted(revisions), list(range(1, envelopes[agent].revision + 1)))
        _same(f"exchanges of {agent}", sorted(stored[agent], reverse=True), kept(revisions))
        sent = [fact for fact in delivered.of("acking") if fact["agent"] == agent]
        payloads = [claims[fact["acking"]["token"]]["payload"] for fact in sent]
        carried = {told.takeaways[agent, one["takeaway"]] for load in payloads for one in load.get("memoryDigest", ())}
        last = envelopes[agent].last_seen_revision
        if not any(load.get("memoryDigestEvicted") for load in payloads):
            _among(f"revisions up to the last seen of {agent}, in what was carried", range(1, last + 1), carried)


def _events_are_as_told(told: Told, delivered: Delivered, seen: Seen) -> None:
    """Each is acknowledged, at one time, by somebody who had it; none is there that nobody enqueued."""
    stored = {one.id: f"{one.agent.name}/{one.agent.instance}" for one in seen.agents.events}
    _same("events", stored, told.events)
    _same("events that still wait", [one.id for one in seen.agents.events if not one.acked], [])
    sent = {(fact["acking"]["id"], fact["acking"]["token"]) for fact in delivered.of("acking")}
    last = {(one.id, one.token or "") for one in seen.agents.events}
    _among("latest deliveries, in what was acknowledged", last, sent)
    acked = Counter(fact["acked"]["id"] for fact in delivered.of("acked") if fact["outcome"] == "acknowledged")
    _same("events acknowledged twice", [event for event, times in acked.items() if times > 1], [])


def _no_event_comes_again(delivered: Delivered) -> None:
    """Neither after its acknowledgement was told, nor before its lease was over."""
    told: dict[str, float] = {}
    for fact in delivered.of("acked"):
        if fact["outcome"] != "stale_receipt":
            told[fact["acked"]["id"]] = min(fact["at"], told.get(fact["acked"]["id"], fact["at"]))
    leases: dict[str, datetime] = {}
    for fact in delivered.of("claimed"):
        for one in fact["claimed"]:
            if fact["asked"] > told.get(one["id"], fact["asked"]):
                raise Broken(f"event {one['id']} came again after its acknowledgement was told")
            until = datetime.fromisoformat(one["lease_until"])
            if leases.get(one["id"], until) > until - timedelta(seconds=LEASE) and one["id"] in leases:
                raise Broken(f"event {one['id']} came again before its lease was over")
            leases[one["id"]] = until


Check = Callable[[Told, Delivered, Seen], None]


def _same(what: str, seen: object, wanted: object) -> None:
    if seen != wanted:
        raise Broken(f"{what}: {_short(seen)} instead of {_short(wanted)}")


def _among(what: str, some: Collection[Any], others: Collection[Any]) -> None:
    if missing := set(some) - set(others):
        raise Broken(f"{what}: without {_short(sorted(missing))}")


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 400 else f"{shown[:300]} … {shown[-80:]}"
