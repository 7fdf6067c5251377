"""Mutants made for SEC-01 to SEC-03 and SEC-09 to SEC-16: who reads and writes sections, and what a sync does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from muniment import sections
from muniment.agent_models import SectionName, SectionReceipt, Visibility
from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.mutant import Mutants
from muniment.engine import Engine
from muniment.errors import NotFound, SectionReadOnly
from muniment.models import Agent, CallContext, Principal
from muniment.operations import Operation
from muniment.ports import Appended, EnvelopeFacts, ExchangeAppend, SectionChange, SectionsWrite, StoredSection
from muniment.reference import ReferenceStorage
from muniment.reference.agent_rows import EnvelopeRow, EventRow
from muniment.sections import SectionDraft

MUTANTS = Mutants()


@MUTANTS("visibility widened", made_for="SEC-01", fails="SEC-01")
class WidensVisibility(Core):
    """An opened section shows all its elements, whatever their own visibility says."""

    def visible(self, name: SectionName, value: Any, visibility: Visibility, *, common_pod: bool) -> tuple[bool, Any]:
        """All or nothing of a section."""
        readable, part = super().visible(name, value, visibility, common_pod=common_pod)
        return readable, value if readable else part


@MUTANTS("pod taken as public", made_for="SEC-01", fails="ACC-08 SEC-01")
class OpensPodsToAll(Core):
    """Nobody asks whether the reader is in the pod."""

    def visible(self, name: SectionName, value: Any, visibility: Visibility, *, common_pod: bool) -> tuple[bool, Any]:
        """As if it were."""
        return super().visible(name, value, visibility, common_pod=True)


@MUTANTS("pods in lower case", made_for="SEC-01", fails="SEC-01")
class FoldsPods(ReferenceStorage):
    """Pod ids are compared by a collation that ignores case."""

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        """In lower case."""
        await super().register_agent(agent, frozenset(pod.lower() for pod in pods))


@MUTANTS("visibility kept from the first save", made_for="SEC-01", fails="SEC-01")
class NeverClosesSection(ReferenceStorage):
    """The upsert updates the value and forgets the visibility."""

    def changed(self, row: EnvelopeRow, change: SectionChange, now: datetime) -> StoredSection:
        """With the visibility that is there."""
        stored = row.sections.get(change.name)
        section = super().changed(row, change, now)
        return section if stored is None else replace(section, visibility=stored.visibility)


@MUTANTS("writable system section", made_for="SEC-02", fails="SEC-02 SEC-03")
class WritesExchanges(Core):
    """section.save takes system_exchanges like any other section."""

    async def call(self, engine: Engine, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        """Store what the agent sent."""
        agent, section = context.principal.agent, SectionName.SYSTEM_EXCHANGES
        if name != "section.save" or payload.get("section") != section or agent is None:
            return await super().call(engine, name, payload, context)
        change = SectionChange(section, payload.get("value"), Visibility.PRIVATE, 0, 0)
        at = await engine.storage.write_sections(SectionsWrite(agent, (change,)))
        return SectionReceipt(action=name, versions={section: 1}, updated_at=at)


@MUTANTS("sync drops the system section silently", made_for="SEC-02", fails="SEC-02")
class DropsExchangesSilently(Core):
    """A sync that names system_exchanges is applied without it, and answers as if all were well."""

    async def call(self, engine: Engine, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        """Without the section."""
        if name == "section.sync" and isinstance(payload.get("sections"), dict):
            sent: dict[str, Any] = payload["sections"]
            kept = {section: one for section, one in sent.items() if section != SectionName.SYSTEM_EXCHANGES}
            payload = {**payload, "sections": kept} if kept else payload
        return await super().call(engine, name, payload, context)


@MUTANTS("cycles shown to all", made_for="SEC-03", fails="ACC-08 SEC-03")
class ShowsCycles(Core):
    """The section that is private by type has no flag, and no flag is taken as public."""

    def visible(self, name: SectionName, value: Any, visibility: Visibility, *, common_pod: bool) -> tuple[bool, Any]:
        """Cycles too."""
        if name is SectionName.CYCLES:
            return True, value
        return super().visible(name, value, visibility, common_pod=common_pod)


@MUTANTS("server fields refused", made_for="SEC-09", fails="SEC-09 SEC-11")
class RefusesServerFields(Core):
    """What a runtime sends back as it was read is an unknown field."""

    def without_server_fields(self, sent: Any) -> Any:
        """With them."""
        return sent


@MUTANTS("size of the first save", made_for="SEC-09", fails="SEC-09")
class KeepsFirstSize(ReferenceStorage):
    """The upsert does not touch byte_size."""

    def changed(self, row: EnvelopeRow, change: SectionChange, now: datetime) -> StoredSection:
        """With the size that is there."""
        stored = row.sections.get(change.name)
        section = super().changed(row, change, now)
        return section if stored is None else replace(section, byte_size=stored.byte_size)


@MUTANTS("sections cached", made_for="SEC-09", fails="SEC-01 SEC-09 SEC-10")
class CachesSections(ReferenceStorage):
    """A client remembers the envelopes that it has read until it writes itself."""

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        """The remembered one."""
        envelopes = vars(self).setdefault("envelopes", {})
        asked = agent, None if sections is None else tuple(sections), exchanges
        if asked not in envelopes:
            envelopes[asked] = await super().load_envelope(agent, sections=sections, exchanges=exchanges)
        return envelopes[asked]

    def commit(self, envelopes: Mapping[Agent, EnvelopeRow], events: Sequence[EventRow]) -> None:
        """Forget them."""
        vars(self).pop("envelopes", None)
        super().commit(envelopes, events)


@MUTANTS("patch replaces", made_for="SEC-10", fails="SEC-10")
class PatchReplaces(Core):
    """A patch sync replaces daily and relationships like any section."""

    def merged(self, current: Any, sent: SectionDraft) -> SectionDraft:
        """What was sent."""
        return sent


@MUTANTS("section write without compare-and-set", made_for="SEC-10", fails="SEC-10")
class WritesAnyVersion(ReferenceStorage):
    """The version is compared before the write, and not in it."""

    def changed(self, row: EnvelopeRow, change: SectionChange, now: datetime) -> StoredSection:
        """Whatever version is there."""
        stored = row.sections.get(change.name)
        return super().changed(row, replace(change, expected_version=stored.version if stored else 0), now)


@MUTANTS("sections of a sync one by one", made_for="SEC-10", fails="SEC-10")
class WritesSectionsOneByOne(ReferenceStorage):
    """Each section of a sync is a write of its own, with others' in between; the last one may be refused."""

    async def write_sections(self, write: SectionsWrite) -> datetime:
        """One by one."""
        for change in write.changes[:-1]:
            await super().write_sections(replace(write, changes=(change,)))
            await self.pause()
        return await super().write_sections(replace(write, changes=write.changes[-1:]))


@MUTANTS("sync key by order of keys", made_for="SEC-11", fails="SEC-11")
class KeysByOrder(Core):
    """The payload is hashed as it was sent, not in a canonical form."""

    def sync_key(self, mode: str, runtime: str, drafts: Sequence[SectionDraft], now: Any) -> str:
        """With the order in it."""
        return super().sync_key(mode, runtime, drafts, now) + repr([one.value for one in drafts])


@MUTANTS("sync key without the runtime", made_for="SEC-11", fails="SEC-11")
class KeysWithoutRuntime(Core):
    """Two runtimes that sync the same are taken as one that repeats itself."""

    def sync_key(self, mode: str, runtime: str, drafts: Sequence[SectionDraft], now: Any) -> str:
        """Of any runtime."""
        return super().sync_key(mode, "", drafts, now)


@MUTANTS("first sync key kept", made_for="SEC-11", fails="SEC-11")
class KeepsFirstSyncKey(ReferenceStorage):
    """The key of the first sync is compared with for ever, so A, B, A ends at B."""

    def sync_key_after(self, row: EnvelopeRow, write: SectionsWrite) -> str | None:
        """The first, unless cleared."""
        return row.sync_key if write.keeps_sync_key or (row.sync_key and write.sync_key) else write.sync_key


@MUTANTS("sync key kept by a save", made_for="SEC-12", fails="SEC-12")
class SaveKeepsSyncKey(ReferenceStorage):
    """A save leaves the key, so the sync that would undo it is taken as a repeat."""

    def sync_key_after(self, row: EnvelopeRow, write: SectionsWrite) -> str | None:
        """Never cleared."""
        return write.sync_key or row.sync_key


@MUTANTS("sync key cleared by an exchange", made_for="SEC-12", fails="SEC-08 SEC-12")
class ExchangeClearsSyncKey(ReferenceStorage):
    """An append is taken as a writer like any other."""

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """And clear the keys."""
        appended = await super().append_exchange(append)
        for draft in append.entries:
            self.agents.envelopes[draft.agent] = replace(self.envelope(draft.agent), sync_key=None)
        return appended


@MUTANTS("sync key cleared by a cycle", made_for="SEC-12", fails="SEC-12")
class CycleClearsSyncKey(ReferenceStorage):
    """A cycle is taken as a save."""

    def sync_key_after(self, row: EnvelopeRow, write: SectionsWrite) -> str | None:
        """What the write brings."""
        return write.sync_key


@MUTANTS(
    "no envelope is not found",
    made_for="SEC-13",
    fails="READ-05 ACC-08 ACC-11 SEC-01 SEC-03 SEC-06 SEC-09 SEC-10 SEC-11 SEC-12 SEC-13 SEC-14 SEC-15 SEC-16 DIG-05 "
    "ACK-08",
)
class RefusesAbsentEnvelope(ReferenceStorage):
    """An agent that has no row yet is refused."""

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        """Raises NotFound."""
        if agent not in self.agents.envelopes:
            raise NotFound("There is no such agent; register it.")
        return await super().load_envelope(agent, sections=sections, exchanges=exchanges)


@MUTANTS("new envelope from a template", made_for="SEC-13", fails="SEC-06 SEC-13 DIG-05 ACK-08")
class StartsFromTemplate(ReferenceStorage):
    """An envelope that is not there is read as one that has already been used."""

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        """At revision 1."""
        facts = await super().load_envelope(agent, sections=sections, exchanges=exchanges)
        return facts if agent in self.agents.envelopes else replace(facts, revision=1)


@MUTANTS("cycles cut silently", made_for="SEC-14", fails="SEC-14")
class CutsCyclesSilently(Core):
    """A long text is cut, and nothing says so."""

    def cycle(self, text: str) -> tuple[str, int]:
        """Nothing was cut."""
        return super().cycle(text)[0], 0


@MUTANTS("cycles refused as read-only", made_for="SEC-14", fails="SEC-03 SEC-14")
class RefusesCyclesAsReadOnly(Core):
    """Replacing cycles is refused like replacing system_exchanges, so nothing says that they can be appended to."""

    def check_writable(self, name: SectionName) -> None:
        """Raises SectionReadOnly for both."""
        if name in sections.ALWAYS_PRIVATE:
            raise SectionReadOnly(reason=sections.READ_ONLY_REASON)


@MUTANTS("agents record exchanges", made_for="SEC-15", fails="MUT-12 SEC-15 AUTH-05")
class ServesAgentsAsPlatform(Core):
    """An agent's principal is trusted like the platform's."""

    def serves(self, operation: Operation, principal: Principal) -> bool:
        """Both alike."""
        return super().serves(operation, principal) or (
            operation.audience == "platform" and principal.agent is not None
        )


@MUTANTS("section writes raise the revision", made_for="SEC-16", fails="ACC-08 SEC-05 SEC-15 SEC-16")
class SectionsRaiseRevision(ReferenceStorage):
    """Every write of the envelope counts its revision."""

    async def write_sections(self, write: SectionsWrite) -> datetime:
        """And raise it."""
        at = await super().write_sections(write)
        row = self.envelope(write.agent)
        self.agents.envelopes[write.agent] = replace(row, revision=row.revision + 1)
        return at
