"""The storage seat: each method of the port, given to the module that owns it, on a thread of the database's."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from pydantic import Field

from muniment import plugin_options
from muniment.agent_models import AckOutcome, SectionName
from muniment.lexical import Terms
from muniment.models import Agent, AuditRecord, MemoryRecord
from muniment.plugin_options import PluginOptions
from muniment.ports import (
    Appended,
    Applied,
    Audience,
    AuditDraft,
    Backlog,
    Claim,
    Claimed,
    EnvelopeFacts,
    ExchangeAppend,
    Found,
    LostEvent,
    MemoryFacts,
    Mutation,
    NewEvent,
    NewProject,
    NewToken,
    Outdated,
    Passages,
    PluginContext,
    Position,
    Progress,
    ProjectFacts,
    RegisteredSpace,
    SearchQuery,
    SectionsWrite,
    Selector,
    ShareChange,
    Space,
    StoredReceipt,
    StoredToken,
    Unembedded,
    Vectors,
)
from muniment_storage_sqlite import (
    DESCRIPTOR,
    envelopes,
    events,
    filling,
    memories,
    projects,
    spaces,
    tokens,
    trail,
    writing,
)
from muniment_storage_sqlite.blocks import Blocks
from muniment_storage_sqlite.database import Database
from muniment_storage_sqlite.place import locate
from muniment_storage_sqlite.schema import STEPS
from muniment_storage_sqlite.search import search
from muniment_storage_sqlite.times import moment, now

BUSY_TIMEOUT: Final = 10.0
"""Seconds that a call waits for another process that writes, where the option ``busy_timeout`` says nothing."""


class SqliteStorage:
    """Memories and agent memory in one file. Several processes of one machine may have it open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._blocks = Blocks()

    async def open(self) -> None:
        """Make the file where there is none, and bring its schema up to date. Raises as the port says."""
        await self._database.open()

    async def close(self) -> None:
        """End what runs, release the file, and forget what was read of it."""
        await self._database.close()
        self._blocks = Blocks()

    async def migrate(self) -> tuple[str, ...]:
        """Bring the schema up to date; the names of the steps taken."""
        return await self._database.migrate()

    async def describe(self) -> Mapping[str, str]:
        """The version of SQLite, and that of the schema."""
        return {"sqlite": sqlite3.sqlite_version, "schema": str(len(STEPS))}

    # ------------------------------------------------------------ projects and memories

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        return await self._database.read(lambda on: projects.find(on, audience, name))

    async def list_projects(self, audience: Audience, *, after: Position | None, limit: int) -> Sequence[ProjectFacts]:
        return await self._database.read(lambda on: projects.list_them(on, audience, after=after, limit=limit))

    async def register_project(self, new: NewProject) -> tuple[ProjectFacts, bool]:
        return await self._database.write(lambda on: projects.register(on, new))

    async def record(self, audit: AuditDraft) -> None:
        await self._database.write(lambda on: trail.store_entry(on, audit, now()))

    async def change_share(self, change: ShareChange) -> Applied:
        return await self._database.write(lambda on: projects.change_share(on, change))

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        return await self._database.read(lambda on: memories.load(on, audience, memory_id, space=space))

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        return await self._database.read(
            lambda on: memories.list_them(on, audience, selector, after=after, limit=limit)
        )

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        return await self._database.read(lambda on: search(on, self._blocks, audience, selector, query))

    async def history(
        self, audience: Audience, memory_id: str, *, before: int | None, limit: int
    ) -> Sequence[AuditRecord]:
        return await self._database.read(lambda on: trail.history(on, audience, memory_id, before=before, limit=limit))

    async def trail(self, scope_key: str, *, after: Position | None, limit: int) -> Sequence[AuditRecord]:
        return await self._database.read(lambda on: trail.of_scope(on, scope_key, after=after, limit=limit))

    async def apply(self, mutation: Mutation) -> Applied:
        return await self._database.write(lambda on: writing.apply(on, mutation))

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        return await self._database.read(lambda on: trail.find_receipt(on, principal, key))

    async def outdated_terms(self, analyser: str, *, limit: int) -> Sequence[Outdated]:
        return await self._database.read(lambda on: memories.outdated(on, analyser, limit=limit))

    async def store_terms(self, memory_id: str, version: int, analyser: str, terms: Terms) -> bool:
        return await self._database.write(lambda on: writing.store_terms(on, memory_id, version, analyser, terms))

    # ------------------------------------------------------------ spaces

    async def register_space(self, space: Space, probes: Vectors) -> Vectors:
        return await self._database.write(lambda on: spaces.register(on, space, probes))

    async def list_spaces(self) -> Sequence[RegisteredSpace]:
        return await self._database.read(spaces.list_them)

    async def activate_space(self, space: str, embedder: str) -> bool:
        return await self._database.write(lambda on: spaces.activate(on, space, embedder))

    async def drop_space(self, space: str) -> bool:
        while (dropped := await self._database.write(lambda on: spaces.drop_some(on, space))) is None:
            pass
        return dropped

    async def optimize(self) -> Sequence[str]:
        """Nothing: search is exact, its indexes stay in order by themselves, and ``ANALYZE`` makes no plan better."""
        return ()

    async def space_progress(self, space: str) -> Progress:
        return await self._database.read(lambda on: filling.progress(on, space))

    async def unembedded(self, space: str, *, limit: int) -> Sequence[Unembedded]:
        return await self._database.read(lambda on: filling.unembedded(on, space, limit=limit))

    async def lease_unembedded(
        self, space: str, *, after: str | None, limit: int, lease: timedelta
    ) -> Sequence[Unembedded]:
        if not await self._database.read(lambda on: filling.is_any_free(on, space, after=after)):
            return ()
        return await self._database.write(lambda on: filling.lease(on, space, after=after, limit=limit, lease=lease))

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        return await self._database.write(lambda on: filling.store_passages(on, memory_id, version, passages))

    # ------------------------------------------------------------ agent memory

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        await self._database.write(lambda on: envelopes.register(on, agent, pods))

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        return await self._database.read(lambda on: envelopes.load(on, agent, sections=sections, exchanges=exchanges))

    async def write_sections(self, write: SectionsWrite) -> datetime:
        return moment(await self._database.write(lambda on: envelopes.write_sections(on, write)))

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        return await self._database.write(lambda on: envelopes.append(on, append))

    async def raise_last_seen(self, agent: Agent, revision: int) -> int:
        return await self._database.write(lambda on: envelopes.raise_last_seen(on, agent, revision))

    async def enqueue(self, event: NewEvent) -> datetime:
        return await self._database.write(lambda on: events.enqueue(on, event))

    async def claim(self, claim: Claim) -> Claimed:
        nothing = await self._database.read(lambda on: events.nothing_to_claim(on, claim))
        return nothing or await self._database.write(lambda on: events.claim(on, claim))

    async def extend(self, agent: Agent, event_id: str, token: str, lease: timedelta) -> tuple[AckOutcome, datetime]:
        return await self._database.write(lambda on: events.extend(on, agent, event_id, token, lease))

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        return await self._database.write(lambda on: events.ack(on, agent, event_id, token))

    async def dead_events(
        self, agent: Agent, *, attempts_max: int, after: Position | None, limit: int
    ) -> Sequence[LostEvent]:
        return await self._database.read(
            lambda on: events.dead(on, agent, attempts_max=attempts_max, after=after, limit=limit)
        )

    async def requeue(self, agent: Agent, event_ids: Sequence[str], *, attempts_max: int) -> Sequence[str]:
        return await self._database.write(lambda on: events.requeue(on, agent, event_ids, attempts_max=attempts_max))

    # ------------------------------------------------------------ API tokens

    async def add_token(self, token: NewToken) -> StoredToken:
        return await self._database.write(lambda on: tokens.add(on, token))

    async def find_token(self, digest: str) -> StoredToken | None:
        return await self._database.read(lambda on: tokens.find(on, digest))

    async def list_tokens(self, *, after: Position | None, limit: int) -> Sequence[StoredToken]:
        return await self._database.read(lambda on: tokens.list_them(on, after=after, limit=limit))

    async def revoke_token(self, token_id: str) -> StoredToken | None:
        return await self._database.write(lambda on: tokens.revoke(on, token_id))

    async def touch_token(self, token_id: str) -> None:
        await self._database.write_beside(lambda on: tokens.touch(on, token_id))

    # ------------------------------------------------------------ what waits

    async def backlog(self, space: str | None, *, attempts_max: int) -> Backlog:
        return await self._database.read(
            lambda on: Backlog(
                events_waiting=events.waiting(on, attempts_max=attempts_max),
                embeddings_pending=0 if space is None else filling.pending(on, space),
            )
        )

    async def agents_waiting(self, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
        return await self._database.read(lambda on: events.agents_waiting(on, agents, attempts_max=attempts_max))


class Options(PluginOptions):
    """The plugin's options: ``busy_timeout`` in seconds, for another process's write to end."""

    busy_timeout: float = Field(default=BUSY_TIMEOUT, gt=0, le=600)


def create(context: PluginContext) -> SqliteStorage:
    """The storage at ``sqlite:`` (a file in the data directory) or ``sqlite:PATH``. Raises ConfigurationError."""
    options = plugin_options.parse(Options, DESCRIPTOR.name, context.options)
    return SqliteStorage(Database(locate(context.spec, context.data_dir), context.data_dir, options.busy_timeout))
