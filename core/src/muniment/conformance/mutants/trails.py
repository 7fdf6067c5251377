"""Mutants made for READ-06, ACC-12, AUTH-05, SCOPE-04 and OPS-03: trails, new projects, and whose events wait."""

from __future__ import annotations

from collections.abc import Sequence

from muniment import access
from muniment.conformance.mutants.mutant import Mutants
from muniment.models import Agent, AuditRecord
from muniment.ports import Applied, AuditDraft, Mutation, NewProject, Position, ProjectFacts, ShareChange
from muniment.reference import ReferenceStorage
from muniment.reference.rows import Staged

MUTANTS = Mutants()


@MUTANTS("entries of one moment left out", made_for="READ-06", fails="READ-06 ACC-12")
class SkipsTies(ReferenceStorage):
    """A page of a trail goes on with what is older than the last entry, and leaves out others of its time."""

    def is_older(self, entry: AuditRecord, after: Position) -> bool:
        """Older."""
        return entry.at < after.created_at


@MUTANTS("scope keys compared without their case", made_for="READ-06", fails="READ-06")
class FoldsScopes(ReferenceStorage):
    """A trail has the entries of every scope that is called alike."""

    async def trail(self, scope_key: str, *, after: Position | None, limit: int) -> Sequence[AuditRecord]:
        """Of all of them."""
        keys = {one.scope_key for one in self.data.audit.values() if one.scope_key.lower() == scope_key.lower()}
        found: list[AuditRecord] = []
        for key in sorted(keys):
            found += await super().trail(key, after=after, limit=limit)
        found.sort(key=lambda one: one.id)
        found.sort(key=lambda one: one.at, reverse=True)
        return found[:limit]


@MUTANTS("memories' entries in a project's history", made_for="ACC-12", fails="READ-06 ACC-12 SCOPE-05")
class MixesTrails(ReferenceStorage):
    """A project's history has what was done to its memories too."""

    async def trail(self, scope_key: str, *, after: Position | None, limit: int) -> Sequence[AuditRecord]:
        """And those."""
        found = [entry for entry in self.data.audit.values() if entry.scope_key == scope_key]
        found.sort(key=lambda one: one.id)
        found.sort(key=lambda one: one.at, reverse=True)
        return [one for one in found if after is None or self.is_older(one, after)][:limit]


@MUTANTS("changes of shares not audited", made_for="ACC-12", fails="MUT-14 READ-02 ACC-12")
class SharesSilently(ReferenceStorage):
    """A share is granted and taken away without an entry."""

    async def change_share(self, change: ShareChange) -> Applied:
        """Without it."""
        applied = await super().change_share(change)
        del self.data.audit[change.audit.id]
        return applied


@MUTANTS("entries overwritten", made_for="AUTH-05", fails="AUTH-05")
class Overwrites(ReferenceStorage):
    """An entry whose id is there is replaced, so that who revoked a token first is forgotten."""

    async def record(self, audit: AuditDraft) -> None:
        """Whatever was there."""
        self.data.audit.pop(audit.id, None)
        await super().record(audit)


@MUTANTS("new projects passed over", made_for="SCOPE-02", fails="ACC-08 SCOPE-02 SCOPE-03")
class TellsOfNoProject(ReferenceStorage):
    """Whoever registers a project is told that it was there."""

    async def register_project(self, new: NewProject) -> tuple[ProjectFacts, bool]:
        """As if it had been."""
        return (await super().register_project(new))[0], False


@MUTANTS("a project that was there told as new", made_for="SCOPE-04", fails="SCOPE-02 SCOPE-04")
class JoinsSilently(ReferenceStorage):
    """A write whose project somebody registered first goes there, and its receipt says that it made another one."""

    def stage_project(self, staged: Staged, mutation: Mutation) -> None:
        """Or into the one that is there."""
        new = mutation.registers
        known = None if new is None else self.registered(new)
        if known is None or staged.memory is None:
            super().stage_project(staged, mutation)
            return
        self.on_write("project")
        staged.memory = self.moved(staged.memory, access.project_placement(known.id))


@MUTANTS("whoever has events waits", made_for="OPS-03", fails="OPS-03")
class NamesTheBusy(ReferenceStorage):
    """An agent is named while its only event is out, acknowledged or dead."""

    async def agents_waiting(self, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
        """With any event."""
        return frozenset(agent for agent in agents if self.events_of(agent))


@MUTANTS("agents named by their names alone", made_for="OPS-03", fails="OPS-03")
class NamesAllInstances(ReferenceStorage):
    """Where an event waits for one instance, every instance of the agent is named."""

    async def agents_waiting(self, agents: Sequence[Agent], *, attempts_max: int) -> frozenset[Agent]:
        """By name."""
        names = {one.name for one in await super().agents_waiting(agents, attempts_max=attempts_max)}
        return frozenset(agent for agent in agents if agent.name in names)
