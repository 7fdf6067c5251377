"""An agent's own sections, and the exchanges that the platform records in them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from muniment import acknowledgement, digests, limits, sections
from muniment.agent_models import (
    AgentReceipt,
    EnvelopeView,
    Exchange,
    ExchangeKind,
    ExchangeReceipt,
    Recorded,
    SectionName,
    SectionReceipt,
    SectionView,
    SharedView,
    Visibility,
)
from muniment.engine.idempotency import Idempotency
from muniment.errors import InvalidInput, VersionConflict
from muniment.models import Agent, CallContext
from muniment.operations.agents import (
    AgentRef,
    AgentRegister,
    ExchangeDmConcluded,
    ExchangeLoopTripped,
    ExchangeTaskCompleted,
    SectionLogCycle,
    SectionRead,
    SectionReadShared,
    SectionSave,
    SectionSync,
)
from muniment.ports import (
    AgentStorage,
    EnvelopeFacts,
    ExchangeAppend,
    ExchangeDraft,
    ReceiptTaken,
    SectionChange,
    SectionsWrite,
    StoredSection,
)
from muniment.sections import SectionDraft

_RETRY_SLEEP = 0.005
"""Seconds; the longest first pause before a write is merged again, doubled each time."""


class Agents:
    """Section and exchange operations."""

    def __init__(self, storage: AgentStorage, idempotency: Idempotency) -> None:
        self._storage = storage
        self._idempotency = idempotency

    # ------------------------------------------------------------ sections

    async def read(self, context: CallContext, sent: SectionRead) -> EnvelopeView:
        """The caller's own sections; exchanges that the reply holds without a gap are seen."""
        agent = own(context)
        wanted = _names(sent.sections)
        facts = await self._storage.load_envelope(
            agent,
            sections=[name for name in wanted if name is not SectionName.SYSTEM_EXCHANGES],
            exchanges=SectionName.SYSTEM_EXCHANGES in wanted,
        )
        held = [stored.exchange for stored in facts.exchanges[: sent.exchanges]]
        last_seen = acknowledgement.seen_by_reading(
            facts.last_seen_revision,
            [stored.exchange.revision for stored in facts.exchanges],
            {exchange.revision for exchange in held},
        )
        if last_seen > facts.last_seen_revision:
            last_seen = await self._storage.raise_last_seen(agent, last_seen)
        views = {name: _view(name, facts.sections.get(name)) for name in wanted}
        if SectionName.SYSTEM_EXCHANGES in wanted:
            views[SectionName.SYSTEM_EXCHANGES] = _exchanges_view(held)
        return EnvelopeView(agent=agent, revision=facts.revision, last_seen_revision=last_seen, sections=views)

    async def read_shared(self, context: CallContext, sent: SectionReadShared) -> SharedView:
        """What another agent opened to the caller; an agent that opened nothing and one that is not there are alike."""
        reader, other = own(context), _agent(sent.agent)
        pods = (await self._storage.load_envelope(reader, sections=[])).pods
        facts = await self._storage.load_envelope(other)
        common = bool(pods & facts.pods) or reader == other
        shown: dict[SectionName, SectionView] = {}
        for name, stored in facts.sections.items():
            readable, part = sections.visible(name, stored.value, stored.visibility, common_pod=common)
            if readable:
                shown[name] = _view(name, stored, part)
        return SharedView(agent=other, sections=shown)

    async def save(self, context: CallContext, sent: SectionSave) -> SectionReceipt:
        """Replace one section."""
        agent = own(context)
        name = SectionName(sent.section)
        draft = sections.draft(name, sent.value, sent.visibility, field="value")
        facts = await self._storage.load_envelope(agent, sections=[name])
        expected = _expected(facts, name, sent.version)
        return await self._write(agent, "section.save", [draft], {name: expected}, sync_key=None)

    async def sync(self, context: CallContext, sent: SectionSync) -> SectionReceipt:
        """Several sections at once; the same as last time is a no-op."""
        agent = own(context)
        drafts = [
            sections.draft(SectionName(name), one.value, one.visibility, field=f"sections.{name}.value")
            for name, one in sent.sections.items()
        ]
        versions = {SectionName(name): one.version for name, one in sent.sections.items()}
        pinned = sent.mode == "full" or any(version is not None for version in versions.values())

        async def load() -> tuple[EnvelopeFacts, str]:
            facts = await self._storage.load_envelope(agent, sections=[draft.name for draft in drafts])
            return facts, sections.sync_key(sent.mode, sent.runtime, drafts, facts.now)

        async def once() -> SectionReceipt:
            facts, key = await load()
            if key == facts.sync_key:
                return _deduped(facts, drafts)
            made = [_merged(facts, draft) for draft in drafts] if sent.mode == "patch" else drafts
            expected = {name: _expected(facts, name, version) for name, version in versions.items()}
            return await self._write(agent, "section.sync", made, expected, sync_key=key)

        if not pinned:
            return await _retried(once)
        try:
            return await once()
        except VersionConflict:
            # The same sync may have been applied while this one was under way, and is then what this one met.
            facts, key = await load()
            if key != facts.sync_key:
                raise
            return _deduped(facts, drafts)

    async def log_cycle(self, context: CallContext, sent: SectionLogCycle) -> SectionReceipt:
        """Append a cycle; it says what it cut and what it pushed out."""
        agent, name = own(context), SectionName.CYCLES
        text, truncated = sections.cycle(sent.text)

        async def once() -> SectionReceipt:
            facts = await self._storage.load_envelope(agent, sections=[name])
            stored = facts.sections.get(name)
            cycles = [*(stored.value if stored else ()), {"ts": digests.moment(facts.now), "text": text}]
            kept = cycles[-limits.CYCLES_KEPT :]
            receipt = await self._write(
                agent,
                "section.log_cycle",
                [SectionDraft(name, kept, Visibility.PRIVATE)],
                {name: _expected(facts, name, sent.version)},
                keeps_sync_key=True,
            )
            return receipt.model_copy(update={"truncated": truncated, "evicted": len(cycles) - len(kept)})

        return await (once() if sent.version is not None else _retried(once))

    async def register(self, context: CallContext, sent: AgentRegister) -> AgentReceipt:
        """Replace an agent's pods."""
        agent, pods = _agent(sent.agent), frozenset(sent.pods)
        await self._storage.register_agent(agent, pods)
        return AgentReceipt(agent=agent, pods=tuple(sorted(pods)))

    async def _write(
        self,
        agent: Agent,
        action: str,
        drafts: Sequence[SectionDraft],
        expected: Mapping[SectionName, int],
        *,
        sync_key: str | None = None,
        keeps_sync_key: bool = False,
    ) -> SectionReceipt:
        for draft in drafts:
            sections.check_size(draft, f"sections.{draft.name}.value")
        changes = tuple(
            SectionChange(draft.name, draft.value, draft.visibility, draft.byte_size, expected[draft.name])
            for draft in drafts
        )
        write = SectionsWrite(agent=agent, changes=changes, sync_key=sync_key, keeps_sync_key=keeps_sync_key)
        try:
            at = await self._storage.write_sections(write)
        except VersionConflict as conflict:
            names = ", ".join(draft.name for draft in drafts)
            raise VersionConflict(
                conflict.current_version,
                f"Of section {names}, one is at version {conflict.current_version} now; read it again, then write.",
            ) from None
        versions = {draft.name: expected[draft.name] + 1 for draft in drafts}
        return SectionReceipt(action=action, versions=versions, updated_at=at, warnings=sections.warnings(drafts))

    # ------------------------------------------------------------ exchanges

    async def dm_concluded(self, context: CallContext, sent: ExchangeDmConcluded) -> ExchangeReceipt:
        """Both peers learn the last message of the sender."""
        takeaway = digests.dm_takeaway(sent.messages)
        return await self._record_pair(context, "exchange.dm_concluded", ExchangeKind.DM_CONCLUSION, sent, takeaway)

    async def loop_tripped(self, context: CallContext, sent: ExchangeLoopTripped) -> ExchangeReceipt:
        """Both peers learn that a guard stopped them."""
        takeaway = digests.loop_takeaway(sent.turns, sent.minutes)
        return await self._record_pair(context, "exchange.loop_tripped", ExchangeKind.DM_LOOP_TRIP, sent, takeaway)

    async def task_completed(self, context: CallContext, sent: ExchangeTaskCompleted) -> ExchangeReceipt:
        """The assignee learns what became of the task."""
        assignee = _agent(sent.assignee)
        peers = tuple(dict.fromkeys(peer for peer in sent.peers if peer != sections.peer(assignee)))
        takeaway = digests.task_takeaway(sent.title, sent.result)
        return await self._record(
            context, "exchange.task_completed", ExchangeKind.TASK_COMPLETED, sent, {assignee: peers}, takeaway
        )

    async def _record_pair(
        self,
        context: CallContext,
        operation: str,
        kind: ExchangeKind,
        sent: ExchangeDmConcluded | ExchangeLoopTripped,
        takeaway: str,
    ) -> ExchangeReceipt:
        first, second = (_agent(peer) for peer in sent.peers)
        if first == second:
            raise InvalidInput("peers", "both are the same agent instance; an exchange has two different peers")
        recipients = {first: (sections.peer(second),), second: (sections.peer(first),)}
        return await self._record(context, operation, kind, sent, recipients, takeaway)

    async def _record(
        self,
        context: CallContext,
        operation: str,
        kind: ExchangeKind,
        sent: ExchangeDmConcluded | ExchangeLoopTripped | ExchangeTaskCompleted,
        recipients: Mapping[Agent, tuple[str, ...]],
        takeaway: str,
    ) -> ExchangeReceipt:
        # A replay finds the first revisions by the dedupe key, so the claim needs no receipt of its own.
        replay = await self._idempotency.find(context, operation, sent) is not None
        claim = None if replay else self._idempotency.claim(context, operation, sent, sent.dedupe_key, {})
        append = ExchangeAppend(
            entries=tuple(_draft(agent, kind, sent, peers, takeaway) for agent, peers in recipients.items()),
            dedupe_key=sent.dedupe_key,
            kept=limits.EXCHANGES_KEPT,
            claim=claim,
        )
        try:
            appended = await self._storage.append_exchange(append)
        except ReceiptTaken:
            return await self._record(context, operation, kind, sent, recipients, takeaway)
        if appended.deduped and not replay:
            # The same request may have been under way, and have stored its key since.
            replay = await self._idempotency.find(context, operation, sent) is not None
        return ExchangeReceipt(
            kind=kind,
            deduped=appended.deduped and not replay,
            recipients=tuple(
                Recorded(agent=agent, revision=revision)
                for agent, revision in zip(recipients, appended.revisions, strict=True)
            ),
            takeaway=None if appended.deduped and not replay else takeaway,
        )


def own(context: CallContext) -> Agent:
    """The agent that calls; the registry's audience says that there is one."""
    assert context.principal.agent is not None
    return context.principal.agent


def _agent(ref: AgentRef) -> Agent:
    return Agent(name=ref.name, instance=ref.instance)


def _names(sent: Sequence[str] | None) -> list[SectionName]:
    return list(SectionName) if sent is None else [SectionName(name) for name in dict.fromkeys(sent)]


def _deduped(facts: EnvelopeFacts, drafts: Sequence[SectionDraft]) -> SectionReceipt:
    """The receipt of a sync that repeats the last one."""
    current = {draft.name: _version(facts, draft.name) for draft in drafts}
    return SectionReceipt(action="section.sync", versions=current, updated_at=None, deduped=True)


def _version(facts: EnvelopeFacts, name: SectionName) -> int:
    stored = facts.sections.get(name)
    return stored.version if stored else 0


def _expected(facts: EnvelopeFacts, name: SectionName, sent: int | None) -> int:
    """The version that a write is made for. Raises VersionConflict."""
    current = _version(facts, name)
    if sent is not None and sent != current:
        raise VersionConflict(current, f"Section {name} is at version {current} now; read it again and write on that.")
    return current


def _merged(facts: EnvelopeFacts, sent: SectionDraft) -> SectionDraft:
    stored = facts.sections.get(sent.name)
    return sections.merged(stored.value, sent) if stored else sent


def _view(name: SectionName, stored: StoredSection | None, value: object = None) -> SectionView:
    if stored is None:
        return SectionView(value=sections.empty(name))
    return SectionView(
        value=stored.value if value is None else value,
        visibility=stored.visibility,
        version=stored.version,
        byte_size=stored.byte_size if value is None else sections.json_size(value),
        updated_at=stored.updated_at,
    )


def _exchanges_view(held: Sequence[Exchange]) -> SectionView:
    entries = [{"revision": exchange.revision, **digests.entry_json(exchange)} for exchange in held]
    return SectionView(
        value=entries,
        version=held[0].revision if held else 0,
        byte_size=sections.json_size(entries) if entries else 0,
        updated_at=held[0].ts if held else None,
    )


def _draft(
    agent: Agent,
    kind: ExchangeKind,
    sent: ExchangeDmConcluded | ExchangeLoopTripped | ExchangeTaskCompleted,
    peers: tuple[str, ...],
    takeaway: str,
) -> ExchangeDraft:
    label = digests.one_line(sent.surface_label)
    size = digests.entry_size(kind, sent.surface_pod_id, label, peers, takeaway)
    return ExchangeDraft(
        agent=agent,
        kind=kind,
        surface_pod_id=sent.surface_pod_id,
        surface_label=label,
        peers=peers,
        takeaway=takeaway,
        size=size,
    )


async def _retried(once: Callable[[], Awaitable[SectionReceipt]]) -> SectionReceipt:
    """A merge is done again on the newer section, since it still means the same."""
    for attempt in range(limits.PATCH_ATTEMPTS - 1):
        try:
            return await once()
        except VersionConflict:
            await asyncio.sleep(random.uniform(0, _RETRY_SLEEP * 2**attempt))
    return await once()
