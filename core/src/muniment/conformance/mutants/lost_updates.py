"""Mutants made for LEX-02, VEC-07 and SEC-05: a row that is read, waited with, and written back whole.

Whoever changed it in between finds the change undone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from muniment.agent_models import AckOutcome
from muniment.conformance.mutants.mutant import Mutants
from muniment.lexical import Terms
from muniment.models import Agent
from muniment.ports import Passages, SectionsWrite
from muniment.reference import ReferenceStorage

MUTANTS = Mutants()


@MUTANTS("terms written back with the whole row", made_for="LEX-02", fails="LEX-02")
class TermsUndoAnEdit(ReferenceStorage):
    """The version is compared, and an edit that is committed before the terms are is undone."""

    async def store_terms(self, memory_id: str, version: int, analyser: str, terms: Terms) -> bool:
        """Over what is there by now."""
        row = self.data.memories.get(memory_id)
        await self.pause()
        if row is None or not self.is_present(row, version):
            return False
        self.data.memories[memory_id] = replace(row, analyser=analyser, terms=terms)
        return True


@MUTANTS("vectors written back with the whole row", made_for="VEC-07", fails="VEC-07")
class VectorsUndoAnEdit(ReferenceStorage):
    """The version is compared, and an edit that is committed before the vectors are is undone."""

    async def store_passages(self, memory_id: str, version: int, passages: Passages) -> bool:
        """Over what is there by now."""
        row = self.data.memories.get(memory_id)
        stored = await super().store_passages(memory_id, version, passages)
        if row is None or stored or not self.is_present(row, version):
            return stored
        filled = self.with_passages(row, passages)
        self.data.memories[memory_id] = replace(filled, embedded=row.embedded | filled.embedded)
        return True


@MUTANTS("last seen written back with the whole envelope", made_for="SEC-05", fails="SEC-05")
class ReadingUndoesAnAppend(ReferenceStorage):
    """What was seen by reading is written with the exchanges that there were then."""

    async def raise_last_seen(self, agent: Agent, revision: int) -> int:
        """Over what others have appended meanwhile."""
        row = self.envelope(agent)
        await self.pause()
        row = replace(row, last_seen=self.seen_after_reading(row, revision))
        self.store({agent: row})
        return row.last_seen


@MUTANTS("pods written back with the whole envelope", made_for="SEC-05", fails="SEC-05")
class RegisteringUndoesAnAppend(ReferenceStorage):
    """Pods are written with the exchanges that there were before."""

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        """Over what others have appended meanwhile."""
        row = self.envelope(agent)
        await self.pause()
        self.store({agent: replace(row, pods=pods)})


@MUTANTS("sections written back with the whole envelope", made_for="SEC-05", fails="SEC-05")
class SavingUndoesAnAppend(ReferenceStorage):
    """The versions of the sections are compared, and the exchanges written as they were."""

    async def write_sections(self, write: SectionsWrite) -> datetime:
        """Over what others have appended meanwhile."""
        before = self.envelope(write.agent)
        now = await super().write_sections(write)
        row = self.envelope(write.agent)
        self.store({write.agent: replace(before, sections=row.sections, sync_key=row.sync_key)})
        return now


@MUTANTS("ack written back with the whole envelope", made_for="SEC-05", fails="SEC-05")
class AckUndoesAnAppend(ReferenceStorage):
    """The status is compared, and the exchanges written as they were when the event was looked up."""

    async def ack(self, agent: Agent, event_id: str, token: str) -> AckOutcome:
        """Over what others have appended meanwhile."""
        before = self.envelope(agent)
        outcome = await super().ack(agent, event_id, token)
        if outcome is AckOutcome.ACKNOWLEDGED:
            self.store({agent: replace(before, last_seen=self.envelope(agent).last_seen)})
        return outcome
