"""Mutants made for MUT-16: what a closed client takes with it."""

from __future__ import annotations

from dataclasses import replace

from muniment.conformance.mutants.mutant import Mutants
from muniment.reference import ReferenceStorage

MUTANTS = Mutants()


@MUTANTS("acknowledged before it is on disk", made_for="MUT-16", fails="MUT-16")
class LosesOnClose(ReferenceStorage):
    """Writes wait in a buffer that a close throws away."""

    async def close(self) -> None:
        """Forget the memories."""
        self.data.memories.clear()


@MUTANTS("trail kept in a client's memory", made_for="MUT-16", fails="MUT-16 READ-06")
class LosesTrailOnClose(ReferenceStorage):
    """The audit trail lives as long as the process."""

    async def close(self) -> None:
        """Forget the trail."""
        self.data.audit.clear()


@MUTANTS("receipts kept in a cache", made_for="MUT-16", fails="MUT-16")
class LosesReceiptsOnClose(ReferenceStorage):
    """Idempotency keys live in a cache beside the database, which a restart empties."""

    async def close(self) -> None:
        """Forget the keys."""
        self.data.receipts.clear()


@MUTANTS("revocations kept in a cache", made_for="MUT-16", fails="MUT-16")
class LosesRevocationsOnClose(ReferenceStorage):
    """Revoked tokens are a list in memory, and good again after a restart."""

    async def close(self) -> None:
        """Forget which were revoked."""
        for row in list(self.data.tokens.values()):
            self.keep(replace(row, token=replace(row.token, revoked_at=None)))


@MUTANTS("sections written behind", made_for="MUT-16", fails="MUT-16")
class LosesSectionsOnClose(ReferenceStorage):
    """Sections are flushed now and then, and not by a close."""

    async def close(self) -> None:
        """Forget the sections."""
        for agent, row in list(self.agents.envelopes.items()):
            self.agents.envelopes[agent] = replace(row, sections={}, sync_key=None)


@MUTANTS("dedupe keys kept in a cache", made_for="MUT-16", fails="MUT-16")
class LosesDedupeKeysOnClose(ReferenceStorage):
    """Which exchanges came already is known as long as the process lives."""

    async def close(self) -> None:
        """Forget the keys."""
        for agent, row in list(self.agents.envelopes.items()):
            self.agents.envelopes[agent] = replace(row, dedupe={})


@MUTANTS("queue kept in a client's memory", made_for="MUT-16", fails="MUT-16")
class LosesQueueOnClose(ReferenceStorage):
    """Only what was delivered is written down, and what waits is gone."""

    async def close(self) -> None:
        """Forget what waits."""
        for queue in self.agents.events.values():
            for row in [one for one in queue.values() if one.token is None]:
                del queue[row.id]


@MUTANTS("registry of spaces kept in a client's memory", made_for="MUT-16", fails="MUT-16")
class LosesSpacesOnClose(ReferenceStorage):
    """Spaces are registered anew by whoever comes next."""

    async def close(self) -> None:
        """Forget the spaces."""
        self.data.spaces.clear()


@MUTANTS("active space kept in a client's memory", made_for="MUT-16", fails="MUT-16")
class LosesActiveSpaceOnClose(ReferenceStorage):
    """Which space is active is said by whoever comes next."""

    async def close(self) -> None:
        """Forget it."""
        for id_, row in list(self.data.spaces.items()):
            self.data.spaces[id_] = replace(row, registered=replace(row.registered, activated_at=None))
