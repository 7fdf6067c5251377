"""Mutants made for DIG-01 to DIG-06: what an event's payload says of the agent's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from muniment import digests
from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.mutant import Mutants
from muniment.digests import Digest
from muniment.models import Agent
from muniment.ports import Claim, Claimed
from muniment.reference import ReferenceStorage
from muniment.reference.agent_rows import EnvelopeRow, EventRow

MUTANTS = Mutants()


@MUTANTS("seen entries again", made_for="DIG-01", fails="DIG-01 DIG-02 DIG-03 DIG-04 DIG-05 ACK-08 ACK-09")
class CarriesSeen(ReferenceStorage):
    """The digest takes revisions from last seen on, itself included."""

    def digest(self, agent: Agent) -> Digest:
        """From one before."""
        row = self.envelope(agent)
        return digests.choose(row.revision, max(0, row.last_seen - 1), row.exchanges)


@MUTANTS("revision only beside a digest", made_for="DIG-01", fails="DIG-01 DIG-05 ACK-08")
class SaysRevisionSeldom(Core):
    """With nothing new the payload is left alone."""

    def payload(self, given: dict[str, Any], digest: Digest, *, cue: bool) -> dict[str, Any]:
        """As it was enqueued."""
        return super().payload(given, digest, cue=cue) if digest.entries else given


@MUTANTS(
    "newest-first digest", made_for="DIG-02", fails="DIG-01 DIG-02 DIG-03 DIG-05 DIG-06 ACK-03 ACK-05 ACK-07 ACK-08"
)
class CarriesNewest(ReferenceStorage):
    """The digest has the newest entries that fit."""

    def digest(self, agent: Agent) -> Digest:
        """From the newest on."""
        row = self.envelope(agent)
        chosen = super().digest(agent)
        unseen = [one for one in row.exchanges if one.exchange.revision > row.last_seen]
        fitting = digests.fit([one.size for one in unseen])
        entries = tuple(one.exchange for one in unseen[:fitting])
        return replace(chosen, entries=entries, pending=len(unseen) - fitting)


@MUTANTS("digest over its bytes", made_for="DIG-02", fails="DIG-02 DIG-03 DIG-05 ACK-08")
class CarriesOneTooMany(ReferenceStorage):
    """The sum is compared before the entry is added."""

    def digest(self, agent: Agent) -> Digest:
        """And one more."""
        return _with_count(self.envelope(agent), lambda fitting: fitting + 1)


@MUTANTS("digest of at most ten", made_for="DIG-02", fails="DIG-02 DIG-05 ACK-08")
class CarriesTen(ReferenceStorage):
    """A second cap beside the bytes."""

    def digest(self, agent: Agent) -> Digest:
        """The oldest ten."""
        return _with_count(self.envelope(agent), lambda fitting: min(fitting, 10))


@MUTANTS("evicted entries not counted", made_for="DIG-02", fails="DIG-02 DIG-05 ACK-08")
class CountsNoEvicted(ReferenceStorage):
    """What the cap took is not spoken of."""

    def digest(self, agent: Agent) -> Digest:
        """None were."""
        return replace(super().digest(agent), evicted=0)


@MUTANTS("pending entries not counted", made_for="DIG-02", fails="DIG-02 DIG-03 DIG-04 DIG-05 ACK-08")
class CountsNoPending(ReferenceStorage):
    """What did not fit is not spoken of."""

    def digest(self, agent: Agent) -> Digest:
        """None wait."""
        return replace(super().digest(agent), pending=0)


@MUTANTS("large entries never fit", made_for="DIG-03", fails="DIG-02 DIG-03 DIG-05 ACK-08")
class CarriesSmallOnly(ReferenceStorage):
    """Room is kept for more than one entry, so the largest finds none."""

    def digest(self, agent: Agent) -> Digest:
        """Nothing where the oldest is large."""
        row = self.envelope(agent)
        unseen = [one.size for one in row.exchanges if one.exchange.revision > row.last_seen]
        return _with_count(row, lambda fitting: 0 if unseen and unseen[-1] > 2_000 else fitting)


@MUTANTS("digest and revision from two reads", made_for="DIG-04", fails="DIG-04")
class ReadsTwice(ReferenceStorage):
    """The revision is read, then the entries, and an append may come between."""

    async def claim(self, claim: Claim) -> Claimed:
        """The revision of a moment ago."""
        revision = self.envelope(claim.agent).revision
        await self.pause()
        claimed = await super().claim(claim)
        return replace(claimed, digest=replace(claimed.digest, revision=revision))


@MUTANTS(
    "ack that jumps to the current revision",
    made_for="DIG-05",
    fails="DIG-02 DIG-03 DIG-05 ACK-03 ACK-04 ACK-06 ACK-08 ACK-09",
)
class JumpsToCurrent(ReferenceStorage):
    """An acknowledgement marks everything as seen, carried or not."""

    def seen_after_ack(self, envelope: EnvelopeRow, row: EventRow) -> int:
        """The envelope's revision."""
        return envelope.revision


@MUTANTS("delivery persists the revision", made_for="DIG-05", fails="DIG-02 DIG-03 DIG-04 DIG-05 ACK-08")
class PersistsRevision(ReferenceStorage):
    """The revision at delivery is taken for that of the last entry that was carried."""

    def delivered_revision(self, agent: Agent, digest: Digest) -> int | None:
        """The envelope's."""
        return digest.revision


@MUTANTS("peers in the order of a set", made_for="DIG-06", fails="DIG-05 DIG-06 ACK-08")
class ShufflesPeers(Core):
    """The same entry is written down differently each time."""

    _turn = 0

    def payload(self, given: dict[str, Any], digest: Digest, *, cue: bool) -> dict[str, Any]:
        """Every other time the other way round."""
        self._turn += 1
        entries = [one.model_copy(update={"peers": one.peers[:: (-1) ** self._turn]}) for one in digest.entries]
        return super().payload(given, replace(digest, entries=tuple(entries)), cue=cue)


def _with_count(row: EnvelopeRow, count: Callable[[int], int]) -> Digest:
    """The digest with another number of entries than fit."""
    chosen = digests.choose(row.revision, row.last_seen, row.exchanges)
    unseen: Sequence[Any] = sorted(
        (one.exchange for one in row.exchanges if one.exchange.revision > row.last_seen), key=lambda one: one.revision
    )
    entries = tuple(unseen[: count(len(chosen.entries))])
    return replace(chosen, entries=entries, pending=len(unseen) - len(entries))
