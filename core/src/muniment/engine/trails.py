"""The audit trails of what is no memory: a project's, and that of the API tokens."""

from __future__ import annotations

from collections.abc import Sequence

from muniment import access, pages
from muniment.engine.projects import Projects
from muniment.errors import CapabilityNotSupported
from muniment.models import Access, AuditRecord, CallContext, HistoryPage
from muniment.operations.projects import ProjectHistory
from muniment.operations.tokens import TokenHistory
from muniment.ports import Position, TrailStorage


class Trails:
    """Their histories, newest first. ``storage`` may be of a plugin that is older than trails."""

    def __init__(self, storage: object, projects: Projects) -> None:
        self._storage = storage
        self._projects = projects

    async def of_project(self, context: CallContext, sent: ProjectHistory) -> HistoryPage:
        """A project's, for whoever reads it; details, which name groups and other projects, for its owner alone."""
        facts = await self._projects.resolve(context, sent.project, Access.READ)
        query = pages.query_hash("project.history", {"project": facts.id})
        page = await self._page(access.project_key(facts.id), query, sent.cursor, sent.limit)
        if facts.owner == context.principal.user:
            return page
        return page.model_copy(update={"items": tuple(map(_without_details, page.items))})

    async def of_tokens(self, context: CallContext, sent: TokenHistory) -> HistoryPage:
        """That of all API tokens."""
        return await self._page(access.TOKENS_KEY, pages.query_hash("token.history", {}), sent.cursor, sent.limit)

    async def _page(self, scope_key: str, query: str, cursor: str | None, limit: int) -> HistoryPage:
        after = pages.decode_position(cursor, query)
        rows = await self._entries(scope_key, after, limit + 1)
        kept = rows[:limit]
        more = len(rows) > len(kept)
        return HistoryPage(
            items=tuple(kept),
            cursor=pages.encode_position(query, Position(kept[-1].at, kept[-1].id)) if more else None,
        )

    async def _entries(self, scope_key: str, after: Position | None, limit: int) -> Sequence[AuditRecord]:
        return await trail_storage(self._storage).trail(scope_key, after=after, limit=limit)


def trail_storage(storage: object) -> TrailStorage:
    """A storage, if it reads trails. Raises CapabilityNotSupported for one of a plugin that is older than they are."""
    if not isinstance(storage, TrailStorage):
        raise CapabilityNotSupported(
            "The storage's plugin was written for a contract before 1.2, keeps this trail and cannot read it; upgrade "
            "it."
        )
    return storage


def _without_details(entry: AuditRecord) -> AuditRecord:
    return entry.model_copy(update={"details": None})
