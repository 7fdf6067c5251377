"""Projects: registering, listing, sharing, and finding the one that a caller names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import NAMESPACE_URL, uuid4, uuid5

from muniment import access, mutations, operations, pages
from muniment.engine.commit import Committed, draft
from muniment.errors import AccessDenied, InvalidInput, NotFound, UnknownProject
from muniment.models import (
    Access,
    CallContext,
    Identified,
    Principal,
    ProjectPage,
    ProjectPolicy,
    ProjectRecord,
    Receipt,
    Scope,
    Share,
)
from muniment.operations.projects import ProjectIdentify, ProjectList, ProjectShare, ProjectUnshare
from muniment.ports import (
    AuditDraft,
    NewProject,
    Placement,
    Position,
    ProjectFacts,
    Selector,
    ShareChange,
    Storage,
)


class Projects:
    """The project operations, and ``place`` and ``select`` by which the memory operations name a scope."""

    def __init__(self, storage: Storage, committed: Committed) -> None:
        self._storage = storage
        self._committed = committed

    async def identify(self, context: CallContext, sent: ProjectIdentify) -> Identified:
        """Find the project, or register it for the caller."""
        found = await self._find(context, sent.project, for_write=True)
        if found is not None:
            return Identified(project=_record(context.principal, found), created=False)
        new = _new(context, sent.project)
        facts, created = await self._storage.register_project(new)
        if created:
            self.registered(new, facts.updated_at)
        return Identified(project=_record(context.principal, facts), created=created)

    async def list(self, context: CallContext, sent: ProjectList) -> ProjectPage:
        """The caller's projects, newest first."""
        query = pages.query_hash("project.list", {})
        rows = await self._storage.list_projects(
            access.audience(context.principal),
            after=pages.decode_position(sent.cursor, query),
            limit=sent.limit + 1,
        )
        kept = rows[: sent.limit]
        more = len(rows) > len(kept)
        cursor = pages.encode_position(query, Position(kept[-1].created_at, kept[-1].id)) if more else None
        return ProjectPage(items=tuple(_record(context.principal, row) for row in kept), cursor=cursor)

    async def share(self, context: CallContext, sent: ProjectShare) -> Receipt:
        """Grant a group access to a project that the caller owns."""
        facts = await self._owned(context, sent.project, sent.version)
        return await self._change(context, facts, sent.group, Share(sent.access), "project.share")

    async def unshare(self, context: CallContext, sent: ProjectUnshare) -> Receipt:
        """Take a group's access away. Raises NotFound where it has none."""
        facts = await self._owned(context, sent.project, sent.version)
        if sent.group not in (facts.shares or {}):
            raise NotFound(f"Project {facts.key} is not shared with that group; nothing to take away.")
        return await self._change(context, facts, sent.group, None, "project.unshare")

    async def resolve(self, context: CallContext, name: str, need: Access) -> ProjectFacts:
        """The project that the caller means by a key or an id. Raises UnknownProject, AccessDenied."""
        facts = await self._find(context, name, for_write=need is Access.WRITE)
        return _usable(context, facts, name, need)

    async def place(
        self, context: CallContext, scope: str | None, project: str | None
    ) -> tuple[Placement, NewProject | None]:
        """Where a write goes: the project that is named, or the caller's own scope.

        With it comes the project that the write is to register, where the surface's policy creates missing ones.
        Raises InvalidInput, UnknownProject, AccessDenied.
        """
        check_scope(scope, project)
        if project is None:
            return access.own_placement(context.principal.user), None
        facts = await self._find(context, project, for_write=True)
        creates = context.project_policy is ProjectPolicy.CREATE_MISSING and not access.could_be_an_id(project)
        if facts is None and creates:
            new = _new(context, project)
            return access.project_placement(new.id), new
        return access.project_placement(_usable(context, facts, project, Access.WRITE).id), None

    def registered(self, new: NewProject, at: datetime) -> None:
        """Tell whoever watches of a project that a write registered."""
        receipt = Receipt(
            id=new.id,
            version=1,
            updated_at=at,
            action=new.audit.action,
            project_id=new.id,
            project_created=True,
        )
        self._committed(receipt, new.audit)

    async def select(
        self,
        context: CallContext,
        scope: str | None,
        project: str | None,
        tags: Sequence[str],
        *,
        deleted: bool = False,
    ) -> Selector:
        """What a list or search covers. Raises InvalidInput, UnknownProject."""
        if scope == Scope.USER:
            check_scope(scope, project)
        key = None
        if project is not None:
            key = access.project_key((await self.resolve(context, project, Access.READ)).id)
        elif scope == Scope.USER:
            key = access.user_key(context.principal.user)
        return Selector(
            scope_key=key,
            scope=Scope(scope) if scope and key is None else None,
            tags=tuple(dict.fromkeys(tags)),
            deleted=deleted,
        )

    async def _find(self, context: CallContext, name: str, *, for_write: bool = False) -> ProjectFacts | None:
        found = await self._storage.find_projects(access.audience(context.principal), name)
        chosen = access.choose_project(context.principal, found, name)
        if for_write and chosen is not None and chosen.key == name and chosen.owner == context.principal.user:
            await self._audit_collision(context, chosen, [other for other in found if other.key == name])
        return chosen

    async def _audit_collision(
        self, context: CallContext, owned: ProjectFacts, same_key: Sequence[ProjectFacts]
    ) -> None:
        """Note, once for each set of projects, that an owned project hides shared ones with its key."""
        hidden = sorted(other.id for other in same_key if other.id != owned.id)
        if not hidden:
            return
        await self._storage.record(
            draft(
                context,
                action="project.collision",
                audit_id=str(uuid5(NAMESPACE_URL, "muniment:collision:" + ",".join([owned.id, *hidden]))),
                project_id=owned.id,
                version=owned.version,
                changed=(),
                scope_key=access.project_key(owned.id),
                details={"key": owned.key, "hidden": hidden},
            )
        )

    async def _owned(self, context: CallContext, name: str, version: int | None) -> ProjectFacts:
        facts = await self.resolve(context, name, Access.READ)
        if facts.owner != context.principal.user:
            raise AccessDenied(f"Only the owner of project {name} shares it; ask the owner.")
        mutations.check_version(version, facts.version)
        return facts

    async def _change(
        self, context: CallContext, facts: ProjectFacts, group: str, share: Share | None, action: str
    ) -> Receipt:
        audit: AuditDraft = draft(
            context,
            action=action,
            project_id=facts.id,
            version=facts.version + 1,
            changed=("shares",),
            scope_key=access.project_key(facts.id),
            details={"group": group, "access": share},
        )
        applied = await self._storage.change_share(
            ShareChange(project_id=facts.id, expected_version=facts.version, group=group, share=share, audit=audit)
        )
        receipt = Receipt(
            id=facts.id,
            version=applied.version,
            updated_at=applied.updated_at,
            action=action,
            project_id=facts.id,
        )
        self._committed(receipt, audit)
        return receipt


def _new(context: CallContext, key: str) -> NewProject:
    """A project of the caller's. Raises InvalidInput for what can be no key."""
    operations.find("project.identify").parse({"project": key})
    project_id = str(uuid4())
    audit = draft(
        context,
        action="project.register",
        project_id=project_id,
        version=1,
        changed=("key",),
        scope_key=access.project_key(project_id),
    )
    return NewProject(id=project_id, key=key, owner=context.principal.user, audit=audit)


def _usable(context: CallContext, facts: ProjectFacts | None, name: str, need: Access) -> ProjectFacts:
    """The project, if the caller has the access that it needs. Raises UnknownProject, AccessDenied."""
    if facts is None:
        raise UnknownProject(
            f"There is no project {name} that you may use; register it with project.identify, or correct its key."
        )
    access.require(context.principal, facts, need, f"project {name}")
    return facts


def check_scope(scope: str | None, project: str | None) -> None:
    """Scope ``project`` needs a project, ``user`` forbids one. Raises InvalidInput."""
    if scope == Scope.PROJECT and project is None:
        raise InvalidInput("project", "scope 'project' needs a project; name one, or use scope 'user'")
    if scope == Scope.USER and project is not None:
        raise InvalidInput("project", "scope 'user' forbids a project; leave it out, or use scope 'project'")


def _record(principal: Principal, facts: ProjectFacts) -> ProjectRecord:
    held = access.level(principal, facts.owner, facts.grants)
    return ProjectRecord(
        id=facts.id,
        key=facts.key,
        owner=facts.owner,
        version=facts.version,
        access=Share.RW if held is Access.WRITE else Share.RO,
        created_at=facts.created_at,
        updated_at=facts.updated_at,
        shares=dict(facts.shares or {}) if facts.owner == principal.user else None,
    )
