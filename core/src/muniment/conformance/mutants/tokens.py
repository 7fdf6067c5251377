"""Mutants made for ACC-11 and AUTH-01 to AUTH-04: who may only read, and what is kept of API tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.mutant import Mutants
from muniment.conformance.reference_transport import ReferenceTransport
from muniment.models import Principal
from muniment.operations import Operation
from muniment.ports import Position, StoredToken
from muniment.reference import ReferenceStorage
from muniment.reference.rows import TokenRow

MUTANTS = Mutants()


@MUTANTS("agents and the platform unrestricted", made_for="ACC-11", fails="ACC-11")
class RestrictsUsersOnly(Core):
    """Credentials of an agent, or of the platform, that may only read may write."""

    def serves(self, operation: Operation, principal: Principal) -> bool:
        """As if they might write."""
        return super().serves(operation, principal.model_copy(update={"read_only": False}))


@MUTANTS("restriction lost on the way", made_for="ACC-11", fails="ACC-11 TRA-05")
class LosesRestriction(ReferenceTransport):
    """A transport passes on who calls, and not that the credentials may only read."""

    async def called(self, operation: str, sent: Mapping[str, Any]) -> BaseModel:
        """As one who may write."""
        if not self.context.principal.read_only:
            return await super().called(operation, sent)
        principal = self.context.principal.model_copy(update={"read_only": False})
        return await self.engine.call(operation, sent, self.context.model_copy(update={"principal": principal}))


@MUTANTS("hashes compared by their beginning", made_for="AUTH-01", fails="AUTH-01")
class ComparesBeginnings(ReferenceStorage):
    """A token is found by any beginning of its hash."""

    def is_of(self, row: TokenRow, digest: str) -> bool:
        """As far as it goes."""
        return row.digest.startswith(digest)


@MUTANTS("end forgotten", made_for="AUTH-01", fails="AUTH-01 AUTH-03 AUTH-04")
class ForgetsTheEnd(ReferenceStorage):
    """When a token ends is said once, and not kept."""

    def keep(self, row: TokenRow) -> None:
        """Without it."""
        super().keep(replace(row, token=replace(row.token, expires_at=None)))


@MUTANTS("whole token written back by a use", made_for="AUTH-02", fails="AUTH-02")
class WritesBack(ReferenceStorage):
    """Noting a use writes the whole token as it was read, so that a revocation in between is undone."""

    async def touch_token(self, token_id: str) -> None:
        """Read, and write later."""
        row = self.data.tokens.get(token_id)
        await self.pause()
        if row is not None:
            self.keep(replace(row, token=self.touched(row.token, self.clock())))


@MUTANTS("revoked anew", made_for="AUTH-02", fails="AUTH-02")
class RevokesAnew(ReferenceStorage):
    """Revoking a token that was revoked changes when that was."""

    def revoked(self, token: StoredToken, now: datetime) -> StoredToken:
        """At the time of this."""
        return replace(token, revoked_at=now)


@MUTANTS("found tokens kept in mind", made_for="AUTH-02", fails="AUTH-02 AUTH-03")
class KeepsInMind(ReferenceStorage):
    """A client that found a token does not look again, though another one may have revoked it."""

    async def find_token(self, digest: str) -> StoredToken | None:
        """What was found before."""
        mind: dict[str, StoredToken] = self.__dict__.setdefault("mind", {})
        found = mind.get(digest) or await super().find_token(digest)
        if found is not None:
            mind[digest] = found
        return found


@MUTANTS("used is live", made_for="AUTH-03", fails="AUTH-02 AUTH-03")
class RevivesByUse(ReferenceStorage):
    """A token that is used is no longer revoked."""

    def touched(self, token: StoredToken, now: datetime) -> StoredToken:
        """Live again."""
        return replace(super().touched(token, now), revoked_at=None)


@MUTANTS("used is never noted", made_for="AUTH-03", fails="AUTH-02 AUTH-03")
class NotesNoUse(ReferenceStorage):
    """The last use of a token is not kept."""

    def touched(self, token: StoredToken, now: datetime) -> StoredToken:
        """As it was."""
        return token


@MUTANTS("tokens of one moment left out", made_for="AUTH-04", fails="AUTH-04")
class SkipsTies(ReferenceStorage):
    """A page goes on with what is older than the last token, and leaves out others of its time."""

    def is_after(self, token: StoredToken, position: Position) -> bool:
        """Older."""
        return token.created_at < position.created_at
