"""Mutants made for SCOPE-01 to SCOPE-03 and SCOPE-05: where a memory is filed, and what a new project comes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.mutant import Mutants
from muniment.models import Scope
from muniment.ports import Applied, Audience, AuditDraft, Mutation, NewProject, ProjectFacts, Selector
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow, ProjectRow, Staged

MUTANTS = Mutants()


@MUTANTS(
    "project of a list ignored",
    made_for="SCOPE-01",
    fails="ACC-01 ACC-02 ACC-08 ACC-09 SCOPE-01 SCOPE-02 SCOPE-03 RANK-01",
)
class IgnoresScopeKey(ReferenceStorage):
    """A list or search of one scope covers all that the caller reads."""

    def selects(self, selector: Selector, row: MemoryRow) -> bool:
        """In any scope."""
        return super().selects(replace(selector, scope_key=None), row)


@MUTANTS(
    "own memories in every project's list", made_for="SCOPE-01", fails="READ-03 ACC-01 ACC-08 ACC-09 SCOPE-01 RANK-01"
)
class OwnInEveryScope(ReferenceStorage):
    """A caller's own memories are there whatever scope is asked for."""

    def selects(self, selector: Selector, row: MemoryRow) -> bool:
        """Or its own."""
        return super().selects(selector, row) or row.placement.scope is Scope.USER


@MUTANTS("duplicate project registration", made_for="SCOPE-02", fails="SCOPE-02 SCOPE-04")
class RegistersTwice(ReferenceStorage):
    """Owner and key are not unique: each registration inserts."""

    def registered(self, new: NewProject) -> ProjectRow | None:
        """None, as far as one looks."""
        return None


@MUTANTS("project key without its case", made_for="SCOPE-02", fails="ACC-08 SCOPE-02")
class FoldsKeys(ReferenceStorage):
    """Keys are compared by a collation that ignores case."""

    def is_called(self, row: ProjectRow, name: str) -> bool:
        """In any case."""
        return name.casefold() == row.key.casefold() or name == row.id


@MUTANTS(
    "one project for a key, whoever owns it", made_for="SCOPE-03", fails="ACC-01 ACC-08 ACC-12 SCOPE-03 SCOPE-04 LEX-04"
)
class KeysAreGlobal(ReferenceStorage):
    """A key is unique among all owners, so the first one has it."""

    def registered(self, new: NewProject) -> ProjectRow | None:
        """Anybody's."""
        return next((row for row in self.data.projects.values() if row.key == new.key), None)


@MUTANTS("shared project wins", made_for="SCOPE-03", fails="ACC-12 SCOPE-03")
class SharedWins(ReferenceStorage):
    """Of projects with one key the shared one hides the caller's own."""

    async def find_projects(self, audience: Audience, name: str) -> Sequence[ProjectFacts]:
        """The shared ones where there are any."""
        found = await super().find_projects(audience, name)
        return [facts for facts in found if facts.owner != audience.user] or found


@MUTANTS("collision not audited", made_for="SCOPE-03", fails="READ-06 ACC-12 SCOPE-03 AUTH-05")
class CollisionUnrecorded(ReferenceStorage):
    """The own project wins silently."""

    async def record(self, audit: AuditDraft) -> None:
        """Nothing."""


@MUTANTS("collision audited each time", made_for="SCOPE-03", fails="READ-06 SCOPE-03 AUTH-05")
class CollisionEachTime(ReferenceStorage):
    """Every use of the own project leaves another entry."""

    async def record(self, audit: AuditDraft) -> None:
        """Under an id of its own."""
        await super().record(replace(audit, id=f"{audit.id}-{len(self.data.audit)}"))


@MUTANTS("project registered before its write", made_for="SCOPE-05", fails="MUT-13 SCOPE-02 SCOPE-04 SCOPE-05")
class RegistersFirst(ReferenceStorage):
    """A write registers its project by a statement of its own, and is then refused or fails."""

    async def apply(self, mutation: Mutation) -> Applied:
        """Register, then write."""
        if mutation.registers is not None and self.registered(mutation.registers) is None:
            await self.register_project(mutation.registers)
            mutation = replace(mutation, registers=None)
        return await super().apply(mutation)


@MUTANTS("project of a refused write kept", made_for="SCOPE-05", fails="MUT-13 SCOPE-05")
class KeepsTheProject(ReferenceStorage):
    """What a write registers is committed where the write is rolled back."""

    def stage_project(self, staged: Staged, mutation: Mutation) -> None:
        """Commit it."""
        super().stage_project(staged, mutation)
        if staged.project is not None and staged.project_audit is not None:
            self.data.projects[staged.project.id] = staged.project
            self.data.audit[staged.project_audit.id] = staged.project_audit


@MUTANTS("project of a write without its entry", made_for="SCOPE-05", fails="SCOPE-05")
class RegistersUntold(ReferenceStorage):
    """Only project.identify leaves an entry in a new project's trail."""

    def stage_project(self, staged: Staged, mutation: Mutation) -> None:
        """Drop the entry."""
        super().stage_project(staged, mutation)
        staged.project_audit = None


@MUTANTS("project named like another's id made by a write", made_for="SCOPE-05", fails="SCOPE-05")
class TakesIdsForKeys(Core):
    """Who lost a project and goes on writing by its id gets a project of that name."""

    def could_be_an_id(self, name: str) -> bool:
        """No name is."""
        return False
