"""Mutants made for MUT-12 and for SEC-04 to SEC-08: how exchanges are appended, capped, cut and deduplicated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from muniment import digests
from muniment.agent_models import SectionName
from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.mutant import Mutants
from muniment.digests import StoredExchange
from muniment.errors import StorageUnavailable
from muniment.models import Agent
from muniment.ports import Appended, EnvelopeFacts, ExchangeAppend, ExchangeDraft, ReceiptClaim
from muniment.reference import ReferenceStorage
from muniment.reference.agent_rows import EnvelopeRow, EventRow

MUTANTS = Mutants()


@MUTANTS("keys of exchanges and events ignored", made_for="MUT-12", fails="MUT-12")
class IgnoresPlatformKeys(ReferenceStorage):
    """Only memories store idempotency keys."""

    def take_receipt(self, claim: ReceiptClaim | None, now: datetime) -> None:
        """Only pass the point of the write."""
        if claim is not None:
            self.on_write("receipt")


@MUTANTS("no cap", made_for="SEC-04", fails="SEC-04 SEC-05 DIG-02 DIG-05 ACK-08 ACK-09")
class KeepsAllExchanges(ReferenceStorage):
    """Exchanges grow for ever."""

    def trimmed(self, exchanges: tuple[StoredExchange, ...], kept: int) -> tuple[StoredExchange, ...]:
        """All."""
        return exchanges


@MUTANTS("cap one too many", made_for="SEC-04", fails="SEC-04 SEC-05 DIG-02 DIG-05 ACK-08 ACK-09")
class KeepsOneTooMany(ReferenceStorage):
    """The trim sees the entries as they were before the append."""

    def trimmed(self, exchanges: tuple[StoredExchange, ...], kept: int) -> tuple[StoredExchange, ...]:
        """One more."""
        return exchanges[: kept + 1]


@MUTANTS("cap one too few", made_for="SEC-04", fails="SEC-04 SEC-05 SEC-08 DIG-02 DIG-05 ACK-08")
class KeepsOneTooFew(ReferenceStorage):
    """The trim compares with less than or equal."""

    def trimmed(self, exchanges: tuple[StoredExchange, ...], kept: int) -> tuple[StoredExchange, ...]:
        """One less."""
        return exchanges[: kept - 1]


@MUTANTS("newest evicted", made_for="SEC-04", fails="SEC-04 SEC-05 SEC-08 DIG-02 DIG-05 ACK-08 ACK-09")
class EvictsNewest(ReferenceStorage):
    """A full section takes no more."""

    def trimmed(self, exchanges: tuple[StoredExchange, ...], kept: int) -> tuple[StoredExchange, ...]:
        """Without the new one."""
        return exchanges if len(exchanges) <= kept else exchanges[1:]


@MUTANTS("exchanges oldest first", made_for="SEC-04", fails="SEC-04 SEC-06 SEC-07 SEC-08 DIG-05 DIG-06 ACK-08 ACK-09")
class ReadsOldestFirst(ReferenceStorage):
    """A reply holds them in the order of their appending."""

    async def load_envelope(
        self, agent: Agent, *, sections: Sequence[SectionName] | None = None, exchanges: bool = False
    ) -> EnvelopeFacts:
        """The other way round."""
        facts = await super().load_envelope(agent, sections=sections, exchanges=exchanges)
        return replace(facts, exchanges=tuple(reversed(facts.exchanges)))


@MUTANTS("read-modify-write append", made_for="SEC-05", fails="SEC-05 SEC-06 SEC-08")
class AppendsByReadingFirst(ReferenceStorage):
    """The envelope is read, changed and written back, without a lock in between."""

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """Over what others have appended meanwhile."""
        if any(self.was_used(draft.agent, append.dedupe_key) for draft in append.entries):
            return await super().append_exchange(append)
        now = self.clock()
        rows = {draft.agent: self.appended(draft, append, now) for draft in append.entries}
        await self.pause()
        self.touch(rows, ())
        self.take_receipt(append.claim, now)
        self.commit(rows, ())
        return Appended(tuple(row.revision for row in rows.values()), deduped=False, at=now)


@MUTANTS("only one peer written", made_for="SEC-06", fails="MUT-12 SEC-06 SEC-07 SEC-08")
class WritesOnePeer(ReferenceStorage):
    """The exchange is filed with the first of the two peers."""

    def recipients(self, append: ExchangeAppend) -> Sequence[ExchangeDraft]:
        """The first."""
        return append.entries[:1]


@MUTANTS("second peer in a transaction of its own", made_for="SEC-06", fails="SEC-06")
class WritesPeersOneByOne(ReferenceStorage):
    """The first peer's half stays where the second's fails."""

    def touch(self, envelopes: Mapping[Agent, EnvelopeRow], events: Sequence[EventRow]) -> None:
        """Only the first of two envelopes."""
        super().touch(dict(list(envelopes.items())[:1]), events)

    def commit(self, envelopes: Mapping[Agent, EnvelopeRow], events: Sequence[EventRow]) -> None:
        """One by one."""
        for place, (agent, row) in enumerate(envelopes.items()):
            if place:
                self.on_agent_write("envelope", agent)
            super().commit({agent: row}, ())
        super().commit({}, events)


@MUTANTS("among its own peers", made_for="SEC-06", fails="SEC-06 DIG-01 DIG-02 DIG-03 DIG-05 ACK-08")
class ListsItselfAsPeer(ReferenceStorage):
    """One list of peers is stored for both."""

    def appended(self, draft: ExchangeDraft, append: ExchangeAppend, now: datetime) -> EnvelopeRow:
        """With all of them."""
        own = f"{draft.agent.name}/{draft.agent.instance}"
        return super().appended(replace(draft, peers=(*draft.peers, own)), append, now)


@MUTANTS("peers locked in the order of the input", made_for="SEC-06", fails="SEC-06")
class LocksInAnyOrder(ReferenceStorage):
    """Opposite pairs wait for each other until the server ends one of them."""

    _locked: ClassVar[list[tuple[int, tuple[Agent, ...]]]] = []

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """Raises StorageUnavailable where the opposite pair is under way."""
        pair = tuple(draft.agent for draft in append.entries)
        if len(pair) == 2 and (id(self.data), (pair[1], pair[0])) in self._locked:
            raise StorageUnavailable("deadlock detected")
        self._locked.append((id(self.data), pair))
        try:
            await self.pause()
            return await super().append_exchange(append)
        finally:
            self._locked.remove((id(self.data), pair))


@MUTANTS("ellipsis over the limit", made_for="SEC-07", fails="SEC-07")
class CutsOverTheLimit(Core):
    """280 characters and an ellipsis after them."""

    def shortened(self, text: str, limit: int) -> str:
        """One too many."""
        return text if len(text) <= limit else text[:limit] + "…"


@MUTANTS("cut inside a combining sequence", made_for="SEC-07", fails="SEC-07")
class CutsInsideSequences(Core):
    """A text is cut between code points."""

    def shortened(self, text: str, limit: int) -> str:
        """At the limit, whatever is there."""
        return text if len(text) <= limit else text[: limit - 1] + "…"


@MUTANTS("cut without an ellipsis", made_for="SEC-07", fails="SEC-07")
class CutsSilently(Core):
    """Nothing says that a text was longer."""

    def shortened(self, text: str, limit: int) -> str:
        """Its beginning."""
        return text[:limit]


@MUTANTS("NO_REPLY taken as the last message", made_for="SEC-07", fails="SEC-07")
class TakesNoReply(Core):
    """The last message is the takeaway, whatever it says."""

    def dm_takeaway(self, messages: Sequence[str]) -> str:
        """The last."""
        return digests.shortened(digests.one_line(messages[-1]), 280) if messages else ""


@MUTANTS("dedupe key freed by eviction", made_for="SEC-08", fails="SEC-08")
class FreesDedupeKeys(ReferenceStorage):
    """The key is a column of the entry, and goes with it."""

    def was_used(self, agent: Agent, dedupe_key: str) -> bool:
        """As long as the entry is there."""
        row = self.envelope(agent)
        return row.dedupe.get(dedupe_key) in {one.exchange.revision for one in row.exchanges}


@MUTANTS("registering frees dedupe keys", made_for="SEC-08", fails="SEC-08")
class RegisteringFreesDedupeKeys(ReferenceStorage):
    """An agent that is registered again is inserted in place of its row, and its keys go with it."""

    async def register_agent(self, agent: Agent, pods: frozenset[str]) -> None:
        """Without keys."""
        await super().register_agent(agent, pods)
        self.store({agent: replace(self.envelope(agent), dedupe={})})


@MUTANTS("dedupe key looked up before the lock", made_for="SEC-08", fails="SEC-08")
class LooksKeysUpFirst(ReferenceStorage):
    """Two at once both find the key free."""

    async def append_exchange(self, append: ExchangeAppend) -> Appended:
        """Look, wait, append."""
        if any(self.was_used(draft.agent, append.dedupe_key) for draft in append.entries):
            return await super().append_exchange(append)
        await self.pause()
        now = self.clock()
        rows = {draft.agent: self.appended(draft, append, now) for draft in append.entries}
        self.touch(rows, ())
        self.take_receipt(append.claim, now)
        self.commit(rows, ())
        return Appended(tuple(row.revision for row in rows.values()), deduped=False, at=now)


@MUTANTS(
    "dedupe keys of all agents together",
    made_for="SEC-08",
    fails="MUT-12 ACC-08 SEC-06 SEC-08 DIG-02 DIG-05 ACK-03 ACK-08",
)
class SharesDedupeKeys(ReferenceStorage):
    """A key is unique in its table, not for its agent."""

    def was_used(self, agent: Agent, dedupe_key: str) -> bool:
        """By anybody."""
        return any(dedupe_key in row.dedupe for row in self.agents.envelopes.values())
