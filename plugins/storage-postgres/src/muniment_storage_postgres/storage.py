"""``muniment.ports.Storage`` on PostgreSQL: each method is one statement of ``sql``, and search a few in one snapshot.

Owns the life of the storage (server, schema, pool) and what an answer without rows means; spaces, agents and tokens are
their own modules'. It holds no rule of core's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from muniment import access, limits
from muniment.errors import ConfigurationError, VersionConflict
from muniment.lexical import Terms
from muniment.models import AuditRecord, MemoryRecord
from muniment.ports import (
    Applied,
    Audience,
    AuditDraft,
    Backlog,
    Create,
    Found,
    MemoryFacts,
    Mutation,
    NewProject,
    Outdated,
    PluginContext,
    Position,
    ProjectFacts,
    SearchQuery,
    Selector,
    ShareChange,
    StoredReceipt,
)
from muniment.ports.refusals import no_project, not_open, project_not_stored
from muniment_storage_postgres import migrate, mutations, records, search, settings, upkeep
from muniment_storage_postgres.agents import PostgresAgents
from muniment_storage_postgres.database import Database
from muniment_storage_postgres.mind import Mind
from muniment_storage_postgres.server import Server
from muniment_storage_postgres.settling import Settler
from muniment_storage_postgres.spaces import PostgresSpaces
from muniment_storage_postgres.tokens import PostgresTokens

_KNOWN_SCOPES = 10_000
"""Numbers of scopes that are kept in mind."""


def create(context: PluginContext) -> PostgresStorage:
    """The storage of ``embedded:`` and ``postgresql://…``, not opened. Raises ConfigurationError."""
    return PostgresStorage(Server(settings.parse(context)))


class PostgresStorage(PostgresSpaces, PostgresAgents, PostgresTokens):
    """Keeps everything in one PostgreSQL database."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._opened: Database | None = None
        self._life = asyncio.Lock()
        self._revision: str | None = None
        self._scopes: dict[str, int] = {}
        self._mind = Mind(server.options.search_cache_mb * 1_000_000)
        self._settler = Settler()

    # ------------------------------------------------------------ life

    async def open(self) -> None:
        """Start or find the server, bring its schema up to date, connect."""
        async with self._life:
            if self._opened is not None:
                return
            try:
                self._opened = await self._connected()
                self._settler.begin(self._opened)
            except BaseException:
                await self._server.stop()
                raise

    async def close(self) -> None:
        """Close the connections, and leave an embedded server."""
        async with self._life:
            database, self._opened = self._opened, None
            if database is not None:
                await self._settler.close()
                await database.close()
            await self._server.stop()

    async def migrate(self) -> tuple[str, ...]:
        """Bring the schema up to date. Works on a storage that is open and on one that is not."""
        conninfo = await self._server.start()
        try:
            return await self._server.migrate(conninfo)
        finally:
            if self._opened is None:
                await self._server.stop()

    async def describe(self) -> Mapping[str, str]:
        """Versions, and how the server runs."""
        row = await self._database.row("describe", {})
        server, pgvector = row or ("unknown", "unknown")
        return {
            "server": f"PostgreSQL {server}",
            "pgvector": pgvector,
            "mode": "embedded" if self._server.embedded else "server",
            "place": self._server.place,
            "schema": f"{self._server.options.schema_name} at revision {self._revision}",
        }

    async def _connected(self) -> Database:
        conninfo = await self._server.start()
        standing = await self._server.inspect(conninfo)
        if not migrate.standing(standing.revision, place=self._server.place):
            if not self._server.options.migrate:
                raise ConfigurationError(
                    f"PostgreSQL ({self._server.place}) does not have the schema of this release, and migrate = false "
                    "forbids making it at start; run muniment migrate."
                )
            await self._server.migrate(conninfo)
            standing = await self._server.inspect(conninfo)
        self._revision = standing.revision
        database = self._server.database(conninfo, standing)
        database.forget = self._forget
        try:
            await database.open()
        except BaseException:
            await database.close()
            raise
        return database

    def _forget(self) -> None:
        """Forget what is kept in mind of the database."""
        self._scopes.clear()
        self._mind.forget()

    @property
    def _database(self) -> Database:
        if self._opened is None:
            raise not_open()
        return self._opened

    # ------------------------------------------------------------ projects

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        """The audience's projects with this key or id."""
        found = await self._database.rows("find_projects", {**records.of_audience(audience), "name": name})
        return [records.project_facts(row) for row in found]

    async def list_projects(self, audience: Audience, *, after: Position | None, limit: int) -> Sequence[ProjectFacts]:
        """The audience's projects, newest first."""
        parameters = {**records.of_audience(audience), **records.of_position(after), "limit": limit}
        return [records.project_facts(row) for row in await self._database.rows("list_projects", parameters)]

    async def register_project(self, new: NewProject) -> tuple[ProjectFacts, bool]:
        """Insert unless (owner, key) is there."""
        made = await self._database.change(
            "register_project",
            {
                "id": new.id,
                "scope_key": access.project_key(new.id),
                "key": new.key,
                "owner": new.owner,
                **records.of_audit(new.audit),
            },
        )
        parameters = {**records.of_audience(Audience(new.owner)), "key": new.key}
        row = await self._database.row("owned_project", parameters)
        if row is None:
            raise project_not_stored(new.key)
        return records.project_facts(row), made is not None

    async def record(self, audit: AuditDraft) -> None:
        """Store an audit entry once."""
        await self._database.change("record", records.of_audit(audit))

    async def change_share(self, change: ShareChange) -> Applied:
        """Compare-and-set on the project's version."""
        parameters = {
            "id": change.project_id,
            "expected": change.expected_version,
            "group": change.group,
            "access": change.share.value if change.share else None,
            **records.of_audit(change.audit),
        }
        row = await self._database.change("change_share", parameters)
        if row is not None:
            return records.applied(row)
        current = await self._database.row("project_version", {"id": change.project_id})
        if current is None:
            raise no_project(change.project_id)
        raise VersionConflict(current[0])

    # ------------------------------------------------------------ reads of memories

    async def load(self, audience: Audience, memory_id: str, *, space: str | None = None) -> MemoryFacts | None:
        """The memory, live or deleted, if the audience reads its scope."""
        parameters = {**records.of_audience(audience), "id": memory_id, "space": space}
        row = await self._database.row("load" if space is not None else "load_without_passages", parameters)
        return records.memory_facts(row) if row else None

    async def list_memories(
        self, audience: Audience, selector: Selector, *, after: Position | None, limit: int
    ) -> Sequence[MemoryRecord]:
        """Readable memories, newest first."""
        parameters = {
            **records.of_audience(audience),
            **records.of_position(after),
            "scope_key": selector.scope_key,
            "scope": selector.scope.value if selector.scope else None,
            "tags": list(selector.tags),
            "deleted": selector.deleted,
            "limit": limit,
        }
        return [records.memory(row) for row in await self._database.rows("list_memories", parameters)]

    async def search(self, audience: Audience, selector: Selector, query: SearchQuery) -> Sequence[Found]:
        """The fused order over the readable live memories."""
        database = self._database
        searched = await database.read(
            lambda connection: search.search(connection, self._mind, audience, selector, query)
        )
        self._settler.want(database, searched.unsettled)
        return searched.found

    async def history(
        self, audience: Audience, memory_id: str, *, before: int | None, limit: int
    ) -> Sequence[AuditRecord]:
        """A readable memory's audit entries by version descending."""
        parameters = {**records.of_audience(audience), "id": memory_id, "before": before, "limit": limit}
        return [records.audit_record(row) for row in await self._database.rows("history", parameters)]

    async def trail(self, scope_key: str, *, after: Position | None, limit: int) -> Sequence[AuditRecord]:
        """A scope's audit entries that belong to no memory, newest first."""
        parameters = {**records.of_position(after), "scope_key": scope_key, "limit": limit}
        return [records.audit_record(row) for row in await self._database.rows("scope_trail", parameters)]

    # ------------------------------------------------------------ mutations

    async def apply(self, mutation: Mutation) -> Applied:
        """Apply one mutation in one statement."""
        scope = None if isinstance(mutation, Create) else await self._scope(mutation.audit.scope_key)
        return await mutations.apply(self._database, mutation, scope=scope)

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        """The receipt kept for this key."""
        parameters = {"principal": principal, "key": key, "kept": limits.IDEMPOTENCY_KEPT}
        row = await self._database.row("find_receipt", parameters)
        return StoredReceipt(*row) if row else None

    # ------------------------------------------------------------ terms of another analyser

    async def outdated_terms(self, analyser: str, *, limit: int) -> Sequence[Outdated]:
        """Live memories whose terms are not of this analyser."""
        found = await self._database.rows("outdated_terms", {"analyser": analyser, "limit": limit})
        return [Outdated(*row) for row in found]

    async def store_terms(self, memory_id: str, version: int, analyser: str, terms: Terms) -> bool:
        """Replace the terms if the memory is still at this version."""
        parameters = {**records.of_terms(analyser, terms), "id": memory_id, "expected": version}
        row = await self._database.change("store_terms", parameters)
        return bool(row and row[0])

    # ------------------------------------------------------------ upkeep

    async def optimize(self) -> Sequence[str]:
        """Settle words, build approximate indexes where they pay, drop the others, and restore the order on disk."""
        return await upkeep.optimize(self._database, self._server.options.approximate_from)

    # ------------------------------------------------------------ what waits

    async def backlog(self, space: str | None, *, attempts_max: int) -> Backlog:
        """The counts, each of its own snapshot."""
        events = await self._database.row("events_waiting", {"attempts_max": attempts_max})
        pending = None
        if space is not None:
            pending = await self._database.row("embeddings_pending", {"space": space})
        return Backlog(events_waiting=events[0] if events else 0, embeddings_pending=pending[0] if pending else 0)

    async def _scope(self, key: str) -> int | None:
        """A scope's number, which never changes; None for one that has had no memory."""
        if key not in self._scopes:
            row = await self._database.row("scope_number", {"scope_key": key})
            if row is None:
                return None
            if len(self._scopes) >= _KNOWN_SCOPES:
                self._scopes.clear()
            self._scopes[key] = row[0]
        return self._scopes[key]
