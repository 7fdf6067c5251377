"""Mutants made for MUT-12 to MUT-15: idempotency keys, all or nothing, and the audit trail."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from muniment import limits
from muniment.conformance.mutants.mutant import Mutants
from muniment.errors import StorageUnavailable
from muniment.models import AuditRecord
from muniment.ports import Applied, Index, Mutation, Passages, StoredReceipt
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow, ReceiptRow, Staged

MUTANTS = Mutants()


@MUTANTS("idempotency key ignored", made_for="MUT-12", fails="MUT-12 MUT-16 ACC-08 SCOPE-05")
class IgnoresKeys(ReferenceStorage):
    """No key is stored, so a repeated request is applied again."""

    def stage_receipt(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Only pass the point of the write."""
        if mutation.claim is not None:
            self.on_write("receipt")


@MUTANTS("idempotency key looked up but not unique", made_for="MUT-12", fails="MUT-12 SCOPE-05")
class KeysNotUnique(ReferenceStorage):
    """Without a unique index two requests at once both find the key free."""

    def stage_receipt(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Store the claim over any other."""
        if mutation.claim is not None:
            self.on_write("receipt")
            staged.receipt = ReceiptRow(mutation.claim, now)


@MUTANTS("idempotency key shared across principals", made_for="MUT-12", fails="MUT-12 ACC-08")
class KeysOfEverybody(ReferenceStorage):
    """A key is looked up without the principal that it belongs to."""

    def receipt_of(self, principal: str, key: str) -> ReceiptRow | None:
        """Anybody's."""
        return next((row for row in self.data.receipts.values() if row.claim.key == key), None)


@MUTANTS("idempotency keys expired at once", made_for="MUT-12", fails="MUT-12 MUT-16 ACC-08 SCOPE-05")
class KeysExpireAtOnce(ReferenceStorage):
    """The time of a key is compared in another time zone, so every key is too old."""

    def kept_receipt(self, principal: str, key: str) -> ReceiptRow | None:
        """Too old."""
        row = super().kept_receipt(principal, key)
        expiry = self.clock() - limits.IDEMPOTENCY_KEPT
        return None if row is None or row.at - limits.IDEMPOTENCY_KEPT - timedelta(hours=1) < expiry else row


@MUTANTS("idempotency keys in one client's memory", made_for="MUT-12", fails="MUT-12 MUT-16 SCOPE-05")
class KeysOfOneClient(ReferenceStorage):
    """Each process remembers the keys that came to it, and no others."""

    def stage_receipt(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Remember it here."""
        super().stage_receipt(staged, mutation, now)
        vars(self).setdefault("own_keys", set()).add(mutation.claim and mutation.claim.key)

    def receipt_of(self, principal: str, key: str) -> ReceiptRow | None:
        """Only one that came here."""
        return super().receipt_of(principal, key) if key in vars(self).get("own_keys", ()) else None


@MUTANTS("replay with the time of the replay", made_for="MUT-12", fails="MUT-12 MUT-16 ACC-08")
class ReplaysWithNewTime(ReferenceStorage):
    """A replayed receipt is dated when it is replayed."""

    async def find_receipt(self, principal: str, key: str) -> StoredReceipt | None:
        """Dated now."""
        found = await super().find_receipt(principal, key)
        return None if found is None else replace(found, updated_at=self.clock() + timedelta(seconds=1))


@MUTANTS("idempotency key stored outside the transaction", made_for="MUT-13", fails="MUT-12 MUT-13 MUT-16 ACC-08")
class KeyBeforeCommit(ReferenceStorage):
    """The key is taken by a statement of its own before the write has begun."""

    async def apply(self, mutation: Mutation) -> Applied:
        """Take the key first."""
        claim = mutation.claim
        if claim is not None and self.kept_receipt(claim.principal, claim.key) is None:
            self.data.receipts[claim.principal, claim.key] = ReceiptRow(claim, self.clock())
            mutation = replace(mutation, claim=None)
        return await super().apply(mutation)


@MUTANTS("memory committed before its audit entry", made_for="MUT-13", fails="MUT-13")
class CommitsMemoryFirst(ReferenceStorage):
    """The row is committed by itself, and what belongs to it afterwards."""

    def stage_memory(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Store it at once."""
        super().stage_memory(staged, mutation, now)
        if staged.memory is not None:
            self.data.memories[staged.memory.id] = staged.memory


@MUTANTS("audit after commit", made_for="MUT-13", fails="MUT-13 SCOPE-05")
class AuditsAfterCommit(ReferenceStorage):
    """The entry is written once the mutation is committed, and lost where that fails."""

    def stage_audit(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Commit what there is, then stage the entry."""
        staged.commit(self.data)
        super().stage_audit(staged, mutation, now)


@MUTANTS("audit in a transaction of its own", made_for="MUT-13", fails="MUT-13")
class AuditsByItself(ReferenceStorage):
    """The entry is stored even where the key that follows it is not."""

    def stage_audit(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Store it at once."""
        super().stage_audit(staged, mutation, now)
        if staged.audit is not None:
            self.data.audit[staged.audit.id] = staged.audit


@MUTANTS("old terms dropped before the commit", made_for="MUT-13", fails="MUT-13 LEX-02")
class DropsTermsFirst(ReferenceStorage):
    """The old terms are deleted outside the transaction that stores the new ones."""

    def with_terms(self, row: MemoryRow, index: Index) -> MemoryRow:
        """Delete, then go on."""
        if row.id in self.data.memories:
            self.data.memories[row.id] = replace(self.data.memories[row.id], terms=None)
        return super().with_terms(row, index)


@MUTANTS("failure to store vectors swallowed", made_for="MUT-13", fails="MUT-13")
class SwallowsVectorFailure(ReferenceStorage):
    """A vector index that is down is taken as one that has nothing to store."""

    def with_passages(self, row: MemoryRow, passages: Passages | None) -> MemoryRow:
        """Go on without."""
        try:
            return super().with_passages(row, passages)
        except StorageUnavailable:
            return replace(row, passages={}, embedded=frozenset[str]())


@MUTANTS("audit entry twice", made_for="MUT-14", fails="MUT-05 MUT-11 MUT-12 MUT-13 MUT-14 MUT-15")
class AuditsTwice(ReferenceStorage):
    """The statement and a trigger both write the entry."""

    def stage_audit(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Once more under another id."""
        super().stage_audit(staged, mutation, now)
        copy = replace(mutation.audit, id=f"{mutation.audit.id}-trigger").record(now)
        self.data.audit[copy.id] = copy


@MUTANTS(
    "no audit entry",
    made_for="MUT-14",
    fails="MUT-03 MUT-05 MUT-11 MUT-12 MUT-13 MUT-14 MUT-15 MUT-16 READ-02 READ-05 ACC-01 ACC-02 ACC-07 ACC-09 ACC-11",
)
class AuditsNothing(ReferenceStorage):
    """The trail is kept for project changes only."""

    def stage_audit(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Only pass the point of the write."""
        self.on_write("audit")


@MUTANTS("audit before the version is compared", made_for="MUT-14", fails="MUT-05 MUT-12 MUT-13 MUT-14 LEX-02")
class AuditsRefused(ReferenceStorage):
    """The entry is written first, so a mutation that is then refused has one too."""

    async def apply(self, mutation: Mutation) -> Applied:
        """Write the entry, then try."""
        self.data.audit[mutation.audit.id] = mutation.audit.record(self.clock())
        return await super().apply(mutation)


@MUTANTS("effect of a patch not in the trail", made_for="MUT-15", fails="MUT-15")
class ForgetsPatchEffect(ReferenceStorage):
    """An entry has no place for what a patch removed and added."""

    def stage_audit(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Without the effect."""
        super().stage_audit(staged, replace(mutation, audit=replace(mutation.audit, patch=None)), now)


@MUTANTS("trail of a move without its destination", made_for="MUT-15", fails="MUT-15")
class ForgetsDestination(ReferenceStorage):
    """An entry names one scope only."""

    def stage_audit(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """Without the other scope."""
        super().stage_audit(staged, replace(mutation, audit=replace(mutation.audit, moved_to=None)), now)


@MUTANTS("agent in place of the actor", made_for="MUT-15", fails="MUT-15 ACC-07")
class AuditsAgentAsActor(ReferenceStorage):
    """An entry names the agent that acted, and not the user that it acted for."""

    def stage_audit(self, staged: Staged, mutation: Mutation, now: datetime) -> None:
        """The agent where there is one."""
        audit = replace(mutation.audit, actor=mutation.audit.agent or mutation.audit.actor)
        super().stage_audit(staged, replace(mutation, audit=audit), now)


@MUTANTS("page of the trail repeats its last entry", made_for="MUT-15", fails="MUT-15")
class RepeatsTrailEntry(ReferenceStorage):
    """The cursor of a trail includes the entry that it was made from."""

    def precedes(self, entry: AuditRecord, version: int) -> bool:
        """Or equal."""
        return entry.version <= version
